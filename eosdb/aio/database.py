"""`connect` and `AsyncDatabase`: an open file for the tasks of an event loop.

`process` runs the processor in a thread of its own, whose handlers run in the event loop. The thread that
waits for a handler's coroutine carries out the calls of its transaction, so a unit has one thread.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
import weakref
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Sequence,
)
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Never,
    NoReturn,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Unpack,
)

from eosdb.aio.block import AsyncUserTransaction, BlockTurn, HeldBlock
from eosdb.aio.consumer import AsyncConsumer, PolledConsumer
from eosdb.aio.producer import AsyncProducer, QueuedSend
from eosdb.aio.proxies import AsyncAdmin, Proxy, reading
from eosdb.aio.worker import Home, Inbox, Workers, behind, outlived, to_the_end
from eosdb.aio.writer import Caller, WriterQueue
from eosdb.broker.outbox import UserTransaction
from eosdb.client.consumer.settings import ConsumerConfig, ConsumerSettings
from eosdb.client.processor.config import ProcessConfig, ProcessorConfig
from eosdb.client.processor.handlers import (
    Result,
    Results,
    check_is_plain,
    check_portion,
    is_asynchronous,
    takes_transaction,
)
from eosdb.client.processor.processor import Processor
from eosdb.client.producer.producer import Producer
from eosdb.client.producer.settings import ProducerConfig, ProducerSettings
from eosdb.client.transport import DirectTransport
from eosdb.database import Database, Topics
from eosdb.database import connect as open_database
from eosdb.errors import ConfigError, IllegalStateError
from eosdb.model.answers import Parameters, QueryResult, Row
from eosdb.model.clock import SystemClock
from eosdb.model.config import check_by_name, checked_settings, keywords_of
from eosdb.model.reports import ProcessReport
from eosdb.model.values import ConsumerRecord, Key, MadeKey, MadeValue, Value

if TYPE_CHECKING:
    import pandas
    import pyarrow

Outcome: TypeAlias = Awaitable[Results] | AsyncIterator[Result]
AsyncHandlers: TypeAlias = (
    Callable[[ConsumerRecord[Key, Value]], Outcome | Results]
    | Callable[[ConsumerRecord[Key, Value], AsyncUserTransaction], Outcome]
    | Callable[[list[ConsumerRecord[Key, Value]]], Outcome | Results]
    | Callable[[list[ConsumerRecord[Key, Value]], AsyncUserTransaction], Outcome]
)
"""Handlers of `AsyncDatabase.process`: `async def` functions, or plain ones."""


_finishing: Final[list[Callable[[], object]]] = []
"""What SIGTERM calls: the ends of all runs of the main thread's loop."""


@contextmanager
def finished_by_sigterm(
    loop: asyncio.AbstractEventLoop, finish: Callable[[], object]
) -> Iterator[None]:
    """During the block, SIGTERM calls `finish`, unless the program handles it, or the loop is not that of
    the main thread."""
    is_free = bool(_finishing) or signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not is_free or threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _finishing:
        loop.add_signal_handler(signal.SIGTERM, lambda: [each() for each in _finishing])
    _finishing.append(finish)
    try:
        yield
    finally:
        _finishing.remove(finish)
        if not _finishing:
            loop.remove_signal_handler(signal.SIGTERM)


