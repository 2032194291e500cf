"""The worker threads of an event loop, and the effects of cancelling a task that waits for a thread.

Nothing here blocks the loop: calls are queued, and their results are futures of the loop. A thread cannot
be interrupted, so there are three ways to wait. After a cancellation, `run` lets a begun call continue,
`acquire` undoes it, and `to_the_end` waits for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from eosdb.errors import (
    DatabaseClosedError,
    EosdbError,
    IllegalStateError,
    InvalidRequestError,
    StorageError,
)
from eosdb.model import threads
from eosdb.model.clock import SystemClock
from eosdb.model.closing import put_behind
from eosdb.model.threads import Thread

P = ParamSpec("P")
T = TypeVar("T")

_TURN_MS: Final = 2
"""How long a task may send, or take buffered records, before it yields to other tasks."""
LOOK_S: Final = 1.0
"""The time between two checks whether the loop was closed."""


class Stoppable(Protocol):
    ended: Future[Any] | None
    """Done when it has ended; None if it has not begun."""

    def stop(self) -> None:
        """Make the object end soon; any thread may call this."""


class Home:
    """The event loop and the process that an open database belongs to."""

    def __init__(self) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self.is_closed = False
        self.inside: Final = set[asyncio.Task[Any]]()
        """The tasks inside a block of `db.begin()`, and those of handlers with a transaction."""
        self._process = os.getpid()
        self._clock = SystemClock()
        self._turn_began_ms = 0
        self._pools = weakref.WeakSet[ThreadPoolExecutor]()
        self.stoppable: Final = weakref.WeakSet[Stoppable]()
        """Objects that run in a thread until they are stopped."""
        self._ended = threading.Event()
        args = weakref.ref(self.loop), self._pools, self.stoppable, self._ended
        Thread("the event loop", "eosdb-aio-loop", _end_with_the_loop, *args).start()

    def pool(self, name: str, count: int) -> ThreadPoolExecutor:
        """Create a pool of threads, which end with the loop at the latest."""
        pool = ThreadPoolExecutor(count, f"eosdb-aio-{name}")
        self._pools.add(pool)
        return pool

    def end(self) -> None:
        self._ended.set()

    def check(self) -> None:
        """Check that the database may be used here. Raises IllegalStateError in another process or event
        loop, and DatabaseClosedError."""
        if os.getpid() != self._process:
            raise IllegalStateError(
                "this database was opened before this process was forked, which has none of its threads; "
                "call eosdb.aio.connect in this process"
            )
        if asyncio.get_running_loop() is not self.loop:
            raise IllegalStateError(
                "this database belongs to another event loop; call eosdb.aio.connect in this one"
            )
        if self.is_closed:
            raise self.closed()

    def closed(self) -> DatabaseClosedError:
        return DatabaseClosedError("the database has been closed")

    def check_may_write(self) -> None:
        """Like `check`. Also raises IllegalStateError in the task that holds the write lock, which would
        wait for itself."""
        self.check()
        if self.inside and asyncio.current_task() in self.inside:
            raise IllegalStateError(
                "this task is inside a block of db.begin(), or a handler with a transaction, which holds "
                "the write lock; write with tx.publish, tx.commit_offsets and tx.run, or after its end"
            )

    async def let_others_run(self) -> None:
        """Yield to other tasks from time to time, in a task that could run for long without waiting."""
        if self._clock.monotonic_ms() - self._turn_began_ms >= _TURN_MS:
            await asyncio.sleep(0)
            self._turn_began_ms = self._clock.monotonic_ms()


def _end_with_the_loop(
    loop: weakref.ref[asyncio.AbstractEventLoop],
    pools: weakref.WeakSet[ThreadPoolExecutor],
    stoppable: weakref.WeakSet[Stoppable],
    ended: threading.Event,
) -> None:
    """Poll until the loop is closed, then end its threads. A loop has no callback for its end, and garbage
    collection would come too late."""
    while not ended.wait(LOOK_S):
        its = loop()
        if its is None or its.is_closed():
            for each in list(stoppable):
                each.stop()
            for pool in list(pools):
                pool.shutdown(wait=False)
            return
        del its


class Workers:
    """Threads, usually one, that carry out queued calls in order."""

    def __init__(self, home: Home, name: str, count: int = 1) -> None:
        self._home = home
        self._pool = home.pool(name, count)

    def submit(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Queue a call. Cancelling the future prevents the call if it has not begun."""
        return asyncio.wrap_future(self.post(function, *args, **kwargs), loop=self._home.loop)

    def post(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call without waiting for its result. Raises StorageError if no thread can be started,
        and DatabaseClosedError; then the call is not made."""
        done, call = deferred(function, *args, **kwargs)
        self._queue(done, call)
        return done

    def _queue(self, done: Future[T], call: Callable[[], None]) -> None:
        try:
            with threads.needed("the event loop"):
                self._pool.submit(call)
        except (RuntimeError, StorageError):
            if self._home.is_closed:
                raise self._home.closed() from None
            if done.cancel():  # This fails if another thread runs the call already.
                raise

    async def outlive(self, done: Future[T]) -> T:
        """Wait for a call that continues even if the waiting task is cancelled."""
        return await outlived(asyncio.wrap_future(done, loop=self._home.loop))

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function in a thread. If the task is cancelled, a call that has begun continues."""
        return await self.submit(function, *args, **kwargs)

    async def acquire(self, make: Callable[[], T], undo: Callable[[T], object]) -> T:
        """Call `make` in a thread. If the task is cancelled, or a signal's exception hits it, `make` is not
        called, or its result is undone."""
        result, call = deferred(make)
        try:
            self._queue(result, call)
            return await self.outlive(result)
        except BaseException:
            if not result.cancel():
                self.post(_undo, result, undo)
            raise

    def end(self) -> None:
        self._pool.shutdown(wait=False)


def deferred(
    function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> tuple[Future[T], Callable[[], None]]:
    """Return a future, and the function that makes the call and completes the future."""
    done = Future[T]()

    def call() -> None:
        if done.set_running_or_notify_cancel():
            try:
                done.set_result(function(*args, **kwargs))
            except BaseException as error:
                done.set_exception(error)

    return done, call


class Inbox:
    """Runs calls in a thread that waits for a coroutine of the loop."""

    def __init__(self) -> None:
        self._calls: Final = queue.SimpleQueue[Callable[[], object]]()
        self.is_over = False
        """Whether the coroutine has ended; set and read in the loop's thread."""

    def post(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have the thread call the function. The coroutine must not be over."""
        done, call = deferred(function, *args, **kwargs)
        self._calls.put(call)
        return done

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function in the thread. Raises InvalidRequestError when the coroutine is over."""
        if self.is_over:
            raise InvalidRequestError(
                "the handler has returned, and its transaction is over; use `tx` only while it runs"
            )
        return await asyncio.wrap_future(self.post(function, *args, **kwargs))

    def wait_for(self, coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
        """Run calls until the coroutine is done, and return its result. Raises asyncio.CancelledError if
        it was cancelled, or the loop is closed."""
        if loop.is_closed():
            coroutine.close()
            raise asyncio.CancelledError
        awaited = asyncio.run_coroutine_threadsafe(coroutine, loop)
        awaited.add_done_callback(self._end)
        while not (self.is_over and self._calls.empty()):
            try:
                self._calls.get(timeout=LOOK_S)()
            except queue.Empty:
                if loop.is_closed():
                    raise asyncio.CancelledError from None
        try:
            return awaited.result()
        except concurrent.futures.CancelledError:
            # This class is a BaseException: an Exception would count as a failure of the record.
            raise asyncio.CancelledError from None

    def _end(self, _: object) -> None:
        self.is_over = True
        self._calls.put(lambda: None)


def _undo(result: Future[T], undo: Callable[[T], object]) -> None:
    if result.exception() is None:
        undo(result.result())


async def outlived(future: asyncio.Future[T]) -> T:
    """Wait for a future that continues even if the waiting task is cancelled. Unlike `asyncio.shield`, it
    does not log errors that no task waits for any more."""
    try:
        await asyncio.wait({future})
    except (asyncio.CancelledError, GeneratorExit):
        future.add_done_callback(_retrieve)
        raise
    return future.result()


def _retrieve(future: asyncio.Future[T]) -> None:
    if not future.cancelled():
        future.exception()


async def behind(error: BaseException | None, closed: Callable[[], Awaitable[object]]) -> None:
    """Wait for the function that closes an object at the end of a block that raised `error`. Does not wait
    if the block's generator is closed."""
    if isinstance(error, GeneratorExit):
        return
    try:
        await closed()
    except EosdbError as failure:
        put_behind(error, failure)


async def to_the_end(
    future: asyncio.Future[T], cancelled: asyncio.CancelledError | None = None
) -> T:
    """Wait until the future is done, even if the task is cancelled, or was before; the cancellation takes
    effect then."""
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from (None if future.cancelled() else future.exception())
    return future.result()


async def to_the_end_of_a_block(left: asyncio.Future[T], error: BaseException | None) -> None:
    """Wait until a block has been left; `error` is the error that ended the block, if any. A cancellation
    of the task is raised instead of errors of leaving."""
    if isinstance(error, GeneratorExit):
        return  # The loop is closed and cannot wait; the thread leaves the block by itself.
    try:
        await to_the_end(left)
    except Exception:
        if not isinstance(error, asyncio.CancelledError):
            raise
