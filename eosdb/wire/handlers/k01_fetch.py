"""Fetch: records from an offset on, waiting for them as long as the client allows.

Version 4: isolation levels, and the aborted transactions; 5: the log start; 7: fetch sessions (KIP-227),
which are not offered; 9: the leader's epoch (KIP-320); 11: racks (KIP-392); 12: flexible, and where the log
diverged (KIP-595); 13: topics by their ids (KIP-516); 15: followers name themselves in a structure
(KIP-903); 18: a replica's high watermark.
`messages.py` encodes the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from kafka.protocol.consumer.fetch import FetchRequest

from eosdb.broker.broker import Broker
from eosdb.errors import CorruptRecordError, EosdbError, OffsetOutOfRangeError
from eosdb.log.reading import lag as many
from eosdb.log.topics import unknown_id
from eosdb.model import requests
from eosdb.model.fetched import AbortedTransaction, Block, LeaderEpochs
from eosdb.model.protocol.consumer_questions import HaveMoved
from eosdb.model.values import IsolationLevel, PartitionOffsets, TopicPartition
from eosdb.wire import batches, errors
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.handlers.k02_list_offsets import NO_EPOCH, checked_epoch, isolation_level
from eosdb.wire.messages import FetchAnswer, FetchedPartition, Pieces
from eosdb.wire.parking import REAL_TIME, Shared
from eosdb.wire.session import NO_TOPIC

_STEP: Final = 2_000
_LEAST_BYTES: Final = 65_536
"""The least size of a response, even if other responses take all memory."""
_LONGEST_WAIT_MS: Final = 3_600_000
_FULL: Final = (-1, 0)
"""Session epochs of a full request, which names all its partitions."""


class _Place(NamedTuple):
    """A partition, by name or by topic id, as in the request."""

    topic: str | UUID
    partition: int


@dataclass(frozen=True, slots=True)
class _Asked:
    offset: int
    max_bytes: int
    last_epoch: int
    """The leader epoch of the last record that the client has; -1 if it names none."""
    code: int
    """An error that the request itself causes, or NONE."""


@dataclass(slots=True)
class _Answers:
    """The partitions read for a response."""

    parts: dict[_Place, FetchedPartition]
    bounds: dict[TopicPartition, int]
    """The high watermark of each partition when it was read; with read_committed its last stable offset."""
    size: int = 0
    failed: bool = False


@serves(FetchRequest, 4, 18)
def fetch(session: Session, request: FetchRequest, version: int) -> FetchAnswer | Fields:
    """Fetch without sessions (KIP-227): every request names all its partitions, as clients do when the
    broker offers no session."""
    if request.session_epoch not in _FULL:
        return {"error_code": errors.FETCH_SESSION_ID_NOT_FOUND}
    level = isolation_level(request.isolation_level)
    sender = request.replica_state if version >= 15 else request
    is_follower = sender is not None and sender.replica_id >= 0
    by_id = version >= 13
    epoch, damage = 0, errors.NONE
    try:
        epoch = session.leader_epoch()
    except EosdbError as error:
        damage = errors.reading_code_of(error)
    # If a partition occurs twice, the last one counts.
    requested = {
        _Place(topic.topic_id or NO_TOPIC if by_id else topic.topic, p.partition): _Asked(
            p.fetch_offset,
            p.partition_max_bytes,
            p.last_fetched_epoch if version >= 12 else NO_EPOCH,
            errors.NOT_LEADER_OR_FOLLOWER  # The only broker has no followers.
            if is_follower
            else damage or checked_epoch(max(p.current_leader_epoch, NO_EPOCH), epoch),
        )
        for topic in request.topics
        for p in topic.partitions
    }
    most, held = session.limits.answer_bytes, session.lease.size
    left_ms = min(request.max_wait_ms, _LONGEST_WAIT_MS)
    deadline = REAL_TIME.monotonic_ms() + left_ms
    shared: Shared | None = {}
    offsets = {p: it.offset if it.code == errors.NONE else -1 for p, it in requested.items()}
    same = session.principal, level, tuple(requested.items())
    if session.idle is not None and request.min_bytes > 0 and session.idle[0] == (level, offsets):
        # The last answer reached the end of every partition, so wait for new records before reading.
        shared = session.parking.wait(session.idle[1], left_ms, session.client)
    while True:
        room = session.lease.share(max(0, min(request.max_bytes, most)), _LEAST_BYTES)
        with session.lease.memory.reading:
            # decisions/0087: one read serves equal requests of a principal that the same commit has woken.
            answers = None if shared is None else shared.get(same)
            if answers is None or answers.size > room:
                answers = _read(session.broker, requested, level, room, epoch)
        session.lease.shrink_to(held + min(answers.size, room))
        left_ms = deadline - REAL_TIME.monotonic_ms()
        enough = answers.failed or answers.size >= request.min_bytes or not requested
        moved = _HaveMoved(many.listed(answers.bounds), level)
        if shared is not None:
            shared[same] = answers
        if enough or shared is None or left_ms <= 0 or session.parking.is_closed:
            break
        if (shared := session.parking.wait(moved, left_ms, session.client)) is None:
            break
    ends = {place: _bound(part, level) for place, part in answers.parts.items()}
    session.idle = None if answers.failed or not ends else ((level, ends), moved)
    topics: dict[str | UUID, list[FetchedPartition]] = {}
    for place, part in answers.parts.items():
        topics.setdefault(place.topic, []).append(part)
    return FetchAnswer(topics)


def _read(
    broker: Broker,
    requested: Mapping[_Place, _Asked],
    level: IsolationLevel,
    max_bytes: int,
    epoch: int,
) -> _Answers:
    """Read the partitions in the order of the request, up to `max_bytes`. Only the first partition with
    records may exceed it, by one record. `epoch` is the current leader epoch."""
    answers = _Answers({}, {})
    ids = {place.topic for place in requested if isinstance(place.topic, UUID)}
    names = _names(broker, ids)
    idle = _idle(broker, requested, names, level)
    for place, wanted in requested.items():
        code = wanted.code
        ends: PartitionOffsets | None = None
        records: Pieces = []
        aborted: Iterable[AbortedTransaction] = ()
        diverging: tuple[int, int] | None = None
        try:
            tp = TopicPartition(_name(names, place.topic), place.partition)
            epochs = LeaderEpochs(0, 0)
            if epoch or wanted.last_epoch >= 0:
                epochs = broker.ask(requests.LeaderEpochs(tp))
                diverging = _diverging(epochs, wanted)
            if diverging is not None:
                ends = broker.ask(requests.Offsets(tp))
            elif code == errors.NONE and (ends := idle.get(tp)) is None:
                room = min(wanted.max_bytes, max_bytes - answers.size)
                if room > 0 or answers.size == 0:
                    ends, records, aborted = _read_partition(
                        broker, tp, wanted.offset, level, room, at_least_one=answers.size == 0
                    )
                    if epoch:
                        records = [batches.with_epochs(piece, epochs) for piece in records]
                else:
                    ends = broker.ask(requests.Offsets(tp))
        except EosdbError as error:
            code = errors.reading_code_of(error)
        answers.size += sum(map(len, records))
        answers.failed |= code != errors.NONE
        if ends is not None:
            answers.bounds[tp] = _bound(ends, level)
        answers.parts[place] = FetchedPartition(
            place.partition,
            code,
            -1 if ends is None else ends.high_watermark,
            -1 if ends is None else ends.last_stable_offset,
            -1 if ends is None else ends.log_start_offset,
            list(aborted) if level == "read_committed" and ends is not None else None,
            records,
            diverging,
        )
    # Ids are never reused: if this id still has this name, the data just read belongs to it.
    return (
        answers
        if names == _names(broker, ids)
        else _read(broker, requested, level, max_bytes, epoch)
    )


def _diverging(epochs: LeaderEpochs, wanted: _Asked) -> tuple[int, int] | None:
    """The epoch and offset up to which the client's log is the file's; None if that is all of it. Raises
    OffsetOutOfRangeError for an epoch that the file does not know."""
    if wanted.last_epoch < 0:
        return None
    epoch, end = epochs.end_of(wanted.last_epoch)
    if epoch < 0:
        raise OffsetOutOfRangeError(
            f"leader epoch {wanted.last_epoch}: expected up to {epochs.current}"
        )
    return (epoch, end) if epoch < wanted.last_epoch or end < wanted.offset else None


def _idle(
    broker: Broker,
    requested: Mapping[_Place, _Asked],
    names: Mapping[UUID, str],
    level: IsolationLevel,
) -> Mapping[TopicPartition, PartitionOffsets]:
    """The partitions of a large request that have no new records, found by one query."""
    if len(requested) == 1:
        return {}
    positions = {
        TopicPartition(_name(names, place.topic), place.partition): wanted.offset
        for place, wanted in requested.items()
        if place.topic in names or not isinstance(place.topic, UUID)
    }
    return broker.ask(requests.Idle(positions, isolation_level=level))


def _names(broker: Broker, ids: Set[UUID]) -> dict[UUID, str]:
    """The topic names of the ids; an id without a topic is missing."""
    names = broker.ask(requests.TopicNames()) if ids else {}
    return {topic_id: names[topic_id] for topic_id in ids & names.keys()}


def _name(names: Mapping[UUID, str], topic: str | UUID) -> str:
    """The topic's name. Raises UnknownTopicIdError."""
    if not isinstance(topic, UUID):
        return topic
    if topic not in names:
        raise unknown_id(topic)
    return names[topic]


