"""Batches of unsent records by partition, and the futures of the records.

There is one object per batch, and a small one per record (its future). A batch gets its producer id,
epoch and sequence when it is first sent. A batch that has to be sent again returns to the front of its
queue (Kafka: RecordAccumulator, ProducerBatch).
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final, Protocol, TypeAlias

from eosdb.errors import EosdbError
from eosdb.model.clock import Clock
from eosdb.model.records.record_columns import RecordColumns
from eosdb.model.values import (
    Header,
    ProduceResult,
    ProducerIdAndEpoch,
    RecordBatch,
    RecordMetadata,
    TopicPartition,
)

OnDelivery: TypeAlias = "Callable[[EosdbError | None, RecordMetadata | None], object]"


class Drive(Protocol):
    """Sends the batches; the interface that futures use."""

    def until_answered(self, batch: ProducerBatch, timeout: float | None) -> None:
        """Send waiting batches until this batch is completed, or for at most `timeout` seconds."""

    def watch(self, future: ProduceFuture) -> None:
        """Send waiting batches in a background thread until the future is done."""


_SEQUENCES = 2**31


class ProducerBatch:
    """Records of one partition that are sent together, and their result."""

    __slots__ = (
        "attempts", "callbacks", "created_ms", "drive", "error", "identity", "in_doubt", "is_filling",
        "parts", "records", "result", "retry_at_ms", "serial", "size", "tp",
    )  # fmt: skip

    def __init__(self, tp: TopicPartition, created_ms: int, drive: Drive) -> None:
        self.tp = tp
        self.created_ms = created_ms
        self.drive = drive
        self.records = RecordColumns([], [], [])
        self.size = 0
        self.is_filling = False
        self.callbacks: list[tuple[ProduceFuture, OnDelivery]] = []
        self.result: ProduceResult | None = None
        self.error: EosdbError | None = None
        self.parts: tuple[ProducerBatch, ...] = ()
        self.identity: ProducerIdAndEpoch | None = None
        self.serial = -1
        """The first record's number in its epoch; the wire has this number modulo 2**31."""
        self.attempts = 0
        self.in_doubt = False
        """Whether an attempt got no response, so that the records may be stored."""
        self.retry_at_ms = 0

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp: int | None,
        size: int,
    ) -> ProduceFuture:
        """Append a record. This is atomic even if a signal raises or memory runs out: `timestamps`, which
        determines the length, is extended last, without a call in between (decisions/0018)."""
        records = self.records
        future: ProduceFuture = ProduceFuture()
        payload, timestamps, index = records.payload, records.timestamps, len(records.timestamps)
        future._batch, future._index = self, index
        if headers or records.headers:
            records.lay_headers((headers,) if headers else (), index)
        try:
            payload += (key, value)
            timestamps += (timestamp,)
        except MemoryError:
            records.cut(index)
            raise
        self.size += size
        return future

    @property
    def done(self) -> bool:
        if self.parts:
            return all(part.done for part in self.parts)
        return self.result is not None or self.error is not None

    def request(self, is_transactional: bool) -> RecordBatch:
        """The batch in the form of a produce request."""
        waits = self.tp.partition < 0
        if self.identity is None:
            return RecordBatch(self.records, is_scheduled=waits)
        return RecordBatch(
            self.records,
            *self.identity,
            self.serial % _SEQUENCES,
            is_transactional,
            is_scheduled=waits,
        )

    def split(self) -> tuple[ProducerBatch, ProducerBatch]:
        """Split the batch into two consecutive halves, with their futures and callbacks."""
        middle = len(self.records) // 2
        halves = (
            ProducerBatch(self.tp, self.created_ms, self.drive),
            ProducerBatch(self.tp, self.created_ms, self.drive),
        )
        for half, begin, end in zip(halves, (0, middle), (middle, len(self.records)), strict=True):
            half.records = self.records[begin:end]
            half.size = self.size * (end - begin) // len(self.records)
            half.attempts = self.attempts
        self.parts = halves
        for future, call in self.callbacks:
            future.place()[0].callbacks.append((future, call))
        self.callbacks = []
        return halves

    def call_back(self) -> None:
        """Call the delivery callbacks. An error in one does not prevent the others."""
        callbacks, self.callbacks = self.callbacks, []
        while callbacks:
            future, call = callbacks.pop(0)
            try:
                call(self.error, None if self.error else future.metadata())
            finally:
                self.callbacks = callbacks


_STATE: Final = frozenset(vars(Future[RecordMetadata]()))
"""The attributes of a `concurrent.futures.Future`."""
_making_state: Final = threading.Lock()


