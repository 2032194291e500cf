"""What a move looks at, and what it makes of it: facts of the file and of the cluster, steps, findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eosdb.model.values import TopicPartition


@dataclass(frozen=True, slots=True)
class TopicHere:
    """A topic of the file. `config` are its own settings; records are counted in offsets."""

    name: str
    config: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    """For each partition, how far it can be read."""
    starts: Mapping[int, int] = field(default_factory=dict)
    moving_to: str = ""
    moved_to: str = ""
    is_compacted: bool = False

    @property
    def is_closed(self) -> bool:
        """It takes no more records."""
        return bool(self.moving_to or self.moved_to)


@dataclass(frozen=True, slots=True)
class TopicThere:
    """A topic of the cluster. `config` are all settings in force there, empty if they may not be seen."""

    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    is_empty: bool = True


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group, in the file or in the cluster, and its offsets in the topics that move."""

    name: str
    members: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that holds records or offsets of topics that move. `at` is where it begins, for one
    that no transactional id knows."""

    transactional_id: str | None
    at: tuple[TopicPartition, int] | None = None

    def __str__(self) -> str:
        if self.transactional_id is not None:
            return self.transactional_id
        return "(hanging)" if self.at is None else f"(hanging, {self.at[0]} offset {self.at[1]})"


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a plan is made of."""

    address: str
    topics: tuple[TopicHere, ...]
    there: Mapping[str, TopicThere] = field(default_factory=dict)
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    """How far the relay has come, as the cluster remembers it."""
    groups: tuple[Group, ...] = ()
    groups_there: Mapping[str, Group] = field(default_factory=dict)
    open_transactions: tuple[OpenTransaction, ...] = ()
    transactional_ids: int = 0
    acls: int = 0
    users: int = 0
    others: tuple[str, ...] = ()
    """Topics of the file that do not move."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What the comparison of a partition's two sides has given."""

    tp: TopicPartition
    records: int
    """That the file has."""
    difference: str | None
    offsets: Mapping[int, int]
    """Offsets of the cluster by those of the file; empty if there is a difference."""


Offsets = Mapping[str, Mapping[TopicPartition, int]]
"""Offsets of the cluster, by group and partition."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that the move does, or has done."""

    action: str
    subject: str
    detail: str = ""
    done: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in their order; what stands in the way of all of them; and what to know."""

    steps: tuple[Step, ...] = ()
    obstacles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Nothing is left to do."""
        return all(step.done for step in self.steps)
