"""Records on their way: gathered into batches by partition, and the futures that wait for them.

One object exists per batch, one small one per record (its future). A batch gets its producer id, epoch
and sequence when it is first sent, never before; a batch that has to be sent again goes back to its
place by sequence, before everything that has none yet (Kafka: RecordAccumulator, ProducerBatch).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from eosdb.clock import Clock
from eosdb.errors import EosdbError
from eosdb.model.record_columns import RecordColumns
from eosdb.model.values import (
    Header,
    ProduceResult,
    ProducerIdAndEpoch,
    RecordBatch,
    RecordMetadata,
    TopicPartition,
)

OnDelivery: TypeAlias = "Callable[[EosdbError | None, RecordMetadata | None], object]"
Drive: TypeAlias = "Callable[[ProducerBatch, float | None], None]"
"""Sends what is waiting until the batch has been answered, or for at most that many seconds."""

_SEQUENCES = 2**31


class ProducerBatch:
    """Records of one partition that are sent together, and their result."""

    __slots__ = (
        "attempts", "callbacks", "created_ms", "drive", "error", "identity", "in_doubt", "is_filling",
        "is_sent", "parts", "records", "result", "retry_at_ms", "serial", "size", "tp",
    )  # fmt: skip

    def __init__(self, tp: TopicPartition, created_ms: int, drive: Drive) -> None:
        self.tp = tp
        self.created_ms = created_ms
        self.drive = drive
        self.records = RecordColumns([], [], [])
        self.size = 0
        self.is_filling = False
        """Waiting to be sent, and open for more records."""
        self.callbacks: list[tuple[ProduceFuture, OnDelivery]] = []
        self.result: ProduceResult | None = None
        self.error: EosdbError | None = None
        self.parts: tuple[ProducerBatch, ...] = ()
        self.identity: ProducerIdAndEpoch | None = None
        self.serial = -1
        """The first record's number in its epoch; the wire has it modulo 2**31."""
        self.attempts = 0
        self.in_doubt = False
        """Some attempt was never answered, so the records may be stored."""
        self.is_sent = False
        """Sent, and not answered yet."""
        self.retry_at_ms = 0

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp: int | None,
        size: int,
    ) -> ProduceFuture:
        """Add one record of `size` bytes."""
        future = ProduceFuture(self, len(self.records.timestamps))
        self.records.append(key, value, headers, timestamp)
        self.size += size
        return future

    @property
    def next_serial(self) -> int:
        return self.serial + len(self.records)

    @property
    def done(self) -> bool:
        if self.parts:
            return all(part.done for part in self.parts)
        return self.result is not None or self.error is not None

    def assign(self, identity: ProducerIdAndEpoch, serial: int) -> None:
        """Give the batch its identity, or another one because it cannot be stored under the old."""
        self.identity, self.serial = identity, serial

    def request(self, is_transactional: bool) -> RecordBatch:
        """What is sent."""
        if self.identity is None:
            return RecordBatch(self.records)
        return RecordBatch(self.records, *self.identity, self.serial % _SEQUENCES, is_transactional)

    def split(self) -> tuple[ProducerBatch, ProducerBatch]:
        """Two consecutive halves, with their futures and callbacks."""
        middle = len(self.records) // 2
        halves = (
            ProducerBatch(self.tp, self.created_ms, self.drive),
            ProducerBatch(self.tp, self.created_ms, self.drive),
        )
        for half, records in zip(
            halves, (self.records[:middle], self.records[middle:]), strict=True
        ):
            half.records = records
            half.size = self.size * len(records) // len(self.records)
            half.attempts = self.attempts
        if self.identity is not None:
            halves[0].assign(self.identity, self.serial)
            halves[1].assign(self.identity, self.serial + middle)
        self.parts = halves
        for future, call in self.callbacks:
            future.place()[0].callbacks.append((future, call))
        self.callbacks = []
        return halves

    def call_back(self) -> None:
        """Call the delivery callbacks; an error in one does not keep the others from being called."""
        callbacks, self.callbacks = self.callbacks, []
        while callbacks:
            future, call = callbacks.pop(0)
            try:
                call(self.error, None if self.error else future.metadata())
            finally:
                self.callbacks = callbacks


