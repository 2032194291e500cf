"""Fetch: what is there from an offset on, waiting for it as long as the client allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse

from eosdb.broker.broker import Broker
from eosdb.errors import CorruptRecordError, EosdbError
from eosdb.log.topics import unknown_id
from eosdb.model.fetched import AbortedTransaction, FetchedColumns
from eosdb.model.values import PartitionOffsets, TopicPartition
from eosdb.wire import batches
from eosdb.wire.errors import FETCH_SESSION_ID_NOT_FOUND, NONE, reading_code_of
from eosdb.wire.handlers.offsets import ISOLATION_LEVELS, NO_EPOCH, checked_epoch
from eosdb.wire.parking import REAL_TIME, Look
from eosdb.wire.session import NO_TOPIC, Session

_PartitionData = FetchResponse.FetchableTopicResponse.PartitionData
_Aborted = _PartitionData.AbortedTransaction
_STEP: Final = 2_000
"""How many records are read at a time."""
_LEAST_BYTES: Final = 65_536
"""What an answer may have however many others are in memory."""
_LONGEST_WAIT_MS: Final = 3_600_000
_BY_ID_FROM: Final = 13
_FULL: Final = (-1, 0)
"""Epochs of a session that say that the request names all it wants, whatever the session's id."""


class _Place(NamedTuple):
    """A partition as a request names it."""

    topic: str | UUID
    partition: int


@dataclass(frozen=True, slots=True)
class _Asked:
    offset: int
    max_bytes: int
    epoch: int


@dataclass(slots=True)
class _Answers:
    """What has been read for one answer."""

    parts: dict[_Place, _PartitionData]
    bounds: dict[TopicPartition, int]
    """Where each partition ended for this reader."""
    size: int = 0
    failed: bool = False


def fetch(session: Session, request: FetchRequest, version: int) -> FetchResponse:
    """Without sessions (KIP-227): every request names all its partitions, which is all that a client may
    rely on."""
    if version >= 7 and request.session_epoch not in _FULL:
        return FetchResponse(error_code=FETCH_SESSION_ID_NOT_FOUND, session_id=0, responses=[])
    level = ISOLATION_LEVELS.get(request.isolation_level, "")
    by_id = version >= _BY_ID_FROM
    # Of a partition that comes twice the last one counts.
    asked = {
        _Place(topic.topic_id or NO_TOPIC if by_id else topic.topic, p.partition): _Asked(
            p.fetch_offset,
            p.partition_max_bytes,
            max(p.current_leader_epoch, NO_EPOCH) if version >= 9 else NO_EPOCH,
        )
        for topic in request.topics
        for p in topic.partitions
    }
    most, held = session.limits.answer_bytes, session.lease.size
    deadline = REAL_TIME.monotonic_ms() + min(request.max_wait_ms, _LONGEST_WAIT_MS)
    while True:
        room = session.lease.share(max(0, min(request.max_bytes, most)), _LEAST_BYTES)
        with session.lease.memory.reading:
            found = _read(session.broker, asked, level, room)
        session.lease.shrink_to(held + min(found.size, room))
        left_ms = deadline - REAL_TIME.monotonic_ms()
        enough = found.failed or found.size >= request.min_bytes or not asked
        if enough or left_ms <= 0 or session.parking.is_closed:
            break
        session.parking.wait(_has_moved(found.bounds, level), left_ms)
    parts: dict[str | UUID, list[_PartitionData]] = {}
    for place, part in found.parts.items():
        parts.setdefault(place.topic, []).append(part)
    answer = FetchResponse.FetchableTopicResponse
    return FetchResponse(
        error_code=NONE,
        session_id=0,
        responses=[
            answer(topic_id=topic, partitions=partitions)
            if isinstance(topic, UUID)
            else answer(topic=topic, partitions=partitions)
            for topic, partitions in parts.items()
        ],
    )


