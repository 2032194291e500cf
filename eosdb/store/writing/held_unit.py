"""A write unit that a caller holds open around statements of its own (`Database.begin`).

It has a connection of its own, so that nothing a user does with it can harm the writer's. SQLAlchemy
wraps that connection when the user asks for it; statements that would end the unit behind our back are
refused.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from eosdb.errors import IllegalStateError, StorageError
from eosdb.failpoints import Failpoint, reach
from eosdb.store.file.failures import translated
from eosdb.store.schema import guard
from eosdb.store.writing.unit import Apply, Unit

if TYPE_CHECKING:
    from sqlalchemy import Connection

_ENDS_ITSELF: Final = (
    "the block of db.begin() ends its transaction itself: leave it to commit, leave it with an "
    "exception to undo everything"
)


class HeldUnit:
    """One unit at a time, begun and ended by the store."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        apply: Apply,
        path: str,
        note: Callable[[sqlite3.Error], None],
    ) -> None:
        self._raw: Final = connection
        self._note = note
        self._path = path
        self._unit = Unit(connection, apply)
        self.is_ours = True
        """Whether statements are eosdb's own, to which nothing is forbidden."""
        self.undo: Final = connection.rollback
        """Undo what is not committed, by one call into C; while `is_ours`."""
        self._ending = False
        self._wrapped: Connection | None = None
        connection.set_authorizer(self._authorize)

    def begin(self, synchronous: str) -> None:
        """Take SQLite's write lock."""
        self._end()  # If a signal has kept the last one from it.
        self._raw.execute(f"PRAGMA synchronous={synchronous}")
        self._unit.forget()
        self._unit.written_bytes = 0
        self._raw.execute("BEGIN IMMEDIATE")
        self.is_ours = False

    def commit(self) -> int:
        """Commit everything. Returns roughly how many bytes went into the WAL."""
        self._check_begun()
        self._end()
        reach(Failpoint.USER_UNIT_UNCOMMITTED)
        before = self._unit.written_bytes
        with translated(self._path):
            try:
                self._raw.execute("COMMIT")
            except sqlite3.Error as error:
                self._note(error)
                raise
        return 16_384 + before

    def roll_back(self) -> None:
        """Undo everything that is not committed, even if SQLite already has."""
        try:
            self._end()
        finally:
            self._raw.rollback()

    def close(self) -> None:
        self._raw.close()

    @contextlib.contextmanager
    def ours(self) -> Iterator[Unit]:
        """Write to eosdb's tables: all of the block or, when it raises, nothing."""
        self._check_begun()
        self.is_ours = True
        try:
            with translated(self._path), self._unit.savepoint():
                yield self._unit
        except StorageError as error:
            if _is_refusal(error.__cause__):
                # Nothing of ours is refused: a signal has raised in `_authorize`, and the driver took that
                # for a no.
                raise KeyboardInterrupt from error
            raise
        finally:
            self.is_ours = False

    @property
    def connection(self) -> Connection:
        """SQLAlchemy's view of the unit."""
        if self._wrapped is None:
            self._wrapped = self._wrap()
        return self._wrapped

    def _wrap(self) -> Connection:
        from sqlalchemy import create_engine, event
        from sqlalchemy.pool import StaticPool

        from eosdb.store.schema.engine import raise_refusals

        engine = create_engine("sqlite://", creator=lambda: self._raw, poolclass=StaticPool)
        raise_refusals(engine)
        for method in ("do_commit", "do_rollback"):
            setattr(engine.dialect, method, self._refuse_to_end)

        @event.listens_for(engine, "before_cursor_execute")
        def check(*_: object) -> None:
            self._check_begun()

        # SQLAlchemy inspects an engine's first connection, and rolls it back afterwards.
        with self._let_end():
            wrapped = engine.connect()
        wrapped.begin()
        return wrapped

    @contextlib.contextmanager
    def _let_end(self) -> Iterator[None]:
        """SQLAlchemy may believe that it ends the transaction; nothing happens."""
        self._ending = True
        try:
            yield
        finally:
            self._ending = False

    def _end(self) -> None:
        self.is_ours = True
        if self._wrapped is not None:
            wrapped, self._wrapped = self._wrapped, None
            with self._let_end():
                wrapped.close()

    def _refuse_to_end(self, _: object) -> None:
        if not self._ending:
            raise IllegalStateError(_ENDS_ITSELF)

    def _check_begun(self) -> None:
        if not self._raw.in_transaction:
            raise IllegalStateError(
                "SQLite has undone the transaction of this block (the disk is full, or a statement "
                "said OR ROLLBACK); nothing was stored, begin again"
            )

    def _authorize(self, action: int, first: str | None, second: str | None, *_: object) -> int:
        if self.is_ours:
            return sqlite3.SQLITE_OK
        if action in (sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH):
            return sqlite3.SQLITE_DENY
        return guard.authorize(action, first, second)


def _is_refusal(error: BaseException | None) -> bool:
    """A refused function is reported under the generic error code."""
    code = getattr(error, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_AUTH or "not authorized" in str(error)
