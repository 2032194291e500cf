"""The queue of all writes of a loop's tasks, and the thread that empties it.

Items queued while the thread works form its next round. In a round each producer's calls keep their order,
and its records are sent by one flush, so that many tasks that each wait for one record share commits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Generic, Protocol, TypeVar

from eosdb.aio.worker import Home, Workers, outlived
from eosdb.errors import EosdbError

T = TypeVar("T")

_MOST_RECORDS: Final = 1_000
"""The most records in the queue. A task that sends without waiting blocks when it is full."""
_MOST_BYTES: Final = 16_777_216
_PIECE: Final = 250
"""The most results that one step of the loop delivers."""


class QueuedItem(Generic[T]):
    """A queued call or record, and its result."""

    __slots__ = ("error", "future", "is_answered", "result")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[T] = loop.create_future()
        self.result: T | None = None
        self.error: BaseException | None = None
        self.is_answered = False
        """Whether there is a result or an error; set in the thread, before the loop delivers it."""

    def answer(self, result: T | None, error: BaseException | None) -> None:
        """Set the result or the error. Runs on the writer's thread."""
        self.result, self.error, self.is_answered = result, error, True

    def hand_over(self) -> None:
        """Deliver the result to the waiting task. Runs on the loop."""
        if self.future.done():
            return  # The waiting task was cancelled, so nobody needs the result.
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]


class QueuedCall(QueuedItem[T]):
    """A queued call of a function."""

    __slots__ = ("_function",)

    def __init__(self, loop: asyncio.AbstractEventLoop, function: Callable[[], T]) -> None:
        super().__init__(loop)
        self._function = function

    def run(self) -> None:
        try:
            self.answer(self._function(), None)
        except BaseException as error:  # The error is raised again in the waiting task.
            self.answer(None, error)


class Owner(Protocol):
    """Carries out its items in order."""

    def work(self, items: Sequence[QueuedItem[Any]]) -> None:
        """Carry out the items and set their results. Runs on the writer's thread."""


class Caller:
    """The owner of calls that need no producer."""

    def work(self, items: Sequence[QueuedItem[Any]]) -> None:
        for item in items:
            assert isinstance(item, QueuedCall)
            item.run()


class WriterQueue:
    """The queue and its thread. Public methods run on the loop; `_empty` runs on the thread."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._workers = Workers(home, "writer")
        self._queue: deque[tuple[Owner, QueuedItem[Any], int]] = deque()
        self._is_asked = False
        """Whether the thread was asked to empty the queue, and has not begun yet."""
        self._records = self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    async def room(self) -> None:
        """Wait until the queue has room for records."""
        while not self._room.is_set():
            await self._room.wait()

    def put(self, owner: Owner, item: QueuedItem[T], size: int = 0) -> asyncio.Future[T]:
        """Queue an item; a record has a size, in bytes."""
        self._queue.append((owner, item, size))
        if not self._is_asked:
            self._is_asked = True
            try:
                self._workers.post(self._empty)
            except EosdbError:  # No thread could be started: take the item back.
                self._is_asked = False
                self._queue.pop()
                raise
        if size:
            self._records += 1
            self._bytes += size
            if self._records >= _MOST_RECORDS or self._bytes >= _MOST_BYTES:
                self._room.clear()
        return item.future

    def call(self, owner: Owner, function: Callable[[], T]) -> asyncio.Future[T]:
        """Queue a call, which is made even if no task waits for it any more."""
        return self.put(owner, QueuedCall(self._home.loop, function))

    async def acquire(self, owner: Owner, make: Callable[[], T], undo: Callable[[T], object]) -> T:
        """Queue a call of `make`. If the task is cancelled, the owner's next call undoes the result."""
        call = QueuedCall(self._home.loop, make)
        result = self.put(owner, call)
        try:
            return await outlived(result)
        except (asyncio.CancelledError, GeneratorExit):
            self.put(owner, QueuedCall(self._home.loop, lambda: _undo(call, undo)))
            raise

    def emptied(self) -> Future[None]:
        """A future for a waiting thread; it is done when all queued items are done."""
        return self._workers.post(self._empty)

    def end(self) -> None:
        self._workers.end()

    # -- the thread -----------------------------------------------------------------------------

    # decisions/0043: only this thread runs calls. A round takes those queued during the round before.
    def _empty(self) -> None:
        self._is_asked = False  # Reset first, so that an item queued from now on wakes the thread.
        queue = self._queue
        while queue:
            items: dict[Owner, list[QueuedItem[Any]]] = {}
            records = size = 0
            for _ in range(len(queue)):
                owner, item, item_size = queue.popleft()
                items.setdefault(owner, []).append(item)
                records += item_size > 0
                size += item_size
            for owner, its_items in items.items():
                try:
                    owner.work(its_items)
                except BaseException as error:
                    for item in its_items:
                        if not item.is_answered:
                            item.answer(None, error)
                self._hand_over(its_items)
            self._tell(self._make_room, records, size)

    def _hand_over(self, items: Sequence[QueuedItem[Any]]) -> None:
        for start in range(0, len(items), _PIECE):
            self._tell(_hand_over, items[start : start + _PIECE])

    def _tell(self, function: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed, so no task waits.
            self._home.loop.call_soon_threadsafe(function, *args)

    def _make_room(self, records: int, size: int) -> None:
        self._records -= records
        self._bytes -= size
        if self._records < _MOST_RECORDS and self._bytes < _MOST_BYTES:
            self._room.set()


def _hand_over(items: Sequence[QueuedItem[Any]]) -> None:
    for item in items:
        item.hand_over()


def _undo(call: QueuedCall[T], undo: Callable[[T], object]) -> None:
    if call.error is None:
        undo(call.result)  # type: ignore[arg-type]
