"""The threads that work for an event loop, and what a cancelled task leaves behind in them.

Nothing here blocks the loop: work is queued, and its results come back as futures of the loop. A thread
cannot be interrupted, so each way of waiting says what a cancellation means: `run` leaves what has begun
to itself, `acquire` undoes it, `to_the_end` waits for it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from eosdb.errors import DatabaseClosedError, IllegalStateError, StorageError
from eosdb.model import threads
from eosdb.model.clock import SystemClock

P = ParamSpec("P")
T = TypeVar("T")

_TURN_MS: Final = 2
"""How long a task sends, or takes buffered records, before other tasks have their turn."""
_LOOK_S: Final = 1.0
"""How often somebody looks whether the loop has been closed with something open."""


class Home:
    """The event loop and the process that an open database belongs to."""

    def __init__(self) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self.is_closed = False
        self.holder: asyncio.Task[object] | None = None
        """The task that is inside a block of `db.begin()`."""
        self._process = os.getpid()
        self._clock = SystemClock()
        self._turn_began_ms = 0
        self._pools = weakref.WeakSet[ThreadPoolExecutor]()
        self._ended = threading.Event()
        with threads.needed("the event loop"):
            threading.Thread(
                target=_end_with_the_loop,
                args=(weakref.ref(self.loop), self._pools, self._ended),
                name="eosdb-aio-loop",
                daemon=True,
            ).start()

    def pool(self, name: str, count: int) -> ThreadPoolExecutor:
        """Threads that end with the loop at the latest."""
        made = ThreadPoolExecutor(count, f"eosdb-aio-{name}")
        self._pools.add(made)
        return made

    def end(self) -> None:
        """Nothing is open any more."""
        self._ended.set()

    def check(self) -> None:
        """Raises IllegalStateError in another process or event loop, and DatabaseClosedError."""
        if os.getpid() != self._process:
            raise IllegalStateError(
                "this database was opened before this process was forked, and its threads are not here; "
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
        """Also raises IllegalStateError in the task that holds the write lock, for which it would wait."""
        self.check()
        if self.holder is not None and self.holder is asyncio.current_task():
            raise IllegalStateError(
                "this task is inside a block of db.begin(), which is the one writer; write with "
                "tx.publish, tx.commit_offsets and tx.run, or after the block"
            )

    async def let_others_run(self) -> None:
        """For a task that could go on for long without waiting: now and then others have their turn."""
        if self._clock.monotonic_ms() - self._turn_began_ms >= _TURN_MS:
            await asyncio.sleep(0)
            self._turn_began_ms = self._clock.monotonic_ms()


def _end_with_the_loop(
    loop: weakref.ref[asyncio.AbstractEventLoop],
    pools: weakref.WeakSet[ThreadPoolExecutor],
    ended: threading.Event,
) -> None:
    """A loop that is closed tells nobody. What was open in it is garbage then, some time to be collected;
    its threads do not wait for that."""
    while not ended.wait(_LOOK_S):
        its = loop()
        if its is None or its.is_closed():
            for pool in list(pools):
                pool.shutdown(wait=False)
            return
        del its


class Workers:
    """Threads, as a rule one, that do what they are given in order."""

    def __init__(self, home: Home, name: str, count: int = 1) -> None:
        self._home = home
        self._pool = home.pool(name, count)

    def submit(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Queue a call. Cancelling the future prevents a call that has not begun, and nothing else."""
        return asyncio.wrap_future(self.post(function, *args, **kwargs), loop=self._home.loop)

    def post(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call for whose result the loop does not wait. Raises StorageError when there is no thread
        to be had, and DatabaseClosedError; then the call is not made."""
        done = Future[T]()

        def call() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(function(*args, **kwargs))
                except BaseException as error:
                    done.set_exception(error)

        try:
            with threads.needed("the event loop"):
                self._pool.submit(call)
        except (RuntimeError, StorageError):
            if self._home.is_closed:
                raise self._home.closed() from None
            if done.cancel():  # Else another thread has taken it from the queue.
                raise
        return done

    async def outlive(self, done: Future[T]) -> T:
        """The result of what goes on even if the task that waits for it is cancelled."""
        return await outlived(asyncio.wrap_future(done, loop=self._home.loop))

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it. A cancelled task leaves what has begun to itself."""
        return await self.submit(function, *args, **kwargs)

    async def acquire(self, make: Callable[[], T], undo: Callable[[T], object]) -> T:
        """Make something; for a cancelled task it is not made, or undone as soon as it is."""
        made = self.post(make)
        try:
            return await self.outlive(made)
        except (asyncio.CancelledError, GeneratorExit):
            if not made.cancel():
                self.post(_undo, made, undo)
            raise

    def end(self) -> None:
        """End the threads when everything queued is done."""
        self._pool.shutdown(wait=False)


def _undo(made: Future[T], undo: Callable[[T], object]) -> None:
    if made.exception() is None:
        undo(made.result())


async def outlived(future: asyncio.Future[T]) -> T:
    """The result of what goes on even if the task that waits for it is cancelled.

    That is `asyncio.shield`, which however complains about errors that nobody waits for any more.
    """
    try:
        await asyncio.wait({future})
    except (asyncio.CancelledError, GeneratorExit):
        future.add_done_callback(_retrieve)
        raise
    return future.result()


def _retrieve(future: asyncio.Future[T]) -> None:
    if not future.cancelled():
        future.exception()


async def to_the_end(future: asyncio.Future[T]) -> T:
    """The result of what is not left before its outcome is known. A cancellation takes effect then."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from (None if future.cancelled() else future.exception())
    return future.result()


async def to_the_end_of_a_block(left: asyncio.Future[T], error: BaseException | None) -> None:
    """Wait until a block that ended with `error`, if any, has been left. What leaving raises gives way to a
    cancellation."""
    if isinstance(error, GeneratorExit):
        return  # The loop is no more; the thread does it.
    try:
        await to_the_end(left)
    except Exception:
        if not isinstance(error, asyncio.CancelledError):
            raise
