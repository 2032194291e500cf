"""Requests to a group in few words, for the table of its cases.

Partitions of the topic "t" are digits, those of others stand behind the topic's name: "013u0". What several
members have is "a=01 b=23".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eosdb.model.protocol.consumer_protocol import Subscription
from eosdb.model.protocol.members import Assignor
from eosdb.model.values import TopicPartition


@dataclass(frozen=True, slots=True)
class Join:
    """By the classic protocol. Without a member id the first time, unless `is_known`."""

    who: str
    instance: str | None = None
    wants: str = "range"
    topics: str = "t"
    owns: str = ""
    kind: str = "consumer"
    says: bytes | None = None
    """In place of a subscription."""
    session_ms: int = 300_000
    rebalance_ms: int = 60_000
    is_known: bool = False

    @property
    def protocols(self) -> tuple[Assignor, ...]:
        said = self.says
        if said is None:
            said = Subscription(tuple(self.topics.split()), tuple(partitions(self.owns))).encode()
        return tuple(Assignor(name, said) for name in self.wants.split())


@dataclass(frozen=True, slots=True)
class Sync:
    """Of the member's current generation, unless another is given."""

    who: str
    gives: str = ""
    generation: int | None = None
    instance: str | None = None
    kind: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat of the classic protocol."""

    who: str
    generation: int | None = None
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    who: str
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class Hello:
    """A heartbeat of the new protocol, in the member's current epoch unless another is given."""

    who: str
    epoch: int | None = None
    owns: str | None = None
    topics: str | None = None
    regex: str | None = None
    instance: str | None = None
    assignor: str | None = None
    rack: str | None = None
    rebalance_ms: int | None = None


def enter(
    who: str, instance: str | None = None, topics: str | None = "t", regex: str | None = None
) -> Hello:
    """The first heartbeat, which says everything."""
    return Hello(who, 0, "", topics, regex, instance, rebalance_ms=30_000)


@dataclass(frozen=True, slots=True)
class Commit:
    """Nobody's has the generation -1."""

    who: str
    generation: int
    instance: str | None = None
    in_transaction: bool = False
    of: str = "0"


@dataclass(frozen=True, slots=True)
class Fetch:
    """Offsets, as a member of the new protocol fetches them."""

    who: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class DeleteOffset:
    topic: str


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic has so many partitions from now on; 0 deletes it."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Wait:
    ms: int


Step = Join | Sync | Beat | Leave | Hello | Commit | Fetch | DeleteOffset | Topic | Wait


@dataclass(frozen=True, slots=True)
class Row:
    """A case: what the group has been asked before, a request, its answer, and the group after it.

    The answer is an error's name; or "ok", or "waits" for others; of a join the generation, assignor and
    leader; of a heartbeat of the new protocol the epoch and what the member is told to own, if it is told.
    The group is its state and its generation, or group epoch; then each member with what it has, with its
    epoch in a group of the new kind, and with "~" if it speaks the classic protocol there. Nothing is said
    of it where it stays as it is.
    """

    name: str
    state: tuple[Step, ...]
    request: Step
    answer: str
    effect: str


class Group(Protocol):
    """Something that has one group and can be asked about it."""

    def ask(self, step: Step) -> str:
        """The answer, as in a row."""

    def effect(self) -> str:
        """The group, as in a row."""


def bring_about(group: Group, state: Iterable[Step]) -> None:
    """Ask all this; only a classic heartbeat may be answered with an error."""
    for step in state:
        answer = group.ask(step)
        assert isinstance(step, Beat) or not answer.isupper(), (step, answer)


def check(row: Row, group: Group) -> None:
    bring_about(group, row.state)
    before = group.effect()
    found = (group.ask(row.request), group.effect())
    assert found == (row.answer, row.effect or before), f"{row.name}: found {found}"


def check_all(rows: Sequence[Row], group_of: Callable[[Row], Group]) -> None:
    """One test for a table: a case of pytest's costs more than most rows. All rows that fail are told."""
    failures = []
    for row in rows:
        try:
            check(row, group_of(row))
        except AssertionError as failure:
            failures.append(failure)
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(rows)} rows", failures)


def partitions(short: str) -> list[TopicPartition]:
    """Of the short form."""
    parts = re.findall(r"([a-z]*)(\d+)", short)
    return [TopicPartition(name or "t", int(digit)) for name, digits in parts for digit in digits]


def shortened(tps: Iterable[TopicPartition]) -> str:
    """The short form of them."""
    by_topic: dict[str, str] = {}
    for topic, number in sorted(tps):
        by_topic[topic] = by_topic.get(topic, "") + str(number)
    return "".join(f"{'' if name == 't' else name}{some}" for name, some in by_topic.items())


def given(short: str) -> dict[str, list[TopicPartition]]:
    pairs = (one.split("=") for one in short.split())
    return {who: partitions(some) for who, some in pairs}


def group_text(state: str, generation: int, members: Mapping[str, str]) -> str:
    """The effect: what each member has, by its name and whatever is said of it."""
    return " ".join([f"{state} {generation}", *(f"{m}={members[m]}" for m in sorted(members))])


def told(epoch: int, owned: Iterable[TopicPartition] | None) -> str:
    return f"{epoch}" if owned is None else f"{epoch}: {shortened(owned) or 'nothing'}"
