"""A write unit that stays open while the caller runs its own statements (`Database.begin`).

It has a separate connection, so a user's statements cannot affect the writer's connection. SQLAlchemy can
wrap the separate one. Statements that would end the unit are rejected.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from eosdb.errors import EosdbError, IllegalStateError, InvalidRequestError
from eosdb.model.failpoints import Failpoint, reach
from eosdb.store.file.connection import (
    begin_immediate,
    connect,
    keep_roll_back,
    roll_back_without_memory,
)
from eosdb.store.file.failures import is_of_the_file, translate, translated, without_memory
from eosdb.store.file.presence import PresentConnection
from eosdb.store.schema import guard
from eosdb.store.writing.timings import Timings
from eosdb.store.writing.unit import LAST_POSITION, Apply, Memos, Unit

_CARRIED: Final = (
    "create_aggregate", "create_collation", "create_function", "create_window_function",
    "load_extension", "set_trace_callback",
)  # fmt: skip
"""Methods with an effect until the connection closes."""
_REFUSED: Final = ("close", "deserialize", "set_authorizer", "setconfig", "setlimit")
_COLLATIONS: Final = frozenset({"binary", "nocase", "rtrim"})


class SharedConnection(PresentConnection):
    """A connection for both the user's statements and eosdb's. `owner.is_ours` is set while eosdb's run.

    Calls that would change the meaning of eosdb's statements are rejected. After a call that would affect a
    later block, the connection is not used again.
    """

    owner: HeldUnit | None = None
    carries = False
    """Whether it has state that would affect the next block."""

    @property
    def is_guarded(self) -> bool:
        return self.owner is not None and not self.owner.is_ours

    def blobopen(self, *args: Any, **kwargs: Any) -> sqlite3.Blob:
        """Reject writable blobs of eosdb's tables here, since SQLite does not ask the authorizer."""
        if self.is_guarded and guard.is_own(str(args[0])) and not kwargs.get("readonly"):
            raise _refusal(f"writing a blob of {args[0]}")
        return super().blobopen(*args, **kwargs)

    def __setattr__(self, name: str, value: object) -> None:
        if self.is_guarded and name in ("isolation_level", "autocommit"):
            if value != getattr(self, name):
                raise _refusal(f"setting {name}")
            return
        super().__setattr__(name, value)

    def set_progress_handler(self, progress_handler: Callable[[], Any] | None, n: int) -> None:
        """Set a progress handler for the user's statements. It cannot interrupt eosdb's own, such as
        ROLLBACK."""
        watch = progress_handler
        if self.is_guarded and progress_handler is not None:
            self.carries = True

            def watch() -> Any:
                return self.is_guarded and progress_handler()

        super().set_progress_handler(watch, n)

    def check_function(self, name: str) -> None:
        """Raises InvalidRequestError if `name` is a function or collation of SQLite's: eosdb's statements
        call these."""
        sql = "SELECT 1 FROM pragma_function_list WHERE builtin AND name = ?"
        if name.lower() in _COLLATIONS or self.execute(sql, (name.lower(),)).fetchone():
            raise _refusal(f"replacing SQLite's {name}")


def _refusal(what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{what} is refused on the connection of db.begin() and of handlers with two parameters: eosdb's "
        "own statements run on it, too; use a connection of your own (db.engine, sqlite3)"
    )


def _guarded(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: SharedConnection, *args: Any, **kwargs: Any) -> Any:
        if self.is_guarded:
            if name in _REFUSED:
                raise _refusal(f"{name}()")
            if name.startswith("create_"):
                self.check_function(str(args[0] if args else kwargs.get("name")))
            self.carries = True
        return plain(self, *args, **kwargs)

    return method


for _name in (*_CARRIED, *_REFUSED):
    if hasattr(sqlite3.Connection, _name):  # Older Pythons have fewer methods.
        setattr(SharedConnection, _name, _guarded(_name, getattr(PresentConnection, _name)))


if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import ExceptionContext

# SQLite calls the authorizer only when a statement is prepared, and the driver caches statements by their
# text. So a comment makes these texts differ from the user's.
_SET: Final = "SAVEPOINT eosdb_part /* eosdb */"
_UNDO: Final = "ROLLBACK TO eosdb_part /* eosdb */"
_KEEP: Final = "RELEASE eosdb_part /* eosdb */"
_TEMPORARY: Final = (
    "SELECT type, name FROM sqlite_temp_master "
    "WHERE type IN ('trigger', 'view', 'table') ORDER BY type DESC /* eosdb */"
)
UNREAD: Final = (
    "a statement of this transaction that writes and returns rows (RETURNING) has not been read to its "
    "end; fetch all of its rows, or close its cursor, before you publish or end the transaction"
)

_SPILL_PAGES: Final = 16_384
"""A block's changed pages stay in memory up to this number (64 MB), and enter the WAL with its COMMIT. In
the WAL earlier, they would destroy another program's commit before `keep_write_lock` could tell."""
_ENDS_ITSELF: Final = (
    "the block of db.begin() ends its transaction itself: leave it to commit, leave it with an "
    "exception to undo everything"
)


