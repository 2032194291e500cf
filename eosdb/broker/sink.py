"""Appends that happen once (`Database.append_once`): the basis of exactly-once sinks.

A sink numbers its batches, and may say what each holds: then only the same content counts as a repeat.
The number of the newest is stored with the batch's records: in the same unit or, for a batch too large
for one, in the unit that decides the transaction that carries it. Wherever a program dies, both are there
or neither is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from eosdb.broker.handler import Core, RequestHandler
from eosdb.broker.produce import ProduceRequests
from eosdb.errors import (
    ApiError,
    ConcurrentTransactionsError,
    InvalidRequestError,
    MessageTooLargeError,
    ProducerFencedError,
)
from eosdb.events.kinds import SinkBatchAppended
from eosdb.log import append as log_append
from eosdb.log import once, partition_rows
from eosdb.log.batch import PreparedBatch, prepare
from eosdb.log.once import SinkBatch
from eosdb.model.values import (
    AppendOnceResult,
    ProducerIdAndEpoch,
    Record,
    RecordBatch,
    TopicPartition,
)
from eosdb.store.writing.unit import Unit
from eosdb.validation import check_collection, check_int, check_text, check_topic_partition

Batches = (
    Mapping[TopicPartition, Iterable[Record]] | Iterable[tuple[TopicPartition, Iterable[Record]]]
)
"""Records by partition, or pairs in the order in which they are to be appended."""

_PART_RECORDS: Final = 1_000
_UNIT_BYTES: Final = 16 * 1024 * 1024
"""What is appended in one unit; more holds the write lock for long, and makes the WAL large."""
_UNIT_RECORDS: Final = 50_000
_HELD_CHARS: Final = 1_000
"""What a sink may say about a batch; it is stored."""
_TRANSACTIONAL_ID: Final = "__eosdb.sink:"
_TRIES: Final = 20


class Part(NamedTuple):
    """Some records of a batch, laid out."""

    tp: TopicPartition
    records: list[Record]
    batch: PreparedBatch

    def halves(self, now_ms: int) -> tuple[Part, Part]:
        middle = len(self.records) // 2
        first, second = self.records[:middle], self.records[middle:]
        return _part(self.tp, first, now_ms), _part(self.tp, second, now_ms)


class OnceAppender(RequestHandler):
    """One per database. Threads may share it."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._requests = ProduceRequests(core)

    def append(
        self, sink_id: str, batch_id: int, batches: Batches, held: Collection[str]
    ) -> AppendOnceResult:
        """Append all of the batches, unless the sink has appended this one or a later one."""
        if check_text("sink_id", sink_id) == "":
            raise InvalidRequestError("sink_id: got an empty one, expected text")
        this = SinkBatch(sink_id, check_int("batch_id", batch_id, 0), _check_held(held))
        with self._store.read() as connection:
            if once.has_batch(connection, this):
                return AppendOnceResult(skipped=True, offsets={})
        parts = _parts(batches, self._clock.time_ms())
        first, is_all = _within_a_unit(parts)
        if is_all:
            return self._coordinator.write(lambda unit: self._in_unit(unit, this, first))
        return self._in_transaction(this, chain(first, parts))

    # -- in one unit ----------------------------------------------------------------------------

    def _in_unit(self, unit: Unit, this: SinkBatch, parts: list[Part]) -> AppendOnceResult:
        if once.has_batch(unit, this):
            return AppendOnceResult(skipped=True, offsets={})
        offsets: dict[TopicPartition, int] = {}
        for part in parts:
            self._authorizer.check(unit, "write", "topic", part.tp.topic)
            offset = self._append(unit, part)
            offsets.setdefault(part.tp, offset)
        self._remember(unit, this)
        return AppendOnceResult(skipped=False, offsets=offsets)

    def _append(self, unit: Unit, part: Part) -> int:
        """Append in halves, as long as a part is larger than the topic accepts. Returns the first
        offset."""
        partition = partition_rows.load(unit, part.tp)
        config = partition_rows.config(unit, partition.topic_id, self._config)
        now = self._clock.time_ms()
        if part.batch.size > config.max_message_bytes and len(part.records) > 1:
            first, second = part.halves(now)
            offset = self._append(unit, first)
            self._append(unit, second)
            return offset
        return log_append.append(unit, partition, part.batch, config, now).base_offset

    def _remember(self, unit: Unit, this: SinkBatch) -> None:
        # decisions/0014: the proof is stored with the records, or with the decision of their transaction.
        unit.record(SinkBatchAppended(timestamp=self._clock.time_ms(), **this._asdict()))

    # -- in a transaction -----------------------------------------------------------------------

    def _in_transaction(self, this: SinkBatch, parts: Iterable[Part]) -> AppendOnceResult:
        name = _TRANSACTIONAL_ID + this.sink_id
        me = self._begin(name)
        offsets: dict[TopicPartition, int] = {}
        sequences: dict[TopicPartition, int] = {}
        try:
            for part in parts:
                self._send(name, me, part, offsets, sequences)
            self._end(name, me, this)
        except _DoneMeanwhileError:
            self._abort(name, me)
            return AppendOnceResult(skipped=True, offsets={})
        except BaseException:
            self._abort(name, me)
            raise
        return AppendOnceResult(skipped=False, offsets=offsets)

    def _begin(self, name: str) -> ProducerIdAndEpoch:
        """Also fences an earlier attempt, and aborts what is left of it."""
        timeout_ms = self._config.transaction_max_timeout_ms
        for _ in range(_TRIES):
            try:
                return self._coordinator.init_producer_id(
                    name,
                    timeout_ms,
                    None,
                    self._may_transact(name),
                )
            except ConcurrentTransactionsError:
                continue
        raise ConcurrentTransactionsError(f"{name}: other processes keep it busy; try again")

    def _send(
        self,
        name: str,
        me: ProducerIdAndEpoch,
        part: Part,
        offsets: dict[TopicPartition, int],
        sequences: dict[TopicPartition, int],
    ) -> None:
        base_sequence = sequences.get(part.tp, 0)
        batch = RecordBatch(part.records, *me, base_sequence, is_transactional=True)
        version = self._config.transaction_version
        if version < 2:
            self._coordinator.add_to_transaction(
                name, *me, frozenset({part.tp}), frozenset(), lambda _: None
            )
        (result,) = self._requests.produce({part.tp: batch}, transactional_id=name).values()
        if isinstance(result.error, MessageTooLargeError) and len(part.records) > 1:
            for half in part.halves(self._clock.time_ms()):
                self._send(name, me, half, offsets, sequences)
            return
        if result.error is not None:
            raise result.error
        offsets.setdefault(part.tp, result.base_offset)
        sequences[part.tp] = base_sequence + len(part.records)

    def _end(self, name: str, me: ProducerIdAndEpoch, this: SinkBatch | None) -> None:
        """Commit the batch, or abort if there is none."""

        def remember(unit: Unit) -> None:
            if this is None:
                return
            if once.has_batch(unit, this):
                raise _DoneMeanwhileError
            self._remember(unit, this)

        self._coordinator.end_txn(
            name,
            *me,
            this is not None,
            self._config.transaction_version,
            lambda _: None,
            remember,
        )

    def _abort(self, name: str, me: ProducerIdAndEpoch) -> None:
        """A failure is left to the time-out, or to the next attempt."""
        with contextlib.suppress(ApiError, ProducerFencedError):
            self._end(name, me, None)


