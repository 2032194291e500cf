"""Idempotent appends (`Database.append_once`): the basis of exactly-once sinks.

A sink numbers its batches, and may describe the content of each. With a description, only a batch with
the same content counts as a repeat. The newest batch number is stored atomically with its records: in the
same unit or, for a large batch, in the unit that decides its transaction.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from eosdb import errors
from eosdb.broker.core import Core
from eosdb.broker.produce import append_within, count_produced
from eosdb.coordinator.leadership import Decision
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.events.kinds import SinkBatchAppended
from eosdb.log import once, partition_rows, topics
from eosdb.log.batch import PreparedBatch, prepare
from eosdb.log.once import SinkBatch
from eosdb.log.producer_state import SEQUENCE_COUNT
from eosdb.model.protocol.consumer_protocol import SINK
from eosdb.model.records.record_columns import RecordColumns, piece_length
from eosdb.model.requests import EndTxn
from eosdb.model.validation import check_collection, check_int, check_text, check_topic_partition
from eosdb.model.values import (
    EPOCH_PER_TRANSACTION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    AppendOnceResult,
    ProduceResult,
    ProducerIdAndEpoch,
    Record,
    RecordBatch,
    TopicPartition,
)
from eosdb.store.writing.unit import Unit

Batches = (
    Mapping[TopicPartition, Iterable[Record]] | Iterable[tuple[TopicPartition, Iterable[Record]]]
)
"""Records by partition, or pairs in the order of the append."""

_PART_RECORDS: Final = 5_000
_PART_BYTES: Final = 512 * 1024
"""The largest batch of the log: smaller than topics accept by default."""
_FIRST_PART: Final = 100
"""The records in the first part, while their size is unknown."""
_UNIT_BYTES: Final = 16 * 1024 * 1024
"""The most in one unit: more would hold the write lock for long and grow the WAL."""
_UNIT_RECORDS: Final = 50_000
_STEP_BYTES: Final = 4 * 1024 * 1024
"""The most in one unit of a transaction: other writers get their turn between units."""
_STEP_RECORDS: Final = 10_000
_HELD_CHARS: Final = 1_000
"""The longest description of a batch, which is stored."""
_TRIES: Final = 20


class SinkPart(NamedTuple):
    """Some records of a sink's batch for one partition, prepared as a batch of the log."""

    tp: TopicPartition
    records: Sequence[Record]
    batch: PreparedBatch

    def halves(self, now_ms: int) -> tuple[SinkPart, SinkPart]:
        assert len(self.records) > 1, "one record has no halves"
        middle = len(self.records) // 2
        first, second = self.records[:middle], self.records[middle:]
        return _part(self.tp, first, now_ms), _part(self.tp, second, now_ms)