class Processing:
    """One call of `process`."""

    def __init__(self, home: Home, handler: Callable[..., Any]) -> None:
        self._home = home
        self._handler = handler
        self._workers = Workers(home, "processor")
        self._processor: Processor | None = None
        self._tasks = set[asyncio.Task[Any]]()
        """The tasks of the user's handler."""
        self._is_stopping = self._is_finishing = False
        self.ended: Future[Any] | None = None
        """Done when the processor has left its group."""

    async def run(
        self, make: Callable[[Callable[..., Any]], Processor], until_idle_ms: int | None
    ) -> ProcessReport:
        """Run the processor that `make` returns for a handler. If the task is cancelled, so is the user's
        handler; this waits for the end of its transaction."""

        def run() -> ProcessReport:
            self._processor = processor = make(self._called())
            if self._is_stopping or self._is_finishing:
                processor.stop()
            return processor.run(until_idle_ms)

        try:
            self.ended = self._workers.post(run)
            ended = asyncio.wrap_future(self.ended, loop=self._home.loop)
            try:
                with finished_by_sigterm(self._home.loop, self.finish):
                    return await outlived(ended)
            except asyncio.CancelledError as cancelled:
                if ended.done() and self._home.is_closed:
                    raise self._home.closed() from None
                self.stop()
                return await to_the_end(ended, cancelled)
        finally:
            self._workers.end()

    def finish(self) -> None:
        """Make the processor end after the records in hand."""
        self._is_finishing = True
        if self._processor is not None:
            self._processor.stop()

    def stop(self) -> None:
        """Make the processor end, and cancel the user's handler. Call it in the loop's thread, or when
        the loop is closed."""
        self._is_stopping = True
        if self._processor is not None:
            self._processor.stop()
        for task in () if self._home.loop.is_closed() else self._tasks:
            task.cancel()

    def _called(self) -> Callable[..., Any]:
        """Return the plain function that the processor calls, with as many parameters as the user's."""
        if not is_asynchronous(self._handler):
            return self._handler
        return self._call if takes_transaction(self._handler) else partial(self._call, tx=None)

    def _call(
        self, records: ConsumerRecord | list[ConsumerRecord], tx: UserTransaction | None
    ) -> Results:
        """Run the handler in the loop; called in the processor's thread or one of its workers."""
        inbox = Inbox()
        given = (records,) if tx is None else (records, AsyncUserTransaction(inbox, tx))
        return inbox.wait_for(self._handle(*given), self._home.loop)

    async def _handle(self, *given: Any) -> Results:
        if self._is_stopping:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
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
            self._tasks.discard(task)
            self._home.inside.discard(task)


P = ParamSpec("P")
T = TypeVar("T")

_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of a query, and the names of their columns. `all`, `first`, `one`, `df` and `arrow` are
    those of `eosdb.QueryResult`, and may be called again."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    _types: Callable[[], Sequence[str]] = field(default=tuple, repr=False, compare=False)

    def _result(self) -> QueryResult:
        return QueryResult(self.columns, iter(self.rows), self._types)

    def all(self) -> list[Row]:
        """The rows."""
        return self._result().all()

    def first(self) -> Row | None:
        """The first row, or None if there is none."""
        return self._result().first()

    def one(self) -> Row:
        """The only row. Raises InvalidRequestError if there is none, or more than one."""
        return self._result().one()

    def df(self) -> pandas.DataFrame:
        """The rows as a data frame (`QueryResult.df`)."""
        return self._result().df()

    def arrow(self) -> pyarrow.Table:
        """The rows as an Arrow table (`QueryResult.arrow`)."""
        return self._result().arrow()


