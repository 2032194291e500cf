"""Computes the steps of a move and its obstacles from the facts of the file and the cluster.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from eosdb.errors import IllegalStateError
from eosdb.integrations.relay.planning import config_to_copy
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
    """A topic of the cluster. `config` has all its effective settings; it is empty if the user may not read
    them."""

    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    is_empty: bool = True


@dataclass(frozen=True, slots=True)
class MovingGroup:
    """A consumer group in the file or in the cluster, and its offsets in the topics that move."""

    name: str
    members: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    unfinished: Mapping[TopicPartition, Sequence[int]] = field(default_factory=dict)
    """Records that a killed processor left unfinished, below records that it finished."""


@dataclass(frozen=True, slots=True)
class MovingTransaction:
    """An open transaction with records or group offsets of topics that move. `at` is its first record; None
    if it has only offsets."""

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
    groups: tuple[MovingGroup, ...] = ()
    groups_there: Mapping[str, MovingGroup] = field(default_factory=dict)
    open_transactions: tuple[MovingTransaction, ...] = ()
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


CREATE: Final = "create topic"
RELAY: Final = "relay records"
CLOSE: Final = "close topics"
END: Final = "end transaction"
VERIFY: Final = "compare records"
COMMIT: Final = "commit offsets"
FINISH: Final = "mark as moved"
_TIMES: Final = "message.timestamp.type"
_LOG_APPEND: Final = "LogAppendTime"


def plan(facts: Facts) -> Plan:
    """The plan for these facts. Finished steps are `done`."""
    return Plan(tuple(_steps(facts)), tuple(_obstacles(facts)), tuple(_notes(facts)))


# -- steps --------------------------------------------------------------------------------------------


def _steps(facts: Facts) -> Iterator[Step]:
    moved = bool(facts.topics) and all(topic.moved_to for topic in facts.topics)
    for topic in facts.topics:
        config = config_to_copy(topic.config)
        said = ", ".join(f"{name}={value}" for name, value in config.items())
        detail = f"{len(topic.ends)} partitions" + (f", {said}" if said else "")
        yield Step(CREATE, topic.name, detail, topic.name in facts.there)
    for topic in facts.topics:
        left = lag(topic, facts)
        closed = topic.is_closed and not facts.open_transactions
        detail = f"{left} offsets to go" if left else "caught up"
        yield Step(RELAY, topic.name, detail, left == 0 and (moved or closed))
    for topic in facts.topics:
        yield Step(CLOSE, topic.name, f"writers are sent to {facts.address}", topic.is_closed)
    for transaction in facts.open_transactions:
        yield Step(END, str(transaction), "aborted unless it ends in time")
    for topic in facts.topics:
        yield Step(VERIFY, topic.name, "record by record", moved)
    for group in facts.groups:
        yield Step(COMMIT, group.name, f"{len(group.offsets)} partitions", moved)
    for topic in facts.topics:
        yield Step(FINISH, topic.name, "", bool(topic.moved_to))


def lag(topic: TopicHere, facts: Facts) -> int:
    """The number of offsets that are not relayed yet."""
    return sum(
        max(end - facts.positions.get(TopicPartition(topic.name, number), topic.starts[number]), 0)
        for number, end in topic.ends.items()
    )


# -- obstacles ----------------------------------------------------------------------------------------


def _obstacles(facts: Facts) -> Iterator[str]:
    if not facts.topics:
        yield "the file has no topic to move; those that begin with two underscores are named by --topic"
    for topic in facts.topics:
        elsewhere = topic.moved_to or topic.moving_to
        if elsewhere and elsewhere != facts.address:
            yield (
                f"topic {topic.name} is closed for its move to {elsewhere}; give that address, or take "
                "that move back with --undo"
            )
        there = facts.there.get(topic.name)
        if there is not None:
            yield from _obstacles_there(topic, there, facts)
    if all(topic.moved_to for topic in facts.topics):
        return
    for group in facts.groups:
        yield from _obstacles_of_group(group, facts.groups_there.get(group.name))


def _obstacles_there(topic: TopicHere, there: TopicThere, facts: Facts) -> Iterator[str]:
    if there.partitions != len(topic.ends):
        yield (
            f"topic {topic.name} has {len(topic.ends)} partitions here and {there.partitions} in the "
            "cluster; records keep their partition, so make the numbers equal (widen the smaller one, or "
            "delete the topic there if nothing of it is needed)"
        )
    relayed = any(tp.topic == topic.name for tp in facts.positions)
    if not there.is_empty and not relayed:
        yield (
            f"topic {topic.name} of the cluster has records, and the relay has written none there; delete "
            "or rename that topic, or give the name of the relay that wrote them (--name)"
        )
    times = there.config.get(_TIMES)
    if times == _LOG_APPEND and topic.config.get(_TIMES) != _LOG_APPEND:
        yield (
            f"topic {topic.name} has {_TIMES}={_LOG_APPEND} in the cluster, so records would lose their "
            "times; set it to CreateTime there"
        )


def _obstacles_of_group(group: MovingGroup, there: MovingGroup | None) -> Iterator[str]:
    if group.members:
        yield (
            f"group {group.name} has {group.members} members in the file; stop them (one that was killed "
            "is a member until its session ends), or the cluster delivers their unfinished records again"
        )
    for tp, left in () if group.members else group.unfinished.items():
        yield (
            f"group {group.name} was killed in the middle of {tp}: offset "
            f"{', '.join(map(str, left))} is unfinished, and the cluster would deliver complete records "
            "behind it again; start its processor here once more, and stop it with SIGTERM"
        )
    if there is not None and there.members:
        yield (
            f"group {group.name} has {there.members} members in the cluster already; stop them until the "
            "move is done"
        )


def is_about_members(obstacle: str) -> bool:
    """Whether the obstacle is a group's members, so that it disappears when programs stop."""
    return obstacle.startswith("group ")