def _read(broker: Broker, asked: Mapping[_Place, _Asked], level: str, max_bytes: int) -> _Answers:
    """Read the partitions in the order of the request, until there are `max_bytes`; only the first that
    has anything may exceed them, by one record."""
    found = _Answers({}, {})
    ids = {place.topic for place in asked if isinstance(place.topic, UUID)}
    names = _names(broker, ids)
    for place, one in asked.items():
        code = checked_epoch(one.epoch)
        ends: FetchedColumns | PartitionOffsets | None = None
        records = b""
        aborted: Iterable[AbortedTransaction] = ()
        try:
            tp = TopicPartition(_name(names, place.topic), place.partition)
            if code == NONE:
                room = min(one.max_bytes, max_bytes - found.size)
                if room > 0 or found.size == 0:
                    ends, records, aborted = _read_partition(
                        broker, tp, one.offset, level, room, at_least_one=found.size == 0
                    )
                else:
                    ends = broker.offsets(tp)
        except EosdbError as error:
            code = reading_code_of(error)
        found.size += len(records)
        found.failed |= code != NONE
        committed = level == "read_committed"
        if ends is not None:
            found.bounds[tp] = ends.last_stable_offset if committed else ends.high_watermark
        found.parts[place] = _PartitionData(
            partition_index=place.partition,
            error_code=code,
            high_watermark=-1 if ends is None else ends.high_watermark,
            last_stable_offset=-1 if ends is None else ends.last_stable_offset,
            log_start_offset=-1 if ends is None else ends.log_start_offset,
            aborted_transactions=_listed(aborted) if committed and ends is not None else None,
            preferred_read_replica=-1,
            records=records,
        )
    # What was read by a name was read of the topic if it is there now: no id ever comes again.
    return found if names == _names(broker, ids) else _read(broker, asked, level, max_bytes)


def _names(broker: Broker, ids: Set[UUID]) -> dict[UUID, str]:
    """Of those of the topics that there are."""
    known = broker.topic_names() if ids else {}
    return {topic_id: known[topic_id] for topic_id in ids & known.keys()}


def _name(names: Mapping[UUID, str], topic: str | UUID) -> str:
    """Raises UnknownTopicIdError."""
    if not isinstance(topic, UUID):
        return topic
    if topic not in names:
        raise unknown_id(topic)
    return names[topic]


def _read_partition(
    broker: Broker, tp: TopicPartition, offset: int, level: str, room: int, *, at_least_one: bool
) -> tuple[FetchedColumns, bytes, Iterable[AbortedTransaction]]:
    """As much as there is room for, in steps: small ones stay in the processor's caches."""
    parts: list[bytes] = []
    aborted: dict[AbortedTransaction, None] = {}
    """Those of each step once, in their order."""
    found: FetchedColumns | None = None
    while True:
        try:
            found = broker.fetch_columns(
                tp, offset, isolation_level=level, max_records=_STEP, max_bytes=max(room, 0)
            )
        except CorruptRecordError:
            if found is None:
                raise
            return found, b"".join(parts), aborted  # The next fetch begins at the damaged record.
        more, offset = batches.encode(found, offset, room, at_least_one=at_least_one and not parts)
        parts.append(more)
        room -= len(more)
        aborted.update(dict.fromkeys(found.aborted_transactions))
        if len(found.offsets) < _STEP or offset < found.next_offset or room <= 0:
            return found, b"".join(parts), aborted


def _listed(aborted: Iterable[AbortedTransaction]) -> list[_Aborted]:
    return [_Aborted(producer_id=one.producer_id, first_offset=one.first_offset) for one in aborted]


def _has_moved(bounds: dict[TopicPartition, int], level: str) -> Look:
    """Whether one of the partitions has more for a reader now."""
    committed = level == "read_committed"

    def look(broker: Broker) -> bool:
        for tp, bound in bounds.items():
            try:
                offsets = broker.offsets(tp)
            except EosdbError:
                return True  # The reader is to be told.
            if (offsets.last_stable_offset if committed else offsets.high_watermark) != bound:
                return True
        return False

    return look
