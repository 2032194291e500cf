"""The thread's side of an AsyncConsumer: polls, calls between polls, and the callbacks of a rebalance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any, Final, TypeAlias, TypeVar

from eosdb.aio.worker import Home, Inbox
from eosdb.client.consumer.consumer import Consumer
from eosdb.client.consumer.fetcher import OnChange, records_of
from eosdb.errors import IllegalStateError, WakeupError
from eosdb.model.records.columns import piece
from eosdb.model.values import ConsumerRecord, Key, OffsetAndMetadata, TopicPartition, Value

Records: TypeAlias = "list[ConsumerRecord]"


class Buffer:
    """Undelivered records by partition, each partition's in order."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, tuple[Records, int]] = {}
        """The records, and the number of delivered ones; at least one is left."""

    def add(self, polled: Mapping[TopicPartition, Records]) -> None:
        """Add records of partitions that have none in the buffer."""
        for tp, records in polled.items():
            self._waiting[tp] = (records, 0)

    def take_one(self, wanted: Collection[TopicPartition]) -> ConsumerRecord | None:
        """The next record of the wanted partitions, or of any if `wanted` is empty."""
        for tp in wanted or self._waiting:
            if tp in self._waiting:
                records, place = self._waiting[tp]
                if place + 1 == len(records):
                    del self._waiting[tp]
                else:
                    self._waiting[tp] = (records, place + 1)
                return records[place]
        return None

    def take(
        self, wanted: Collection[TopicPartition], limit: int | None
    ) -> dict[TopicPartition, Records]:
        """The next records of the wanted partitions, at most `limit` altogether."""
        taken: dict[TopicPartition, Records] = {}
        for tp in [tp for tp in wanted or self._waiting if tp in self._waiting]:
            records, place = self._waiting.pop(tp)
            end = len(records) if limit is None else min(len(records), place + limit)
            if end < len(records):
                self._waiting[tp] = (records, end)
            if limit is not None:
                limit -= end - place
            if end > place:
                taken[tp] = records if end - place == len(records) else records[place:end]
        return taken

    def first_offsets(self) -> dict[TopicPartition, int]:
        """The offset of each partition's first undelivered record."""
        return {tp: records[place].offset for tp, (records, place) in self._waiting.items()}

    def put_back(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Remove the records of these partitions, or of all. Returns the offsets at which to poll them
        again."""
        firsts = self.first_offsets()
        going = firsts.keys() if partitions is None else firsts.keys() & set(partitions)
        for tp in going:
            del self._waiting[tp]
        return {tp: firsts[tp] for tp in going}


T = TypeVar("T")
Found = dict[TopicPartition, Records]

_PIECE: Final = 500
"""The most records of one call into C, during which no other Python thread runs."""


class PolledConsumer(Consumer[Key, Value]):
    """A consumer whose positions and commits count only delivered records, not all polled ones."""

    undelivered: Mapping[TopicPartition, int] = {}
    """The offset of each partition's first undelivered record."""

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to be delivered."""
        first = self.undelivered.get(partition)
        return super().position(partition) if first is None else first

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        if offsets is None and self.undelivered:
            offsets = {
                tp: OffsetAndMetadata(self.undelivered.get(tp, cursor.position))
                for tp, cursor in self._cursors.items()
                if cursor.position is not None
            }
        super().commit(offsets)

    def put_back(self) -> None:
        """Seek back, so that the undelivered records are polled again."""
        for tp, offset in self.undelivered.items():
            if tp in self._cursors:
                self.seek(tp, offset)
        self.undelivered = {}

    def poll_records(
        self, timeout_ms: int, max_records: int | None, wanted: Collection[TopicPartition]
    ) -> Found:
        """Poll, and return records by partition; only of the wanted partitions, if there are any. Returns
        nothing after `wakeup`."""
        self.put_back()
        aside = self.assignment() - self.paused() - set(wanted) if wanted else set()
        self.pause(aside)
        try:
            polled = self.poll_columns(timeout_ms, max_records)
        except WakeupError:
            return {}
        finally:
            self.resume(aside & self.assignment())
        polled_records: Found = {}
        for part in polled:
            records = polled_records.setdefault(TopicPartition(part.topic, part.partition), [])
            for start in range(0, len(part), _PIECE):
                records += records_of([piece(part, start, start + _PIECE)])
        return polled_records


def with_undelivered(
    consumer: PolledConsumer,
    buffered: Mapping[TopicPartition, int],
    poll: Future[Found] | None,
    function: Callable[[], T],
) -> T:
    """Call the function with `consumer.undelivered` set to the first records in the buffer, and to those
    of a poll that was running when the call was queued."""
    polled = {} if poll is None or poll.exception() is not None else poll.result()
    before = consumer.undelivered
    consumer.undelivered = {tp: records[0].offset for tp, records in polled.items()} | dict(
        buffered
    )
    try:
        return function()
    finally:
        consumer.undelivered = before


_visit: ContextVar[tuple[Consumer, Inbox] | None] = ContextVar("eosdb_aio_visit", default=None)
"""The consumer that waits for the callback of this context, and the inbox of its thread."""


def is_called_back(consumer: Consumer) -> bool:
    """Whether this task is, or belongs to, a callback that this consumer waits for."""
    visit = _visit.get()
    return visit is not None and visit[0] is consumer and not visit[1].is_over


def ask(function: Callable[[], T]) -> Future[T]:
    """Have the thread that waits for this callback call the function."""
    visit = _visit.get()
    assert visit is not None
    return visit[1].post(function)


def on_the_loop(
    home: Home, consumer: Consumer, callback: Callable[[list[TopicPartition]], object]
) -> OnChange:
    """Wrap a function or coroutine function as a callback for a thread: the loop runs it, and the thread
    waits."""

    async def visit_loop(inbox: Inbox, tps: list[TopicPartition]) -> None:
        _visit.set((consumer, inbox))
        answer: Any = callback(tps)
        if isawaitable(answer):
            await answer

    def call(tps: list[TopicPartition]) -> None:
        inbox = Inbox()
        try:
            inbox.wait_for(visit_loop(inbox, tps), home.loop)
        except asyncio.CancelledError:
            raise IllegalStateError(
                "the event loop has ended before a callback of the rebalance had"
            ) from None

    return call