class ProduceFuture:
    """The future of one record (the contract's `Future[RecordMetadata]`).

    `result()` sends what is still waiting, so it never hangs on a record that was not flushed.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def place(self) -> tuple[ProducerBatch, int]:
        """The batch that the record is in now, and its place there: batches may be split."""
        while self._batch.parts:
            first, second = self._batch.parts
            if self._index < len(first.records):
                self._batch = first
            else:
                self._batch, self._index = second, self._index - len(first.records)
        return self._batch, self._index

    def done(self) -> bool:
        return self.place()[0].done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """The record's place once it is stored; waits at most `timeout` seconds.

        Raises the error that kept it from being stored, and RequestTimedOutError.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self.metadata()

    def exception(self, timeout: float | None = None) -> EosdbError | None:
        """The error that kept the record from being stored, None when it is stored."""
        while not (batch := self.place()[0]).done:
            batch.drive(batch, timeout)
        return batch.error

    def add_done_callback(self, function: Callable[[ProduceFuture], object]) -> None:
        """Call `function(self)` when the record is stored or has failed; at once if that is the case
        already."""
        batch, _ = self.place()
        if batch.done:
            function(self)
        else:
            batch.callbacks.append((self, lambda error, metadata: function(self)))

    def metadata(self) -> RecordMetadata:
        """Where the stored record is; only after `done()`."""
        batch, index = self.place()
        result = batch.result
        assert result is not None
        timestamp = result.log_append_time
        if timestamp < 0:
            timestamp = batch.records.timestamps[index] or 0
        offset = result.base_offset + index if result.base_offset >= 0 else -1
        return RecordMetadata(*batch.tp, offset, timestamp, result.duplicate)


class RecordAccumulator:
    """The batches that wait to be sent, per partition: those with a sequence first, then by age."""

    def __init__(self, batch_size: int, most_bytes: int) -> None:
        self.batch_size: Final = batch_size
        self.most_bytes = most_bytes
        """The maximum size of a batch: `batch_size`, or more if there is no network to keep busy, so that
        everything waiting for a partition is sent as one batch."""
        self._waiting: dict[TopicPartition, deque[ProducerBatch]] = {}
        self._count = 0
        self.buffered_bytes = 0

    def new_batch(self, tp: TopicPartition, clock: Clock, drive: Drive) -> ProducerBatch:
        """A new last batch of the partition; the others take no more records."""
        queue = self._waiting.get(tp)
        if queue is None:
            queue = self._waiting[tp] = deque()
        elif queue:
            if queue[-1].is_filling and not queue[-1].records:
                return queue[-1]  # An interrupt came before its first record.
            queue[-1].is_filling = False
        batch = ProducerBatch(tp, clock.monotonic_ms(), drive)
        batch.is_filling = True
        # No call from here on: a signal could come between (decisions/0018).
        queue += (batch,)
        self._count += 1
        return batch

    def queues(self) -> list[tuple[TopicPartition, deque[ProducerBatch]]]:
        """What waits, by partition; never an empty queue."""
        return [(tp, queue) for tp, queue in self._waiting.items() if queue]

    def is_full(self, queue: deque[ProducerBatch]) -> bool:
        """Whether the first batch of the queue gains nothing by waiting."""
        return len(queue) > 1 or queue[0].size >= self.batch_size

    def take_first(self, tp: TopicPartition) -> ProducerBatch:
        batch = self._waiting[tp].popleft()
        self._count -= 1
        batch.is_filling = False
        self.buffered_bytes -= batch.size
        return batch

    def put_back(self, batch: ProducerBatch) -> None:
        """Return a batch that was taken to its place: by sequence, before those that have none."""
        queue = self._waiting.setdefault(batch.tp, deque())
        self.buffered_bytes += batch.size
        self._count += 1
        place = 0
        if batch.serial >= 0:
            while place < len(queue) and 0 <= queue[place].serial < batch.serial:
                place += 1
        queue.insert(place, batch)

    def remove(self, batch: ProducerBatch) -> None:
        """Take a batch out, wherever it waits."""
        queue = self._waiting.get(batch.tp)
        if queue is not None and batch in queue:
            queue.remove(batch)
            self._count -= 1
            batch.is_filling = False
            self.buffered_bytes -= batch.size

    def waiting(self) -> Iterator[ProducerBatch]:
        """Every batch that waits."""
        for queue in self._waiting.values():
            yield from queue

    def recount(self) -> None:
        """Recompute the counts, after an interrupt between a change and its count."""
        self._count = sum(map(len, self._waiting.values()))
        self.buffered_bytes = sum(batch.size for batch in self.waiting())

    def __bool__(self) -> bool:
        return self._count > 0