class HeldUnit:
    """The unit of a `db.begin()` block. The store begins and ends it, and reuses this object."""

    def __init__(
        self,
        path: str,
        apply: Apply,
        note: Callable[[sqlite3.Error], None],
        timings: Timings,
    ) -> None:
        with translated(path):
            # decisions/0012: a block has a connection of its own.
            connection = connect(path, 0, factory=SharedConnection)
            assert isinstance(connection, SharedConnection)
            keep_roll_back(connection)
            connection.execute(f"PRAGMA cache_spill={_SPILL_PAGES}")
            self._authorize_users: Final = guard.authorizer(connection)
        self._raw: Final = connection
        self._note = note
        self._path = path
        self._unit = Unit(connection, apply, timings.untold)
        self._timings = timings
        self.is_ours = True
        """Whether the current statements are eosdb's own, which the authorizer always allows."""
        self.undo: Final = connection.rollback
        """Rolls back by one C call; only while `is_ours`."""
        self._ending = False
        self._engine: Engine | None = None
        self._wrapped: Connection | None = None
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()
        self.failure: EosdbError | None = None
        """An error of the file or its disk that occurred in this unit."""
        self.is_spoilt = False
        """Whether a statement of the user is still in progress. Only the user can end it, so the next unit
        needs another connection."""
        self._has_temporary = False
        self._has_altered = False
        """Whether a table was ever altered, and perhaps renamed, on the connection."""
        connection.set_authorizer(self._authorize)
        connection.owner = self

    @property
    def is_whole(self) -> bool:
        """Whether the unit is still open: SQLite has not rolled it back by itself."""
        return self._raw.in_transaction

    @property
    def memos(self) -> Memos:
        return self._unit.memos

    @property
    def known_position(self) -> int:
        return self._unit.known_position

    @property
    def can_be_reused(self) -> bool:
        """Whether the connection has no state that would affect the next block."""
        raw = self._raw
        is_changed = raw.carries or (raw.row_factory, raw.text_factory) != (None, str)
        return not (self.is_spoilt or self._has_temporary or is_changed)

    def _use_factories(self, row: Any, text: Any) -> None:
        self._raw.row_factory, self._raw.text_factory = row, text

    def begin(self, synchronous: str, deadline_ns: int) -> None:
        self._end()  # A signal may have interrupted the end of the last unit.
        with self._translated():
            self._raw.execute(f"PRAGMA synchronous={synchronous}")
            self._unit.forget()
            self._unit.written_bytes = 0
            self.failure = None
            begin_immediate(self._raw, deadline_ns)
            assert self._raw.in_transaction
            self._raw.has_begun()
            self._timings.locked()
        self.is_ours = False

    def commit(self) -> int:
        """Commit everything. Returns roughly how many bytes went into the WAL."""
        self._check_begun()
        self._end()
        self._check_names()
        reach(Failpoint.USER_UNIT_UNCOMMITTED)
        before, is_committed = self._unit.written_bytes, False
        try:
            with self._translated():
                try:
                    self._timings.committing()
                    # As in Writer.commit: MemoryError means that the commit failed.
                    self._raw.keep_write_lock()
                    self._raw.commit()
                    is_committed = True
                except sqlite3.Error as error:
                    self._note(error)
                    raise
        except EosdbError:
            if not is_committed:  # After the commit, running out of memory is no failure.
                raise
        return 16_384 + before

    def roll_back(self) -> None:
        """Roll back the unit, even if SQLite already has."""
        try:
            try:
                self._end()
            finally:
                roll_back_without_memory(self._raw)
        finally:
            self.is_ours = False  # The program may still use its connection, so the guard stays on.

    def close(self) -> None:
        self.is_ours = True
        self._raw.close()

    @contextlib.contextmanager
    def ours(self) -> Iterator[Unit]:
        """Yield the unit for a write to eosdb's tables. If the block raises, the whole write is undone."""
        self._check_begun()
        self.is_ours = True
        factories = self._raw.row_factory, self._raw.text_factory
        try:
            self._use_factories(None, str)
            with self._translated():
                self._forget_what_was_undone()
                with self._unit.savepoint():
                    yield self._unit
        finally:
            self._use_factories(*factories)
            self.is_ours = False

    @contextlib.contextmanager
    def part(self) -> Iterator[None]:
        """Run the block in a savepoint, which is rolled back if the block raises. The user's savepoints,
        sessions and unread results are cleaned up. After an SQLite error, check whether the unit
        `is_whole`."""
        self._check_begun()
        self._run(_SET)
        self.is_ours = False
        try:
            yield
            self._end()
            self._check_begun()
            self._check_names()
            self._put_back()
            self._run(_KEEP)
        except BaseException:
            self._end()
            if self._raw.in_transaction:
                self._take_back()
            raise
        finally:
            self.is_ours = False

    def _put_back(self) -> None:
        """Undo a handler's changes to the connection, before the handler of the next record."""
        self._use_factories(None, str)
        if not self._has_temporary:
            return
        self.is_ours = True
        with contextlib.suppress(sqlite3.Error):  # Fails while the user is reading a result.
            for kind, name in self._raw.execute(_TEMPORARY).fetchall():
                self._raw.execute(f"DROP {kind} IF EXISTS temp.{guard.quoted(name)}")

    def _check_names(self) -> None:
        if self._has_altered:
            with self._translated():
                guard.check_names(self._raw)

    def _take_back(self) -> None:
        """Roll back the savepoint, or the whole unit if a statement in progress prevents that."""
        self._unit.forget()
        try:
            self._run(_UNDO)
            self._run(_KEEP)
        except EosdbError:
            self._raw.rollback()

    def _run(self, statement: str) -> None:
        self.is_ours = True
        with self._translated():
            self._raw.execute(statement)

    def _forget_what_was_undone(self) -> None:
        """Clear the memos if the user has rolled back writes of eosdb's to a savepoint. Every such write
        adds an event, so the newest position shows a rollback."""
        (position,) = self._raw.execute(LAST_POSITION).fetchone()
        if position != self._unit.last_position():
            self._unit.forget()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate SQLite's errors inside the block, and remember an error of the file."""
        try:
            with translated(self._path):
                yield
        except MemoryError as error:
            raise without_memory(self._path) from error
        except EosdbError as error:
            cause = error.__cause__
            if not isinstance(cause, sqlite3.Error):
                raise
            if _is_refusal(cause):
                # eosdb's own statements are always allowed. So a signal handler raised inside `_authorize`,
                # which the driver reports as a rejection.
                raise KeyboardInterrupt from error
            if cause.sqlite_errorcode == sqlite3.SQLITE_BUSY and self._raw.in_transaction:
                self.is_spoilt = True
                raise IllegalStateError(UNREAD) from error
            self._remember(cause)
            raise

    def _remember(self, error: BaseException | None) -> None:
        if isinstance(error, sqlite3.Error) and is_of_the_file(error):
            self.failure = translate(error, self._path)

    @property
    def connection(self) -> Connection:
        """The unit's connection, wrapped by SQLAlchemy."""
        if self._wrapped is None:
            self._wrapped = self._wrap()
        return self._wrapped

    def _wrap(self) -> Connection:
        if self._engine is None:
            self._engine = self._make_engine()
        self.is_ours = True  # SQLAlchemy may register functions.
        try:
            # On its first connection an engine inspects the database, then rolls back. The unit stays open.
            with self._let_end():
                wrapped = self._engine.connect()
        finally:
            self.is_ours = False
        wrapped.begin()
        return wrapped

    def _make_engine(self) -> Engine:
        from sqlalchemy import create_engine, event
        from sqlalchemy.pool import StaticPool

        from eosdb.store.schema.engine import raise_refusals

        engine = create_engine(
            "sqlite://",
            creator=lambda: self._raw,
            poolclass=StaticPool,
            pool_reset_on_return=None,
        )
        # After a signal SQLAlchemy closes the connection. This one stays open and is rolled back.
        for method in ("do_close", "do_terminate"):
            setattr(engine.dialect, method, _leave_open)

        @event.listens_for(engine, "handle_error")
        def remember(context: ExceptionContext) -> None:
            self._remember(context.original_exception)

        raise_refusals(engine)
        for method in ("do_commit", "do_rollback"):
            setattr(engine.dialect, method, self._refuse_to_end)

        @event.listens_for(engine, "before_cursor_execute")
        def check(_: object, cursor: sqlite3.Cursor, *__: object) -> None:
            self._check_begun()
            self._cursors.add(cursor)

        return engine

    @contextlib.contextmanager
    def _let_end(self) -> Iterator[None]:
        """Inside the block, SQLAlchemy may commit or roll back without an effect on the unit."""
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
            for cursor in list(self._cursors):
                cursor.close()
            self._cursors.clear()

    def _refuse_to_end(self, _: object) -> None:
        if not self._ending:
            raise IllegalStateError(_ENDS_ITSELF)

    def _check_begun(self) -> None:
        if not self._raw.in_transaction:
            raise IllegalStateError(
                "SQLite has rolled back the transaction of this block (the disk is full, or a statement "
                "contained OR ROLLBACK); nothing was stored. Begin again"
            )

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, *_: object
    ) -> int:
        if self.is_ours:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_INSERT and database == "temp":
            self._has_temporary = True
        if action == sqlite3.SQLITE_ALTER_TABLE:
            self._has_altered = True
        if action == sqlite3.SQLITE_TRANSACTION or guard.sets_connection(action, first, second):
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_SAVEPOINT and (second or "").lower().startswith(guard.PREFIX):
            return sqlite3.SQLITE_DENY
        return self._authorize_users(action, first, second)


def _leave_open(_: object) -> None: ...


def _is_refusal(error: BaseException | None) -> bool:
    """Whether the authorizer caused the error. For a function call SQLite reports only the generic code."""
    code = getattr(error, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_AUTH or "not authorized" in str(error)
