"""The consumer for asyncio: aiokafka's calls, carried out in a thread of the consumer.

A poll belongs to the consumer, not to the waiting task. Its records go into a buffer, and stay there for
the next task if this one is cancelled. Positions and commits, also the commit at `stop`, count only
delivered records. The thread uses PolledConsumer, and the loop everything else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial, wraps
from inspect import isawaitable
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeAlias, TypeVar

from eosdb.aio.producer import with_metadata
from eosdb.aio.worker import Home, Inbox, Workers, behind
from eosdb.client.consumer.consumer import Consumer
from eosdb.client.consumer.fetcher import OnChange, records_of
from eosdb.errors import IllegalStateError, WakeupError
from eosdb.model.clock import Clock
from eosdb.model.records.columns import piece
from eosdb.model.validation import check_int
from eosdb.model.values import (
    ConsumerRecord,
    Key,
    OffsetAndMetadata,
    TopicPartition,
    Value,
)

P = ParamSpec("P")
T = TypeVar("T")
OnLoop = Callable[[list[TopicPartition]], object]

_SLICE_MS: Final = 1_000
"""The longest single poll; then the thread of an abandoned consumer ends."""
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
                "the event loop ended before a rebalance callback was done"
            ) from None

    return call


def _asking(
    method: Callable[Concatenate[PolledConsumer[Any, Any], P], T],
) -> Callable[Concatenate[AsyncConsumer[Any, Any], P], Coroutine[Any, Any, T]]:
    """Make a coroutine of a method that leaves the positions as they are."""

    @wraps(method)
    async def call(self: AsyncConsumer[Any, Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._ask(partial(method, self._consumer, *args, **kwargs))

    return call


class AsyncConsumer(Generic[Key, Value]):
    """Reads records of topics or partitions, alone or in a group. One task reads at a time; other tasks may
    call the other methods. Methods without a description are those of `Consumer`, as coroutines.

    `async with` starts and stops the consumer; `async for` iterates over its records, endlessly.
    """

    def __init__(
        self,
        home: Home,
        clock: Clock,
        consumer: PolledConsumer[Key, Value],
        topics: tuple[str, ...],
    ) -> None:
        self._home = home
        self._clock = clock
        self._consumer = consumer
        self._topics = topics
        self._worker = Workers(home, "consumer")
        self._buffer = Buffer()
        self._poll: Future[Found] | None = None
        """The poll whose records are not in the buffer yet."""
        self._polled: asyncio.Future[Found] | None = None
        self._unwanted: set[TopicPartition] | None = set()
        """Partitions whose records of the running poll must not be delivered; None: all."""
        self._failure: BaseException | None = None
        self._is_started = self._is_stopping = False
        self._stopped: Future[None] | None = None

    # -- from start to stop ---------------------------------------------------------------------

    async def start(self) -> None:
        """Subscribe to the topics given at creation, if any. Raises the errors of `subscribe`."""
        self._home.check()
        if self._is_started or self._stopped is not None:
            raise IllegalStateError("a consumer is started once; create another one")
        self._is_started = True
        if self._topics:
            try:
                await self.subscribe(self._topics)
            except BaseException:
                self.begin_to_stop()
                raise

    async def stop(self) -> None:
        """Commit if enable_auto_commit is set, revoke the partitions and leave the group; idempotent. A
        cancelled call still completes."""
        if self._stopped is None:
            self._home.check()
            if is_called_back(self._consumer):
                raise IllegalStateError("a rebalance callback must not stop its consumer")
        await self._worker.outlive(self.begin_to_stop())

    def begin_to_stop(self) -> Future[None]:
        """Have the thread close the consumer and end."""
        if self._stopped is None:
            self._is_stopping = True
            self._consumer.wakeup()
            self._stopped = self._submit(self._consumer.close)
            self._worker.end()
        return self._stopped

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        stopped = self.begin_to_stop()
        await behind(error, lambda: self._worker.outlive(stopped))

    # -- reading --------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Key, Value]:
        """Wait for the next record, of the given partitions or of all assigned ones, and return it. Raises
        the errors of `Consumer.poll`."""
        self._check()
        while True:
            await self._home.let_others_run()
            self._check_may_read()
            if (record := self._buffer.take_one(partitions)) is not None:
                return record
            await self._fill(_SLICE_MS, None, partitions)

    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[ConsumerRecord[Key, Value]]]:
        """Return the next records by partition, at most `max_records` altogether (default:
        max_poll_records), waiting at most `timeout_ms` for the first. Raises the errors of
        `Consumer.poll`."""
        if max_records is not None:
            check_int("max_records", max_records, 1)
        until = self._clock.monotonic_ms() + timeout_ms
        remaining, has_polled = timeout_ms, False
        while True:
            self._check_may_read()
            if found := self._buffer.take(partitions, max_records):
                return found
            if has_polled and remaining <= 0:
                return {}
            await self._fill(min(max(remaining, 0), _SLICE_MS), max_records, partitions)
            has_polled, remaining = True, until - self._clock.monotonic_ms()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord[Key, Value]:
        try:
            return await self.getone()
        except IllegalStateError:
            if self._stopped is not None:
                raise StopAsyncIteration from None
            raise

    # decisions/0043: a cancelled task does not end the poll in the thread; its records stay in the buffer.
    async def _fill(
        self, timeout_ms: int, limit: int | None, wanted: tuple[TopicPartition, ...]
    ) -> None:
        """Wait for the running poll, at most `timeout_ms`, or for a new one."""
        if (polled := self._polled) is not None:
            await asyncio.wait({polled}, timeout=timeout_ms / 1000)
            return
        # Undelivered records of other partitions go back, and a later poll returns them.
        back = self._buffer.put_back()
        poll = partial(self._consumer.poll_records, timeout_ms, limit, wanted)
        self._poll = self._worker.post(with_undelivered, self._consumer, back, None, poll)
        self._polled = polled = asyncio.wrap_future(self._poll, loop=self._home.loop)
        polled.add_done_callback(self._arrived)
        try:
            await asyncio.wait({polled})
        except asyncio.CancelledError:
            self._consumer.wakeup()
            raise

    def _arrived(self, polled: asyncio.Future[Found]) -> None:
        self._poll = self._polled = None
        unwanted, self._unwanted = self._unwanted, set()
        if polled.cancelled():
            return
        if (error := polled.exception()) is not None:
            self._failure = error
        elif unwanted is not None:
            found = polled.result()
            self._buffer.add({tp: found[tp] for tp in found if tp not in unwanted})

    # -- what to read ---------------------------------------------------------------------------

    async def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        on_assign: OnLoop | None = None,
        on_revoke: OnLoop | None = None,
        on_lost: OnLoop | None = None,
    ) -> None:
        """Like `Consumer.subscribe`. The callbacks are functions or coroutine functions. The loop calls
        them while the consumer waits; they may call all of its methods except those that return records."""
        callbacks = [
            None if given is None else on_the_loop(self._home, self._consumer, given)
            for given in (on_assign, on_revoke, on_lost)
        ]
        await self._reposition(None, lambda: self._consumer.subscribe(topics, *callbacks))

    async def unsubscribe(self) -> None:
        """Stop reading, and leave the group."""
        await self._reposition(None, self._consumer.unsubscribe)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without group assignment. Raises UnknownTopicOrPartitionError."""
        given = list(partitions)
        await self._reposition(None, lambda: self._consumer.assign(given))

    def assignment(self) -> set[TopicPartition]:
        """The partitions this consumer reads."""
        return self._consumer.assignment()

    async def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`."""
        await self._reposition(partitions, lambda: self._consumer.pause(partitions))

    async def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        await self._ask(lambda: self._consumer.resume(partitions))

    paused = _asking(PolledConsumer.paused)

    # -- positions ------------------------------------------------------------------------------

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`. Raises InvalidRequestError if the offset is negative."""
        await self._reposition([partition], lambda: self._consumer.seek(partition, offset))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the log start offset of the partitions, by default of all assigned ones."""
        await self._reposition(
            partitions or None, lambda: self._consumer.seek_to_beginning(partitions)
        )

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue at the end of the partitions (read_committed: the LSO), by default of all assigned
        ones."""
        await self._reposition(partitions or None, lambda: self._consumer.seek_to_end(partitions))

    position = _asking(PolledConsumer.position)
    position_offsets = _asking(PolledConsumer.position_offsets)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Commit offsets for the group, by default all positions, which count only delivered records. The
        offsets are durable when this returns. Raises the errors of `Consumer.commit`."""
        self._home.check_may_write()
        given = None if offsets is None else with_metadata(offsets)
        await self._ask(lambda: self._consumer.commit(given))

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without one are absent."""
        given = list(partitions)
        return await self._ask(lambda: self._consumer.committed(given))

    beginning_offsets = _asking(PolledConsumer.beginning_offsets)
    end_offsets = _asking(PolledConsumer.end_offsets)
    offsets_for_times = _asking(PolledConsumer.offsets_for_times)
    lag = _asking(PolledConsumer.lag)
    partitions_for = _asking(PolledConsumer.partitions_for)
    group_metadata = _asking(PolledConsumer.group_metadata)
    metrics = _asking(PolledConsumer.metrics)

    # -- small steps ----------------------------------------------------------------------------

    async def _ask(self, function: Callable[[], T]) -> T:
        """Call the function in the thread. It completes even if the task is cancelled, but then it waits
        for no further change."""
        self._check()
        is_left = False

        def unwoken() -> T:
            while True:
                try:
                    return function()
                except WakeupError:  # The wake-up was probably meant for a poll.
                    if is_left or self._is_stopping:
                        raise

        try:
            return await self._worker.outlive(self._submit(unwoken))
        except asyncio.CancelledError:
            is_left = True
            self._consumer.wakeup()
            raise
        except WakeupError:
            raise self._has_stopped() from None

    async def _reposition(
        self, partitions: Iterable[TopicPartition] | None, function: Callable[[], object]
    ) -> None:
        """Call a function that changes the positions of these partitions (None: of all). Their
        undelivered records are dropped, and polled again if the position does not change."""
        self._check()
        given = None if partitions is None else set(partitions)

        def put_back_first() -> None:
            kept = dict(self._consumer.undelivered)
            mine = {tp: kept.pop(tp) for tp in list(kept) if given is None or tp in given}
            self._consumer.undelivered = mine
            self._consumer.put_back()
            self._consumer.undelivered = kept
            function()

        called = self._submit(put_back_first)
        self._buffer.put_back(given)
        if self._unwanted is not None and self._poll is not None:
            self._unwanted = None if given is None else self._unwanted | given
        await self._worker.outlive(called)

    def _submit(self, function: Callable[[], T]) -> Future[T]:
        if is_called_back(self._consumer):
            return ask(function)
        if self._poll is not None:
            self._consumer.wakeup()
        buffered = self._buffer.first_offsets()
        return self._worker.post(with_undelivered, self._consumer, buffered, self._poll, function)

    def _check_may_read(self) -> None:
        self._check()
        if is_called_back(self._consumer):
            raise IllegalStateError(
                "a rebalance callback cannot wait for records: they arrive after it has returned"
            )
        if (failure := self._failure) is not None:
            self._failure = None
            raise failure

    def _check(self) -> None:
        if self._stopped is not None and not is_called_back(self._consumer):
            raise self._has_stopped()
        self._home.check()
        if not self._is_started:
            raise IllegalStateError(
                "the consumer has not been started; use `async with`, or await consumer.start()"
            )

    def _has_stopped(self) -> IllegalStateError:
        return IllegalStateError("the consumer has been stopped")
