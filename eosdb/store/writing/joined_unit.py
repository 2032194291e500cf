"""A unit inside a transaction that the program has begun on a connection of its own (`eosdb.join`).

The program commits or rolls back, perhaps to a savepoint, and eosdb hears of neither. So nothing that was
read is kept from one call to the next, and every other connection sees the commit by `data_version`, as it
sees another process's. What the program may have done to the connection is checked in each call, because no
authorizer of ours is there to refuse it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any, Final

from eosdb.errors import (
    ConfigError,
    DatabaseLockedError,
    EosdbError,
    IllegalStateError,
    InvalidRequestError,
    NotAnEosdbFileError,
    StorageError,
)
from eosdb.store.file.failures import translated, without_memory
from eosdb.store.file.lock_holder import describe_sqlites, locked_error
from eosdb.store.file.mutex import sync_has_failed
from eosdb.store.schema import guard
from eosdb.store.schema.migrate import check_newest
from eosdb.store.writing.unit import Apply, Unit

_BEGIN: Final = "BEGIN IMMEDIATE"
# Takes the write lock, or waits for it, before anything is read that others could change.
_LOCK: Final = "UPDATE main.eosdb_file SET file_id = file_id WHERE 0"
_SET: Final = "SAVEPOINT eosdb_joined"
_UNDO: Final = "ROLLBACK TO eosdb_joined"
_KEEP: Final = "RELEASE eosdb_joined"
# As a table it would be read in the transaction, which could not wait for the lock any more.
_FILES: Final = "PRAGMA database_list"
_TEMPORARY: Final = "SELECT name, tbl_name FROM sqlite_temp_master"
_TRIAL: Final = "SELECT topic_id, topic FROM main.topics LIMIT 1"
FUNCTIONS: Final = ("count", "ifnull", "max")
"""The functions of SQLite's that eosdb's statements call in such a unit."""
_REPLACED: Final = (
    "SELECT name FROM pragma_function_list WHERE NOT builtin "
    f"AND name IN ({', '.join('?' * len(FUNCTIONS))})"
)
_NONE_OPEN: Final = (
    "no transaction is open on this connection, so what you write and what you publish could not be one "
    "commit; begin one: transaction.atomic() in Django, session.begin() in SQLAlchemy, "
    '`with connection:` or connection.execute("BEGIN IMMEDIATE") in sqlite3'
)
_STALE: Final = (
    "this transaction has read before another one has written, and SQLite does not let it write any more; "
    "nothing was published. Roll it back and run it again; to wait instead, begin transactions that write "
    'with BEGIN IMMEDIATE (in Django "OPTIONS": {"transaction_mode": "IMMEDIATE"})'
)
_UNREAD: Final = (
    "a statement of this transaction that writes and returns rows (RETURNING) has not been read to its "
    "end; fetch all of its rows, or close its cursor, before you publish"
)


def driver_connection(given: object) -> sqlite3.Connection:
    """Return the driver's connection below a session or connection of SQLAlchemy's, or the one given."""
    below = given
    if not isinstance(below, sqlite3.Connection):
        with contextlib.suppress(AttributeError):
            # Of a session it is a method, and gives what has the pool's connection under the same name.
            of_session: Any = given.connection  # type: ignore[attr-defined]
            of_pool = of_session().connection if callable(of_session) else of_session
            below = of_pool.driver_connection
    if not isinstance(below, sqlite3.Connection):
        raise ConfigError(
            f"connection: got {given!r:.80}, expected a sqlite3.Connection, or a Session or Connection of "
            "SQLAlchemy's for SQLite"
        )
    return below


# decisions/0062: sound without a connection of eosdb's own, as long as nothing is remembered.
@contextlib.contextmanager
def joined(connection: sqlite3.Connection, apply: Apply) -> Iterator[Unit]:
    """Write to eosdb's tables in the transaction that is open on the connection: everything in the block
    or, if it raises, nothing.

    Where the driver would begin a transaction before an INSERT, one is begun here. Raises
    IllegalStateError if none is open, NotAnEosdbFileError, DatabaseLockedError, and what SQLite's errors
    are translated to.
    """
    factories = connection.row_factory, connection.text_factory
    connection.row_factory, connection.text_factory = None, str
    try:
        path = _path_of(connection)
        with translated(path), _in_memory(path):
            _take_lock(connection, path)
            _check(connection, path)
            _set_savepoint(connection)
            try:
                yield Unit(connection, apply)
                connection.execute(_KEEP)
            except BaseException:
                _undo(connection)
                raise
    finally:
        connection.row_factory, connection.text_factory = factories


def _path_of(connection: sqlite3.Connection) -> str:
    try:
        files = {name: path for _, name, path in connection.execute(_FILES)}
    except sqlite3.ProgrammingError as error:  # Closed, or of another thread.
        raise IllegalStateError(f"the connection cannot be used here: {error}") from None
    if not files["main"]:
        raise NotAnEosdbFileError(
            "the connection is to a database in memory, which has no write-ahead log; connect to the file "
            "that eosdb has open, in Django's tests with a TEST NAME"
        )
    return str(files["main"])


@contextlib.contextmanager
def _in_memory(path: str) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise without_memory(path) from error


def _take_lock(connection: sqlite3.Connection, path: str) -> None:
    try:
        if not connection.in_transaction:
            begins_by_itself = (
                connection.isolation_level is not None
                and getattr(connection, "autocommit", None) is not True
            )
            if not begins_by_itself:
                raise IllegalStateError(_NONE_OPEN)
            connection.execute(_BEGIN)
        connection.execute(_LOCK)
    except sqlite3.OperationalError as error:
        code = error.sqlite_errorcode
        if code == sqlite3.SQLITE_ERROR:
            raise NotAnEosdbFileError(
                f"{path} has no tables of eosdb's; put them there with `eosdb adopt --wal FILE`, or "
                'eosdb.connect(path, adopt="wal"), and open your connection to that file'
            ) from error
        if code & 0xFF == sqlite3.SQLITE_BUSY:
            if code == sqlite3.SQLITE_BUSY_SNAPSHOT:
                raise DatabaseLockedError(f"{path}: {_STALE}") from error
            raise locked_error(path, describe_sqlites(path)) from error
        raise


def _check(connection: sqlite3.Connection, path: str) -> None:
    """Check that eosdb's statements mean on this connection what they mean on eosdb's own."""
    check_newest(connection, path)
    if sync_has_failed(path):
        raise StorageError(
            f"{path}: a sync has failed, and nothing is written before the WAL has been renewed, which the "
            "next write of eosdb's does (such as `eosdb housekeeping`); nothing was published"
        )
    hides = [name for row in connection.execute(_TEMPORARY) for name in row if guard.is_own(name)]
    hides += [f"{name}()" for (name,) in connection.execute(_REPLACED, FUNCTIONS)]
    trial = connection.execute(_TRIAL).fetchone()
    if trial is not None and tuple(map(type, trial)) != (int, str):
        hides.append("a converter for TEXT or INT")
    if hides:
        raise InvalidRequestError(
            f"on this connection {', '.join(sorted(set(hides)))} is the program's (a temporary table or "
            "trigger, a function, a converter), not eosdb's or SQLite's own, so that eosdb's statements "
            "would not mean the same; nothing was published. Use a connection without it"
        )


def _set_savepoint(connection: sqlite3.Connection) -> None:
    try:
        connection.execute(_SET)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise IllegalStateError(_UNREAD) from error
        raise


def _undo(connection: sqlite3.Connection) -> None:
    """Roll back to the savepoint, or everything if that fails; nothing if SQLite has rolled back by
    itself."""
    if not connection.in_transaction:
        return
    try:
        connection.execute(_UNDO)
        connection.execute(_KEEP)
    except (sqlite3.Error, MemoryError, EosdbError):
        connection.rollback()