@dataclass(frozen=True, slots=True)
class SinkSender:
    """The parts appended so far in a transaction, or in one unit without a transaction."""

    transactional_id: str | None
    producer: ProducerIdAndEpoch
    sequences: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The next sequence by partition."""
    topics: Mapping[str, int] = field(default_factory=dict)
    """The numbers of the topics, by name."""

    def check_topics(self, unit: Unit) -> None:
        """Raises UnknownTopicOrPartitionError or UnknownTopicIdError for a topic that was deleted,
        perhaps recreated."""
        topics.check_still_there(
            unit, self.topics, "nothing of this batch is stored, append it again"
        )

    def signed(self, part: SinkPart, sequence: int) -> PreparedBatch:
        assert 0 <= sequence < SEQUENCE_COUNT, sequence
        if self.transactional_id is None:
            return part.batch
        return part.batch._replace(
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )


Results = list[tuple[TopicPartition, PreparedBatch, ProduceResult]]


def append_once(
    core: Core,
    sink_id: str,
    batch_id: int,
    batches: Batches,
    *,
    held: Collection[str] = (),
    consecutive: bool = False,
) -> AppendOnceResult:
    """Append all of `batches` and store `batch_id` as the newest of `sink_id`, atomically; a `batch_id`
    not above the newest is a repeat and appends nothing. `batches` may also be pairs, read lazily.

    `held` are texts that each identify the content. With them, a batch counts as a repeat only if it
    shares a text with one of the sink's last 100 batches, or if the newest batch had none; otherwise
    BatchDiffersError is raised. With `consecutive`, a gap after the newest id raises
    OutOfOrderSequenceNumberError. After any error nothing of the call is readable. An append too large
    for one commit becomes a transaction of the transactional id `__eosdb.sink:` + `sink_id`. It has no
    time limit unless `batches` pauses for `transaction_max_timeout_ms`; if this process dies, it is
    aborted by the next process that opens or writes the file.
    """
    if check_text("sink_id", sink_id) == "":
        raise errors.InvalidRequestError("sink_id: got an empty one, expected text")
    number = check_int("batch_id", batch_id, 0)
    this = SinkBatch(sink_id, number, _check_held(held), consecutive)
    with core.store.read() as connection:
        if once.has_batch(connection, this):
            return AppendOnceResult(skipped=True, offsets={})
    parts = _parts(batches, core.clock.time_ms())
    first, is_all = _take(parts, _UNIT_RECORDS, _UNIT_BYTES)
    if is_all:
        return _in_unit(core, this, first)
    return _in_transaction(core, this, chain(first, parts))


def _in_unit(core: Core, this: SinkBatch, parts: list[SinkPart]) -> AppendOnceResult:
    def write(unit: Unit) -> Results | None:
        if once.has_batch(unit, this):
            return None
        nobody = SinkSender(None, ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH))
        results, _ = _append(core, unit, parts, nobody)
        _remember(core, unit, this)
        return results

    results = core.coordinator.write(write)
    offsets: dict[TopicPartition, int] = {}
    _count(core, results or [], offsets)
    return AppendOnceResult(skipped=results is None, offsets=offsets)


def _append(
    core: Core, unit: Unit, parts: list[SinkPart], sender: SinkSender
) -> tuple[Results, SinkSender]:
    """Append the parts; split each that is larger than its topic accepts into halves. Returns the sender
    with these parts."""
    sequences, numbers = dict(sender.sequences), dict(sender.topics)
    results: Results = []
    waiting = parts[::-1]
    while waiting:
        part = waiting.pop()
        sequence = sequences.get(part.tp, 0)
        batch = sender.signed(part, sequence)
        try:
            result = append_within(core, unit, part.tp, batch, sender.transactional_id)
        except errors.MessageTooLargeError:
            if len(part.records) == 1:
                raise
            waiting += reversed(part.halves(core.clock.time_ms()))
            continue
        results.append((part.tp, batch, result))
        sequences[part.tp] = (sequence + batch.count) % SEQUENCE_COUNT
        numbers[part.tp.topic] = partition_rows.load(unit, part.tp).topic_id
    return results, replace(sender, sequences=sequences, topics=numbers)


def _count(core: Core, results: Results, offsets: dict[TopicPartition, int]) -> None:
    for tp, batch, result in results:
        offsets.setdefault(tp, result.base_offset)
        count_produced(core.metrics, {tp: batch}, {tp: result})


def _remember(core: Core, unit: Unit, this: SinkBatch) -> None:
    # decisions/0014: the records and the batch id share a commit, so that a repeat is recognised.
    now_ms = core.clock.time_ms()
    unit.record(SinkBatchAppended(now_ms, this.sink_id, this.batch_id, this.held))


# -- in a transaction -----------------------------------------------------------------------


def _in_transaction(core: Core, this: SinkBatch, parts: Iterator[SinkPart]) -> AppendOnceResult:
    name = SINK + this.sink_id
    me = _begin(core, name)
    sender = SinkSender(name, me)
    offsets: dict[TopicPartition, int] = {}
    # decisions/0034: while the lock is held, other processes see that the transaction's owner is alive.
    with core.coordinator.presences.owning(name, me.producer_epoch):
        try:
            while some := _take(parts, _STEP_RECORDS, _STEP_BYTES)[0]:
                results, sender = _step(core, sender, some)
                _count(core, results, offsets)
            _end(core, sender, this)
        except BaseException as error:
            # If this abort fails, the next write of any process aborts, because it finds the lock free.
            with contextlib.suppress(errors.EosdbError):
                _end(core, sender, None)
            if isinstance(error, _DoneMeanwhileError):
                return AppendOnceResult(skipped=True, offsets={})
            raise
    return AppendOnceResult(skipped=False, offsets=offsets)


def _begin(core: Core, name: str) -> ProducerIdAndEpoch:
    """Initialise the transactional id, which fences an earlier attempt and aborts its transaction."""
    timeout_ms = core.config.transaction_max_timeout_ms
    for _ in range(_TRIES):
        try:
            return core.coordinator.init_producer_id(
                name,
                timeout_ms,
                None,
                partial(core.may_transact, transactional_id=name),
            )
        except errors.ConcurrentTransactionsError:
            continue
    raise errors.ConcurrentTransactionsError(f"{name}: other processes keep using it; try again")


def _step(core: Core, sender: SinkSender, parts: list[SinkPart]) -> tuple[Results, SinkSender]:
    """Append some parts in one unit, which also extends the time-out of the transaction."""
    name, me = sender.transactional_id or "", sender.producer
    assert name, "a step belongs to a transaction"
    assert parts, "a step has records"

    def write(unit: Unit) -> tuple[Results, SinkSender]:
        sender.check_topics(unit)
        if core.config.transaction_version < EPOCH_PER_TRANSACTION:
            tps = frozenset(part.tp for part in parts)
            transaction_rows.join(unit, name, me, None, core.clock.time_ms(), tps=tps)
        appended = _append(core, unit, parts, sender)
        timeout_ms = core.config.transaction_max_timeout_ms
        transaction_rows.keep_alive(unit, name, me, timeout_ms, core.clock.time_ms())
        return appended

    # No fsync: the transaction's later commit is synced, and makes these records durable.
    return core.coordinator.write(write, sync=False)


def _end(core: Core, sender: SinkSender, this: SinkBatch | None) -> None:
    """Commit the batch; abort the transaction if `this` is None."""
    name, version = sender.transactional_id or "", core.config.transaction_version
    request = EndTxn(name, *sender.producer, this is not None)

    def decide(unit: Unit, fresh: int | None) -> Decision:
        if this is not None:
            sender.check_topics(unit)
            if once.has_batch(unit, this):
                raise _DoneMeanwhileError
        decision = core.coordinator.end(unit, request, version, fresh)
        if this is not None:
            _remember(core, unit, this)
        return decision

    core.coordinator.decided(name, decide)


class _DoneMeanwhileError(Exception):
    """Another process has appended the batch since the check at the beginning."""


def _check_held(held: Collection[str]) -> tuple[str, ...]:
    if isinstance(held, str):
        raise errors.InvalidRequestError("held: got text, expected a collection of texts")
    texts = tuple(check_text("held", text) for text in check_collection("held", held))
    if "" in texts or sum(map(len, texts)) > _HELD_CHARS:
        raise errors.InvalidRequestError(
            f"held: expected texts that are not empty, {_HELD_CHARS} characters together at most"
        )
    return texts


def _parts(batches: Batches, now_ms: int) -> Iterator[SinkPart]:
    """Split the batches into parts. Raises InvalidRequestError, InvalidRecordError, InvalidTimestampError
    and UnknownTopicOrPartitionError."""
    pairs = batches.items() if isinstance(batches, Mapping) else batches
    count = _FIRST_PART
    for pair in check_collection("batches", pairs):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise errors.InvalidRequestError(
                f"batches: got {pair!r:.80}, expected pairs of a partition and its records"
            )
        tp = check_topic_partition(pair[0])
        given = check_collection(f"batches of {tp}", pair[1])
        left: Iterator[Any] = iter(given)
        at = 0
        # After a part with large records, `count` is smaller, so that parts keep a limited size.
        while records := (
            given[at : at + count]
            if isinstance(given, RecordColumns)
            else list(islice(left, count))
        ):
            at += len(records)
            part = _part(tp, records, now_ms)
            count = piece_length(count, part.batch.size, _PART_RECORDS, _PART_BYTES)
            yield part


def _part(tp: TopicPartition, records: Sequence[Record], now_ms: int) -> SinkPart:
    return SinkPart(tp, records, prepare(RecordBatch(records), now_ms))


def _take(
    parts: Iterator[SinkPart], most_records: int, most_bytes: int
) -> tuple[list[SinkPart], bool]:
    """The parts that fit into one unit, and whether those are all."""
    taken: list[SinkPart] = []
    size = count = 0
    for part in parts:
        taken.append(part)
        size += part.batch.size
        count += len(part.records)
        if size > most_bytes or count > most_records:
            return taken, False
    return taken, True
