"""`async with db.begin()`: one transaction over your own tables and the log, held across awaits.

A block begins, runs and ends in one dedicated thread, which the blocks of one loop use in turn. Other
writes wait in the writer's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Never,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)

from eosdb.aio.producer import with_metadata
from eosdb.aio.worker import Home, Workers, to_the_end_of_a_block
from eosdb.broker.outbox import UserTransaction, offsets_first
from eosdb.client.processor.handlers import check_is_plain
from eosdb.errors import DatabaseLockedError
from eosdb.model.config import keywords_of
from eosdb.model.values import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    ProducerRecord,
    RecordMetadata,
    RecordOptions,
    TopicPartition,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

P = ParamSpec("P")
T = TypeVar("T")
Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]


class Runs(Protocol):
    def run(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...


class AsyncUserTransaction:
    """The transaction of a block of `db.begin()` or of a handler; unusable after the block or handler."""

    def __init__(self, workers: Runs, transaction: UserTransaction) -> None:
        self._workers = workers
        self._transaction = transaction

    async def run(
        self,
        function: Callable[Concatenate[Connection, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call `function(connection, …)` in the block's thread, to use your own tables; `connection` is the
        SQLAlchemy connection `UserTransaction.connection`. Return rows, not a result that is read
        lazily. Raises ConfigError for an `async def` function."""
        check_is_plain(function)
        return await self._workers.run(
            lambda: function(self._transaction.connection, *args, **kwargs)
        )

    @keywords_of(ProducerRecord)
    async def publish(
        self,
        topic: str,
        value: object = None,
        *misplaced: Never,
        idempotency_key: str | None = None,
        **options: Unpack[RecordOptions],
    ) -> RecordMetadata:
        """Append a record, like `UserTransaction.publish`; readers see it after the block has ended."""
        return await self._workers.run(
            lambda: self._transaction.publish(
                topic, value, *misplaced, idempotency_key=idempotency_key, **options
            )
        )

    @overload
    async def commit_offsets(
        self, offsets: Offsets, group: str | ConsumerGroupMetadata
    ) -> None: ...
    @overload
    async def commit_offsets(
        self, group: str | ConsumerGroupMetadata, offsets: Offsets, /
    ) -> None: ...
    async def commit_offsets(self, offsets: Any, group: Any) -> None:
        """Commit offsets of the group with the transaction, like `UserTransaction.commit_offsets`."""
        offsets, group = offsets_first(offsets, group)
        given = with_metadata(offsets)
        await self._workers.run(lambda: self._transaction.commit_offsets(given, group))


class BlockTurn:
    """Lets one block run at a time, in the order of the calls, and holds the thread that they share."""

    def __init__(self, home: Home, patience_ms: int) -> None:
        self.home: Final = home
        self.workers: Final = Workers(home, "block")
        self._patience_ms = patience_ms
        self._lock = asyncio.Lock()

    async def take(self) -> None:
        """Wait for the turn. Raises DatabaseLockedError when the blocks before take too long."""
        try:
            async with asyncio.timeout(self._patience_ms / 1000):
                await self._lock.acquire()
        except TimeoutError:
            raise DatabaseLockedError(
                f"not written, because other blocks of db.begin() of this process have been writing for "
                f"{self._patience_ms} ms. Try again, make the blocks shorter, or wait for longer "
                "(lock_timeout_ms)"
            ) from None
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self.home.inside.add(task)

    def give(self) -> None:
        self.home.inside.discard(self._task)
        self._lock.release()


class HeldBlock(AbstractAsyncContextManager[AsyncUserTransaction, None]):
    """The block of `AsyncDatabase.begin`: enters and leaves the block of `Database.begin` in the thread."""

    def __init__(self, turn: BlockTurn, block: AbstractContextManager[UserTransaction]) -> None:
        self._turn = turn
        self._block = block

    async def __aenter__(self) -> AsyncUserTransaction:
        turn = self._turn
        turn.home.check_may_write()
        await turn.take()
        try:
            entered = await turn.workers.acquire(
                self._block.__enter__, lambda _: self._leave(asyncio.CancelledError())
            )
        except BaseException:
            turn.give()
            raise
        return AsyncUserTransaction(turn.workers, entered)

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        left = self._turn.workers.submit(self._leave, error)
        left.add_done_callback(lambda _: self._turn.give())
        await to_the_end_of_a_block(left, error)

    def _leave(self, error: BaseException | None) -> Any:
        return self._block.__exit__(None if error is None else type(error), error, None)