def refuse(obstacles: Iterable[str], *, except_members: bool = False) -> None:
    if reasons := [text for text in obstacles if not (except_members and is_about_members(text))]:
        raise IllegalStateError("; ".join(reasons))


def ahead(offsets: Offsets, there: Mapping[str, MovingGroup]) -> list[str]:
    """The groups whose cluster offsets (`offsets`) are ahead of their offsets in the file."""
    return [
        f"group {name} stands at offset {offset_there} of {tp} in the cluster, and where it stands in the "
        f"file is offset {at} there: it has read on, so delete the group there if that was a rehearsal"
        for name, own in offsets.items()
        for tp, at in own.items()
        if (offset_there := there[name].offsets.get(tp, -1)) > at
    ]


def outcome(done: Plan, offsets: Offsets) -> Plan:
    steps = tuple(
        replace(step, detail=_offsets(offsets[step.subject]))
        if step.action == COMMIT and step.subject in offsets
        else step
        for step in done.steps
    )
    return replace(done, steps=steps)


def _offsets(own: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{tp}: {offset}" for tp, offset in sorted(own.items()))


# -- notes --------------------------------------------------------------------------------------------


def _notes(facts: Facts) -> Iterator[str]:
    for topic in facts.topics:
        there = facts.there.get(topic.name)
        if there is None or not there.config:
            continue
        for name, value in config_to_copy(topic.config).items():
            setting_there = there.config.get(name)
            if setting_there is None:
                yield f"topic {topic.name}: the cluster does not know the setting {name} ({value} here)"
            elif not _same(setting_there, value):
                yield f"topic {topic.name}: {name} is {value} here and {setting_there} in the cluster"
    if facts.others:
        yield f"{len(facts.others)} topics are not moved: {', '.join(facts.others[:10])}"
    if facts.transactional_ids:
        yield (
            f"{facts.transactional_ids} transactional ids need no move: their producers initialise them in "
            "the cluster"
        )
    if facts.acls:
        yield f"{facts.acls} ACLs are not moved; eosdb acls list shows them, kafka-acls creates them"
    if facts.users:
        yield (
            f"{facts.users} users are not moved: passwords are not kept; kafka-configs --alter "
            "--add-config SCRAM-… creates them"
        )


def _same(left: str, other: str) -> bool:
    return {part.strip() for part in left.split(",")} == {part.strip() for part in other.split(",")}