class _DoneMeanwhileError(Exception):
    """Another process has appended the batch."""


def _check_held(held: Collection[str]) -> tuple[str, ...]:
    """Raises InvalidRequestError."""
    if isinstance(held, str):
        raise InvalidRequestError("held: got text, expected a collection of texts")
    texts = tuple(check_text("held", text) for text in check_collection("held", held))
    if "" in texts or sum(map(len, texts)) > _HELD_CHARS:
        raise InvalidRequestError(
            f"held: expected texts that are not empty, {_HELD_CHARS} characters together at most"
        )
    return texts


def _parts(batches: Batches, now_ms: int) -> Iterator[Part]:
    """Raises InvalidRequestError, InvalidRecordError, InvalidTimestampError and
    UnknownTopicOrPartitionError."""
    pairs = batches.items() if isinstance(batches, Mapping) else batches
    for pair in check_collection("batches", pairs):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InvalidRequestError(
                f"batches: got {pair!r:.80}, expected pairs of a partition and its records"
            )
        tp = check_topic_partition(pair[0])
        given: Iterator[Any] = iter(check_collection(f"batches of {tp}", pair[1]))
        while records := list(islice(given, _PART_RECORDS)):
            yield _part(tp, records, now_ms)


def _part(tp: TopicPartition, records: list[Record], now_ms: int) -> Part:
    return Part(tp, records, prepare(RecordBatch(records), now_ms))


def _within_a_unit(parts: Iterator[Part]) -> tuple[list[Part], bool]:
    """As much as fits into one unit, and whether that is all."""
    taken: list[Part] = []
    size = count = 0
    for part in parts:
        taken.append(part)
        size += part.batch.size
        count += len(part.records)
        if size > _UNIT_BYTES or count > _UNIT_RECORDS:
            return taken, False
    return taken, True