def _by_run(
    method: Callable[Concatenate[Database, P], T],
) -> Callable[Concatenate[AsyncDatabase, P], Coroutine[Any, Any, T]]:
    """Make a coroutine of a method that also runs the caller's code, such as an iterator."""

    @wraps(method)
    async def call(self: AsyncDatabase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(method, *args, **kwargs)

    return call


class AsyncDatabase(Proxy[Database]):
    """An open eosdb file, shared by the tasks of one event loop. `async with` closes it."""

    def __init__(self, home: Home, database: Database, workers: Workers) -> None:
        super().__init__(home, database, Workers(home, "reader", _THREADS), WriterQueue(home))
        self.path: Final = database.path
        self.admin: Final = AsyncAdmin(home, database.admin, self._readers, self._writer)
        self._others = workers
        self._turn = BlockTurn(home, database.config.lock_timeout_ms)
        self._shared: dict[object, QueuedSend] = {}
        self._producers = weakref.WeakSet[AsyncProducer]()
        self._writers = weakref.WeakSet[WriterQueue]()
        self._consumers = weakref.WeakSet[AsyncConsumer]()
        self._closed: asyncio.Future[None] | None = None

    # -- clients --------------------------------------------------------------------------------

    @keywords_of(ProducerSettings)
    def producer(self, *misplaced: Never, **config: Unpack[ProducerConfig]) -> AsyncProducer:
        """Return a producer; the settings are those of `Database.producer`. Raises ConfigError. `linger_ms`
        has no effect: records sent during a commit share the next one."""
        self._home.check()
        check_by_name("producer", misplaced)
        checked = checked_settings(ProducerSettings, "producer", config)
        config["linger_ms"] = 0
        outgoing = self._outgoing(config, is_transactional=checked.transactional_id is not None)
        outgoing.users += 1
        writer = self._writer
        # decisions/0079: each transactional producer has a thread, because threads share commits.
        if outgoing.is_transactional:
            writer = WriterQueue(self._home)
            self._writers.add(writer)
        made = AsyncProducer(self._home, writer, outgoing, partial(self._release, outgoing))
        self._producers.add(made)
        return made

    # decisions/0043: AsyncProducers with equal settings share one Producer in the writer's thread.
    def _outgoing(self, config: ProducerConfig, *, is_transactional: bool) -> QueuedSend:
        try:
            same = frozenset(config.items())
            found = self._shared.get(same)
        except TypeError:  # A setting is not hashable.
            same, found = frozenset(), None
        if found is not None and not is_transactional and found.producer.state != "FATAL_ERROR":
            return found
        transport = DirectTransport(self._of.broker)
        made = QueuedSend(
            Producer(transport, self._of.clock, **config), is_transactional=is_transactional
        )
        if same and not is_transactional:
            self._shared[same] = made
        return made

    def _release(self, outgoing: QueuedSend) -> Callable[[], None]:
        outgoing.users -= 1
        if outgoing.users:
            return lambda: None
        self._shared = {same: made for same, made in self._shared.items() if made is not outgoing}
        return outgoing.producer.close

    @keywords_of(ConsumerSettings)
    def consumer(
        self,
        *topics: str,
        group_id: str | None = None,
        key_deserializer: Callable[[bytes], MadeKey] | None = None,
        value_deserializer: Callable[[bytes], MadeValue] | None = None,
        **config: Unpack[ConsumerConfig],
    ) -> AsyncConsumer[MadeKey | Any, MadeValue | Any]:
        """Return a consumer of these topics; without topics, call `subscribe` or `assign` later. The
        settings are those of `Database.consumer`. Raises ConfigError."""
        self._home.check()
        transport = DirectTransport(self._of.broker)
        consumer: PolledConsumer[MadeKey | Any, MadeValue | Any] = PolledConsumer(
            transport,
            self._of.clock,
            group_id,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            **config,
        )
        made = AsyncConsumer(self._home, self._of.clock, consumer, topics)
        self._consumers.add(made)
        return made

    def begin(self) -> AbstractAsyncContextManager[AsyncUserTransaction, None]:
        """Begin one transaction over your own tables in this file and the log, like `Database.begin`: it
        commits when the block ends, and is rolled back when the block raises or is cancelled.

        The block holds the file's only write lock: writes of other tasks wait in their threads; other
        writes of its own task raise IllegalStateError. Raises DatabaseLockedError if the block cannot begin
        within lock_timeout_ms.
        """
        self._home.check()
        return HeldBlock(self._turn, self._of.begin())

    @keywords_of(Database.processor, ProcessorConfig)
    async def process(
        self,
        topics: Topics,
        handler: AsyncHandlers[MadeKey, MadeValue],
        sink: str | None = None,
        *,
        until_idle_ms: int | None = None,
        concurrency: int = 1,
        **config: Unpack[ProcessConfig[MadeKey, MadeValue]],
    ) -> ProcessReport:
        """Call `handler` for each record of `topics`, and store its results, rows and the offset exactly
        once, like `eosdb.process`. An `async def` handler is awaited in this loop, for one record after the
        other or for `concurrency` at once, records of one key in order; its second parameter, if it has
        two, is an `AsyncUserTransaction`. A plain function is called in another thread.

        Runs until SIGTERM, which finishes the records in hand, unless the program handles it itself; until
        the task is cancelled; or until the group is idle for `until_idle_ms`. Then returns the report. A
        cancellation cancels the handler, and takes effect when the transaction has been
        committed or rolled back; the next run continues there. Raises DatabaseClosedError when the database
        is closed meanwhile.
        """
        self._home.check_may_write()
        if "workers" in config:
            raise ConfigError(f"workers: got {config['workers']!r}; here it is called concurrency")
        config["workers"] = concurrency
        check_portion(handler, config.get("batch", False))
        processing = Processing(self._home, handler)
        self._home.stoppable.add(processing)
        return await processing.run(
            lambda called: self._of.processor(topics, called, sink, **config), until_idle_ms
        )

    # -- calls ----------------------------------------------------------------------------------

    outcome = reading(Database.outcome)
    columns = reading(Database.columns)
    views = reading(Database.views)
    info = reading(Database.info)
    why = reading(Database.why)
    append_once = _by_run(Database.append_once)

    async def query(self, sql: str, parameters: Parameters = ()) -> Rows:
        """Run one SQL statement that only reads, on its own snapshot, and return all rows: `(await
        db.query(sql)).one()`. Raises InvalidRequestError for statements that SQLite refuses or that
        write."""
        self._home.check()

        def read() -> Rows:
            found = self._of.query(sql, parameters)
            return Rows(found.columns, list(found.rows), found._types)

        return await self._readers.run(read)

    async def run(
        self,
        function: Callable[Concatenate[Database, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call `function(database, …)` in another thread: for methods that have no coroutine here, such as
        `await db.run(eosdb.Database.verify)`. If the task is cancelled, a call that has begun continues."""
        check_is_plain(function)
        self._home.check_may_write()
        return await self._others.run(function, self._of, *args, **kwargs)

    # -- the end --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop all producers, consumers and processors, and close the file; idempotent. Waits for a block
        of `db.begin()` that another task has open. A cancelled call still completes."""
        if self._closed is None:
            self._home.check_may_write()
        await outlived(self._begin_to_close())

    def _begin_to_close(self) -> asyncio.Future[None]:
        last = self._closed
        is_over = last is not None and last.done() and not last.cancelled()
        if last is None or (is_over and isinstance(last.exception(), MemoryError)):
            users: list[Future[Any]] = [
                consumer.begin_to_stop() for consumer in list(self._consumers)
            ]
            for processing in list(self._home.stoppable):
                processing.stop()
                users += [] if processing.ended is None else [processing.ended]
            for producer in list(self._producers):
                producer.begin_to_stop()
            users += [writer.emptied() for writer in list(self._writers)]
            self._home.is_closed = True
            # This must be the last call in the queue, because it closes the database.
            last = self._closed = self._writer.call(Caller(), partial(self._close, users))
        return last

    def _close(self, users: list[Future[Any]]) -> None:
        for stopped in users:
            stopped.exception()
        try:
            self._of.close()
        except MemoryError:
            raise  # The program may call `close` again, which needs the workers.
        except BaseException:
            self._end_workers()
            raise
        self._end_workers()

    def _end_workers(self) -> None:
        for workers in (self._readers, self._others, self._turn.workers):
            workers.end()
        for writer in (self._writer, *self._writers):
            writer.end()
        self._home.end()

    async def __aenter__(self) -> AsyncDatabase:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        closed = self._begin_to_close()
        await behind(error, lambda: outlived(closed))

    def __repr__(self) -> str:
        return f"<eosdb.aio.AsyncDatabase {self.path!r} {'closed' if self._closed else 'open'}>"


class Opening(AbstractAsyncContextManager[AsyncDatabase, None]):
    """The result of `connect`: `await` it, or use it in `async with`."""

    def __init__(self, open_it: Callable[[], Database]) -> None:
        self._open_it = open_it
        self._opened: AsyncDatabase | None = None

    async def _open(self) -> AsyncDatabase:
        home = Home()
        workers = Workers(home, "other", _THREADS)
        try:
            database = await workers.acquire(self._open_it, Database.close)
            if not isinstance(database.clock, SystemClock):
                workers.post(database.close)
                raise ConfigError(
                    f"clock: got {database.clock!r}, expected none: an event loop uses the machine's time; "
                    "use eosdb.connect for a clock of your own"
                )
        except BaseException:
            workers.end()
            home.end()
            raise
        return AsyncDatabase(home, database, workers)

    def __await__(self) -> Generator[Any, None, AsyncDatabase]:
        return self._open().__await__()

    def __getattr__(self, name: str) -> NoReturn:
        # Python and tools ask for names that do not exist, and expect AttributeError.
        is_known = hasattr(AsyncDatabase, name) or name in ("admin", "path")
        kind = IllegalStateError if is_known else AttributeError
        raise kind(
            f"{name}: the database is not open yet: `db = await eosdb.aio.connect(…)`, or `async with "
            "eosdb.aio.connect(…) as db`"
        )

    def __enter__(self) -> NoReturn:
        raise IllegalStateError(
            "a database of an event loop is opened by `async with`, not by `with`"
        )

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> AsyncDatabase:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(kind, error, None)


def _for_a_loop(function: Callable[P, Database]) -> Callable[P, Opening]:
    @wraps(function)
    def connect(*args: P.args, **kwargs: P.kwargs) -> Opening:
        return Opening(partial(function, *args, **kwargs))

    connect.__doc__ = """Open an eosdb file: the arguments and errors are those of `eosdb.connect`.

    `db = await connect(path)`, or `async with connect(path) as db`. The database belongs to the event loop
    that opens it. A clock of your own is refused with ConfigError.
    """
    return connect


connect = _for_a_loop(open_database)
"""Open an eosdb file, with the arguments and errors of `eosdb.connect`: `db = await connect(path)`, or
`async with connect(path) as db`. The database belongs to the event loop that is running then."""
