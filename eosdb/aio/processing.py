"""`await db.process(…)`: the processor in a thread of its own, whose handlers run in the event loop.

The thread that waits for a handler's coroutine carries out the coroutine's calls of its transaction, so a
unit has one thread from begin to commit.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import queue
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from eosdb.aio.block import AsyncUserTransaction
from eosdb.aio.worker import LOOK_S, Home, Workers, deferred, outlived, to_the_end
from eosdb.broker.outbox import UserTransaction
from eosdb.client.processor.handlers import Result, Results, is_asynchronous, takes_transaction
from eosdb.client.processor.processor import Processor
from eosdb.errors import InvalidRequestError
from eosdb.model.reports import ProcessReport
from eosdb.model.values import ConsumerRecord, Key, Value

P = ParamSpec("P")
T = TypeVar("T")
Outcome: TypeAlias = Awaitable[Results] | AsyncIterator[Result]
AsyncHandlers: TypeAlias = (
    Callable[[ConsumerRecord[Key, Value]], Outcome | Results]
    | Callable[[ConsumerRecord[Key, Value], AsyncUserTransaction], Outcome]
    | Callable[[list[ConsumerRecord[Key, Value]]], Outcome | Results]
    | Callable[[list[ConsumerRecord[Key, Value]], AsyncUserTransaction], Outcome]
)
"""Handlers of `AsyncDatabase.process`: `async def` functions, or plain ones."""


class Inbox:
    """Runs calls in a thread that waits for a coroutine."""

    def __init__(self) -> None:
        self._calls: Final = queue.SimpleQueue[Callable[[], object]]()
        self._is_over = False

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function in the thread. Raises InvalidRequestError when the coroutine is over."""
        if self._is_over:
            raise InvalidRequestError(
                "the handler has returned, and its transaction is over; use `tx` only while it runs"
            )
        done, call = deferred(function, *args, **kwargs)
        self._calls.put(call)
        return await asyncio.wrap_future(done)

    def wait_for(self, awaited: Future[T], loop: asyncio.AbstractEventLoop) -> T:
        """Run calls until the coroutine is done, and return its result. Raises asyncio.CancelledError if
        it was cancelled, or the loop is closed."""
        awaited.add_done_callback(self._end)
        while not (self._is_over and self._calls.empty()):
            try:
                self._calls.get(timeout=LOOK_S)()
            except queue.Empty:
                if loop.is_closed():
                    raise asyncio.CancelledError from None
        try:
            return awaited.result()
        except concurrent.futures.CancelledError:
            # No Exception, which would fail the record.
            raise asyncio.CancelledError from None

    def _end(self, _: object) -> None:
        self._is_over = True  # In the loop's thread, where `run` reads it.
        self._calls.put(lambda: None)


class Processing:
    """One call of `process`."""

    def __init__(self, home: Home, handler: Callable[..., Any]) -> None:
        self._home = home
        self._handler = handler
        self._workers = Workers(home, "processor")
        self._processor: Processor | None = None
        self._task: asyncio.Task[Any] | None = None
        """The task of the user's handler."""
        self._is_stopping = False
        self.ended: Future[Any] | None = None
        """Done when the processor has left its group."""

    async def run(
        self, make: Callable[[Callable[..., Any]], Processor], until_idle_ms: int | None
    ) -> ProcessReport:
        """Run the processor that `make` returns for a handler. If the task is cancelled, so is the user's
        handler; this waits for the end of its transaction."""

        def run() -> ProcessReport:
            self._processor = processor = make(self._called())
            if self._is_stopping:
                processor.stop()
            return processor.run(until_idle_ms)

        try:
            self.ended = self._workers.post(run)
            ended = asyncio.wrap_future(self.ended, loop=self._home.loop)
            try:
                return await outlived(ended)
            except asyncio.CancelledError as cancelled:
                if ended.done() and self._home.is_closed:
                    raise self._home.closed() from None
                self.stop()
                return await to_the_end(ended, cancelled)
        finally:
            self._workers.end()

    def stop(self) -> None:
        """Make the processor end, and cancel the user's handler. Call it in the loop's thread, or when
        the loop is closed."""
        self._is_stopping = True
        if self._processor is not None:
            self._processor.stop()
        if self._task is not None and not self._home.loop.is_closed():
            self._task.cancel()

    def _called(self) -> Callable[..., Any]:
        """Return the plain function that the processor calls, with as many parameters as the user's."""
        if not is_asynchronous(self._handler):
            return self._handler
        if takes_transaction(self._handler):
            return lambda records, tx: self._call(records, tx)
        return lambda records: self._call(records)

    def _call(
        self, records: ConsumerRecord | list[ConsumerRecord], tx: UserTransaction | None = None
    ) -> Results:
        """In the processor's thread."""
        inbox, loop = Inbox(), self._home.loop
        given = (records,) if tx is None else (records, AsyncUserTransaction(inbox, tx))
        if loop.is_closed():
            raise asyncio.CancelledError
        return inbox.wait_for(asyncio.run_coroutine_threadsafe(self._handle(*given), loop), loop)

    async def _handle(self, *given: Any) -> Results:
        if self._is_stopping:
            raise asyncio.CancelledError
        self._task = task = asyncio.current_task()
        assert task is not None
        if len(given) > 1:
            self._home.inside.add(task)
        try:
            returned = self._handler(*given)
            if inspect.isasyncgen(returned):
                generated: list[Any] = [result async for result in returned]
                return generated
            results: Results = await returned
            return results
        finally:
            self._task = None
            self._home.inside.discard(task)