class ProduceFuture(Future[RecordMetadata]):
    """The future of one record. It cannot be cancelled, since the record is being sent.

    `result()` sends waiting batches, so it does not hang on a record that was not flushed. For the other
    ways to wait – `add_done_callback`, `asyncio.wrap_future`, `concurrent.futures.wait` and
    `as_completed` – a background thread of the producer sends the record.
    """

    __slots__ = ("_batch", "_index")

    # decisions/0006: most futures need only `result`, so other attributes are created at first use.
    # `ProducerBatch.append` sets these: with an `__init__` of its own, a future would cost twice as much.
    _batch: ProducerBatch
    _index: int
    __init__ = object.__init__

    def __getattr__(self, name: str) -> Any:
        """Create the attributes of a `concurrent.futures.Future` when one is first used."""
        if name not in _STATE:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        # Register the callback first: an interrupt must not leave a future that is never completed.
        self._watch()
        with _making_state:
            if name not in self.__dict__:
                Future.__init__(self)
        self.settle()
        return self.__dict__[name]

    def _watch(self) -> None:
        """Register `settle` as a callback of the batch. Takes no lock: locks of other futures may be
        held."""
        batch = self.place()[0]
        if batch.done:
            return
        batch.callbacks.append((self, self.settle))
        while batch.parts:  # The batch was split before the callback was added.
            batch = self.place()[0]
            batch.callbacks.append((self, self.settle))
        batch.drive.watch(self)

    def settle(self, *_: object) -> None:
        """Take over the batch's result, if it has one; idempotent."""
        batch = self.place()[0]
        if not batch.done:
            return
        with contextlib.suppress(InvalidStateError):
            if batch.error is None:
                self.set_result(self.metadata())
            else:
                self.set_exception(batch.error)

    def place(self) -> tuple[ProducerBatch, int]:
        """The record's current batch and its index there; both change when a batch is split."""
        while self._batch.parts:
            first, second = self._batch.parts
            if self._index < len(first.records):
                self._batch = first
            else:
                self._batch, self._index = second, self._index - len(first.records)
        return self._batch, self._index

    def done(self) -> bool:
        return self.place()[0].done

    def running(self) -> bool:
        return not self.done()

    def cancel(self) -> bool:
        """Return False: a record cannot be cancelled, except by aborting its transaction."""
        return False

    def cancelled(self) -> bool:
        return False

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is stored, at most `timeout` seconds, and return its metadata.

        Raises the error that kept the record from being stored, and RequestTimedOutError.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self.metadata()

    def exception(self, timeout: float | None = None) -> EosdbError | None:
        """Wait like `result`, and return the error that kept the record from being stored, or None."""
        while not (batch := self.place()[0]).done:
            batch.drive.until_answered(batch, timeout)
        return batch.error

    def metadata(self) -> RecordMetadata:
        """The metadata of the stored record; only after `done()`."""
        batch, index = self.place()
        result = batch.result
        assert result is not None
        timestamp = result.log_append_time
        if timestamp < 0:
            timestamp = batch.records.timestamps[index] or 0
        offset = result.base_offset + index if result.base_offset >= 0 else -1
        return RecordMetadata(*batch.tp, offset, timestamp, result.duplicate)

    def __repr__(self) -> str:
        batch = self.place()[0]
        state = "waiting" if not batch.done else batch.error or f"offset {self.metadata().offset}"
        return f"<ProduceFuture {batch.tp}: {state}>"


class RecordAccumulator:
    """The batches that wait to be sent, by partition, in the order in which they are sent."""

    def __init__(self, batch_size: int, most_bytes: int) -> None:
        self.batch_size: Final = batch_size
        self.most_bytes = most_bytes
        """The maximum size of a batch in bytes: `batch_size`, or more with a direct transport, so that
        all waiting records of a partition form one batch."""
        self._waiting: dict[TopicPartition, deque[ProducerBatch]] = {}
        self.buffered_bytes = 0

    def new_batch(self, tp: TopicPartition, clock: Clock, drive: Drive) -> ProducerBatch:
        """Return a new last batch of the partition; its other batches take no more records."""
        queue = self._waiting.setdefault(tp, deque())
        if queue:
            if queue[-1].is_filling and not queue[-1].records:
                return queue[-1]  # An interrupt left this batch empty; use it.
            queue[-1].is_filling = False
        batch = ProducerBatch(tp, clock.monotonic_ms(), drive)
        batch.is_filling = True
        queue += (batch,)  # Not `append`: no call, so no signal comes before it (decisions/0018).
        return batch

    def queues(self) -> list[tuple[TopicPartition, deque[ProducerBatch]]]:
        return [(tp, queue) for tp, queue in self._waiting.items() if queue]

    def take_first(self, tp: TopicPartition) -> ProducerBatch:
        batch = self._waiting[tp].popleft()
        self.buffered_bytes -= batch.size
        return batch

    def put_back(self, batch: ProducerBatch) -> None:
        """Return a batch to the front of its queue."""
        self._waiting.setdefault(batch.tp, deque()).appendleft(batch)
        self.buffered_bytes += batch.size

    def remove(self, batch: ProducerBatch) -> None:
        queue = self._waiting.get(batch.tp)
        if queue is not None and batch in queue:
            queue.remove(batch)
            batch.is_filling = False
            self.buffered_bytes -= batch.size

    def waiting(self) -> list[ProducerBatch]:
        """All waiting batches."""
        return [batch for queue in self._waiting.values() for batch in queue]

    def recount(self) -> None:
        """Recompute the bytes, after an interrupt between a change and its count."""
        self.buffered_bytes = sum(batch.size for batch in self.waiting())

    def __bool__(self) -> bool:
        return any(self._waiting.values())
