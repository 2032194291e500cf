"""Records on their way: gathered into batches by partition, and the futures that wait for them.

One object exists per batch, one small one per record (its future). A batch is sealed when it is full;
sealed batches of a partition leave in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

from eosdb.errors import EosdbError
from eosdb.model import ProduceResult, Record, RecordMetadata, TopicPartition

OnDelivery: TypeAlias = "Callable[[EosdbError | None, RecordMetadata | None], object]"


class ProducerBatch:
    """Records of one partition that are sent together, and what became of them."""

    __slots__ = ("callbacks", "created_ms", "drive", "error", "records", "result", "size", "tp")

    def __init__(self, tp: TopicPartition, created_ms: int, drive: Callable[[], None]) -> None:
        self.tp = tp
        self.created_ms = created_ms
        self.drive = drive
        self.records: list[Record] = []
        self.size = 0
        self.callbacks: list[tuple[ProduceFuture, OnDelivery]] = []
        self.result: ProduceResult | None = None
        self.error: EosdbError | None = None

    @property
    def done(self) -> bool:
        return self.result is not None or self.error is not None

    def complete(self, result: ProduceResult) -> None:
        self.result = result
        self._call_back()

    def fail(self, error: EosdbError) -> None:
        self.error = error
        self._call_back()

    def _call_back(self) -> None:
        callbacks, self.callbacks = self.callbacks, []
        for future, call in callbacks:
            call(self.error, None if self.error else future.metadata())


class ProduceFuture:
    """The future of one record (the contract's `Future[RecordMetadata]`).

    `result()` sends what is still waiting, so it never hangs on a record that nobody flushes.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        return self._batch.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """The record's place once it is stored. Raises the error that kept it from being stored."""
        if not self._batch.done:
            self._batch.drive()
        if self._batch.error is not None:
            raise self._batch.error
        return self.metadata()

    def exception(self, timeout: float | None = None) -> EosdbError | None:
        """The error that kept the record from being stored, None when it is stored."""
        if not self._batch.done:
            self._batch.drive()
        return self._batch.error

    def add_done_callback(self, function: Callable[[ProduceFuture], object]) -> None:
        """Call `function(self)` when the record is stored or has failed; at once when it is."""
        if self._batch.done:
            function(self)
        else:
            self._batch.callbacks.append((self, lambda error, metadata: function(self)))

    def metadata(self) -> RecordMetadata:
        """Where the stored record is; only after `done()`."""
        batch, result = self._batch, self._batch.result
        assert result is not None
        timestamp = result.log_append_time
        if timestamp < 0:
            timestamp = batch.records[self._index].timestamp or 0
        offset = result.base_offset + self._index if result.base_offset >= 0 else -1
        return RecordMetadata(*batch.tp, offset, timestamp, result.duplicate)


class RecordAccumulator:
    """The batches that wait, per partition, oldest first."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._waiting: dict[TopicPartition, deque[ProducerBatch]] = {}
        self.buffered_bytes = 0

    def append(
        self,
        tp: TopicPartition,
        record: Record,
        size: int,
        now_ms: int,
        drive: Callable[[], None],
    ) -> ProducerBatch:
        """Put the record into the partition's newest batch, or into a new one when that is full."""
        queue = self._waiting.get(tp)
        if queue is None:
            queue = self._waiting[tp] = deque()
        if not queue or queue[-1].size + size > self._batch_size:
            queue.append(ProducerBatch(tp, now_ms, drive))
        batch = queue[-1]
        batch.records.append(record)
        batch.size += size
        self.buffered_bytes += size
        return batch

    def has_room(self, tp: TopicPartition) -> bool:
        """Whether a batch of the partition is waiting that is not full."""
        queue = self._waiting.get(tp)
        return queue is not None and len(queue) > 0 and queue[-1].size < self._batch_size

    def take_round(self) -> list[ProducerBatch]:
        """The oldest waiting batch of every partition."""
        return [queue.popleft() for queue in self._waiting.values() if queue]

    def taken(self, batches: list[ProducerBatch]) -> None:
        """The batches have been answered and wait no more."""
        self.buffered_bytes -= sum(batch.size for batch in batches)

    def oldest_ms(self) -> int | None:
        """When the oldest waiting batch was begun."""
        return min((queue[0].created_ms for queue in self._waiting.values() if queue), default=None)

    def drain(self) -> Iterator[ProducerBatch]:
        """Take everything out."""
        while batches := self.take_round():
            self.taken(batches)
            yield from batches