def _read_partition(
    broker: Broker,
    tp: TopicPartition,
    offset: int,
    level: IsolationLevel,
    room: int,
    *,
    at_least_one: bool,
) -> tuple[PartitionOffsets, Pieces, Iterable[AbortedTransaction]]:
    """Read as many records as fit into `room`, in steps small enough for the processor's caches."""
    parts: Pieces = []
    aborted: dict[AbortedTransaction, None] = {}
    """The aborted transactions of all steps, without repetition, in order."""
    block: Block | None = None
    while True:
        try:
            block = broker.ask(
                requests.FetchBatches(
                    tp, offset, isolation_level=level, max_records=_STEP, max_bytes=max(room, 0)
                )
            )
        except CorruptRecordError:
            if block is None:
                raise
            return block.bounds, parts, aborted  # The next fetch reports the damaged record.
        more, offset = batches.encode(block, room, at_least_one=at_least_one and not parts)
        parts.append(more)
        room -= len(more)
        aborted.update(dict.fromkeys(block.aborted))
        if offset < block.stop or offset >= _bound(block.bounds, level) or room <= 0:
            return block.bounds, parts, aborted


@dataclass(frozen=True, slots=True)
class _HaveMoved:
    """The condition of a waiting Fetch: a partition has new records for its isolation level, or fails."""

    listed: str
    level: IsolationLevel

    def __call__(self, broker: Broker) -> bool:
        try:
            return broker.ask(HaveMoved(self.listed, isolation_level=self.level))
        except EosdbError:
            return True  # The next fetch reports the error.


def _bound(ends: PartitionOffsets | FetchedPartition, level: IsolationLevel) -> int:
    """The end offset for the isolation level."""
    return ends.last_stable_offset if level == "read_committed" else ends.high_watermark
