"""The values of a move: facts of the file and of the cluster, steps, and results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eosdb.model.values import TopicPartition


@dataclass(frozen=True, slots=True)
class TopicHere:
    """A topic of the file. `config` has the settings of the topic itself; records are counted in
    offsets."""

    name: str
    config: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    """For each partition, the offset up to which it can be read."""
    starts: Mapping[int, int] = field(default_factory=dict)
    moving_to: str = ""
    moved_to: str = ""
    is_compacted: bool = False

    @property
    def is_closed(self) -> bool:
        return bool(self.moving_to or self.moved_to)


@dataclass(frozen=True, slots=True)
class TopicThere:
    """A topic of the cluster. `config` has all its effective settings; empty if the user may not see
    them."""

    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    is_empty: bool = True


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group in the file or in the cluster, and its offsets in the topics that move."""

    name: str
    members: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction with records or offsets of topics that move. `at` is its start in one of them;
    None if it has only offsets."""

    transactional_id: str | None
    at: tuple[TopicPartition, int] | None = None

    def __str__(self) -> str:
        if self.transactional_id is not None:
            return self.transactional_id
        return "(hanging)" if self.at is None else f"(hanging, {self.at[0]} offset {self.at[1]})"


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts from which a plan is computed."""

    address: str
    topics: tuple[TopicHere, ...]
    there: Mapping[str, TopicThere] = field(default_factory=dict)
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The relay's positions, as stored in the cluster."""
    groups: tuple[Group, ...] = ()
    groups_there: Mapping[str, Group] = field(default_factory=dict)
    open_transactions: tuple[OpenTransaction, ...] = ()
    transactional_ids: int = 0
    acls: int = 0
    users: int = 0
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of comparing the two sides of a partition."""

    tp: TopicPartition
    records: int
    """The number of records in the file."""
    difference: str | None
    offsets: Mapping[int, int]
    """The cluster's offset for each offset of the file; empty if the sides differ."""


Offsets = Mapping[str, Mapping[TopicPartition, int]]
"""The cluster's offsets by group and partition."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the move, done or not."""

    action: str
    subject: str
    detail: str = ""
    done: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in order, the obstacles, and remarks."""

    steps: tuple[Step, ...] = ()
    obstacles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether every step is done."""
        return all(step.done for step in self.steps)
