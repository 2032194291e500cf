"""A unit inside a transaction that the program has begun on its own connection (`eosdb.join`).

The program commits or rolls back, perhaps to a savepoint, without notice to eosdb. So no memo survives a
call, and other connections detect the commit by `data_version`, like a commit of another process. The
connection has no authorizer of eosdb's, so each call checks its settings and schema.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
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
from eosdb.store.file.failures import (
    describe_sqlites,
    locked_error,
    translate,
    translated,
    without_memory,
)
from eosdb.store.file.locks import sync_has_failed
from eosdb.store.schema import guard
from eosdb.store.schema.identify import check_newest
from eosdb.store.writing.held_unit import UNREAD
from eosdb.store.writing.unit import Apply, Parameters, Unit

_BEGIN: Final = "BEGIN IMMEDIATE"
# Changes no row, but takes the write lock before the unit reads anything.
_LOCK: Final = "UPDATE main.eosdb_file SET file_id = file_id WHERE 0"
_SET: Final = "SAVEPOINT eosdb_joined"
_UNDO: Final = "ROLLBACK TO eosdb_joined"
_KEEP: Final = "RELEASE eosdb_joined"
# The pragma as a table in a SELECT would begin a read, after which SQLite cannot wait for the write lock.
_FILES: Final = "PRAGMA database_list"
_TEMPORARY: Final = "SELECT name, tbl_name FROM sqlite_temp_master"
# Reads a column of each type: a converter, which the driver finds by type name, would change a value.
_TRIAL: Final = "SELECT topic_id, partitions, topic FROM main.topics LIMIT 1"
FUNCTIONS: Final = ("count", "ifnull", "max")
"""The SQLite functions that eosdb's statements call in such a unit."""
# If the connection's authorizer ignores one of these functions, SQLite returns NULL or no row.
_CALLS: Final = "SELECT max(1, 2), ifnull(NULL, 3), count(*), max(column1) FROM (VALUES (4), (5))"
_CALLED: Final = (2, 3, 2, 5)
_PRAGMAS: Final = ("application_id", "user_version", "journal_mode")
_UPDATE: Final = re.compile(r"UPDATE (\w+) SET ((?:\S+ = \?,? ?)+)WHERE (\w+) = \?")
_UPSERT: Final = re.compile(r"INSERT INTO (\w+) \(([^)]*)\) VALUES \([?, ]*\) ON CONFLICT")
_REPLACED: Final = (
    "SELECT name FROM pragma_function_list WHERE NOT builtin "
    f"AND name IN ({', '.join('?' * len(FUNCTIONS))})"
)
_IGNORED: Final = (
    "this connection's authorizer, or a trigger of yours, ignores or changes a statement of eosdb's "
    "({what}); nothing was published. Use a connection without it"
)
_NONE_OPEN: Final = (
    "no transaction is open on this connection, so your writes and the published records could not share a "
    "commit; begin one: transaction.atomic() in Django, session.begin() in SQLAlchemy, "
    '`with connection:` or connection.execute("BEGIN IMMEDIATE") in sqlite3'
)
_STALE: Final = (
    "another transaction has written since this one first read, so SQLite does not let it write; nothing "
    "was published. Roll it back and run it again; to wait instead, begin transactions that write "
    'with BEGIN IMMEDIATE (in Django "OPTIONS": {"transaction_mode": "IMMEDIATE"})'
)


class _JoinedUnit(Unit):
    """Checks the effect of each write, because an authorizer can ignore a write without an error."""

    __slots__ = ()

    def execute(self, statement: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        before = self._connection.total_changes
        cursor = super().execute(statement, parameters)
        if _effect(statement)[0] is not None:
            cursor.fetchall()  # With PRAGMA count_changes, a statement must be read to its end.
            self._look(statement, [parameters], before)
        return cursor

    def executemany(self, statement: str, parameters: Iterable[Parameters]) -> sqlite3.Cursor:
        before, rows = self._connection.total_changes, list(parameters)
        cursor = super().executemany(statement, rows)
        self._look(statement, rows, before)
        return cursor

    def _look(self, statement: str, rows: Sequence[Parameters], before: int) -> None:
        table, read_back = _effect(statement)
        if table is None:
            return
        if self._connection.total_changes - before < len(rows):
            raise _ignored(table)
        if read_back is not None:
            found = (self._connection.execute(read_back, row).fetchone() for row in rows)
            if any(one != (1,) for one in found):
                raise _ignored(table)


@cache
def _effect(statement: str) -> tuple[str | None, str | None]:
    """Return the table that the statement writes, and a query that finds a row with the written values. No
    query is needed for a plain INSERT: an authorizer ignores all of it or nothing. Both are None for other
    statements."""
    verb, _, rest = statement.partition(" INTO ")
    if verb in ("INSERT", "INSERT OR REPLACE") and _UPSERT.match(statement) is None:
        return rest.split()[0], None
    if (found := _UPSERT.match(statement)) is not None:
        names = found[2].split(", ")
    elif (found := _UPDATE.fullmatch(statement)) is not None:
        names = [*found[2].replace(" = ?", "").strip().split(", "), found[3]]
    else:
        return None, None
    return found[1], f"SELECT 1 FROM {found[1]} WHERE {' AND '.join(f'{n} IS ?' for n in names)}"


def _ignored(what: str) -> InvalidRequestError:
    return InvalidRequestError(_IGNORED.format(what=what))


def driver_connection(given: object) -> sqlite3.Connection:
    """Return `given`, or the driver's connection of a Session or Connection of SQLAlchemy's."""
    below = given
    if not isinstance(below, sqlite3.Connection):
        with contextlib.suppress(AttributeError):
            # A session has a method `connection`. Its result has an attribute `connection`, which is the
            # pool's connection.
            of_session: Any = given.connection  # type: ignore[attr-defined]
            of_pool = of_session().connection if callable(of_session) else of_session
            below = of_pool.driver_connection
    if not isinstance(below, sqlite3.Connection):
        raise ConfigError(
            f"connection: got {given!r:.80}, expected a sqlite3.Connection, or a Session or Connection of "
            "SQLAlchemy's for SQLite"
        )
    return below


# decisions/0062: rows are not cached, so the program's own connection can be used.
@contextlib.contextmanager
def joined(connection: sqlite3.Connection, apply: Apply) -> Iterator[Unit]:
    """Yield a unit for writes to eosdb's tables in the connection's open transaction. If the block raises,
    all its writes are undone. If the driver begins transactions implicitly, this begins one. Raises
    IllegalStateError if none is open, NotAnEosdbFileError, DatabaseLockedError, and the translations of
    SQLite's errors."""
    factories = connection.row_factory, connection.text_factory
    connection.row_factory, connection.text_factory = None, str
    try:
        path = _path_of(connection)
        with translated(path), _in_memory(path):
            _take_lock(connection, path)
            _check(connection, path)
            _set_savepoint(connection)
            try:
                yield _JoinedUnit(connection, apply)
                connection.execute(_KEEP)
            except BaseException:
                _undo(connection)
                raise
    finally:
        connection.row_factory, connection.text_factory = factories


def _path_of(connection: sqlite3.Connection) -> str:
    try:
        files = {name: path for _, name, path in connection.execute(_FILES)}
    except sqlite3.ProgrammingError as error:  # The connection is closed, or another thread's.
        raise IllegalStateError(f"the connection cannot be used here: {error}") from None
    except sqlite3.Error as error:
        raise translate(error, "the connection's file") from error
    if "main" not in files:
        raise _ignored("PRAGMA database_list")
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
            if not connection.in_transaction:
                raise _ignored(_BEGIN)
        connection.execute(_LOCK)
    except sqlite3.OperationalError as error:
        code = error.sqlite_errorcode
        if code == sqlite3.SQLITE_ERROR:
            raise NotAnEosdbFileError(
                f"{path} has no tables of eosdb's; create them with `eosdb init --adopt --wal FILE`, or "
                'eosdb.connect(path, adopt="wal"), and open your connection to that file'
            ) from error
        if code & 0xFF == sqlite3.SQLITE_BUSY:
            if code == sqlite3.SQLITE_BUSY_SNAPSHOT:
                raise DatabaseLockedError(f"{path}: {_STALE}") from error
            raise locked_error(path, describe_sqlites(path)) from error
        raise


def _check(connection: sqlite3.Connection, path: str) -> None:
    """Check that the connection's settings and schema do not change the meaning of eosdb's statements."""
    for pragma in _PRAGMAS:
        if connection.execute(f"PRAGMA {pragma}").fetchone() is None:
            raise _ignored(f"PRAGMA {pragma}")
    check_newest(connection, path)
    if sync_has_failed(path):
        raise StorageError(
            f"{path}: a sync has failed, so nothing was published. The next write of eosdb's own renews "
            "the WAL: run `eosdb housekeeping`, then try again"
        )
    if connection.execute(_CALLS).fetchone() != _CALLED:
        raise _ignored("SELECT, or one of the functions " + ", ".join(FUNCTIONS))
    temporary = connection.execute(_TEMPORARY).fetchall()
    hides = [name for row in temporary for name in row if name is None or guard.is_own(name)]
    hides += [f"{name}()" for (name,) in connection.execute(_REPLACED, FUNCTIONS)]
    trial = connection.execute(_TRIAL).fetchone()
    if trial is not None and tuple(map(type, trial)) != (int, int, str):
        hides.append("a converter for TEXT, INT or INTEGER")
    if hides:
        raise InvalidRequestError(
            f"on this connection {', '.join(sorted(set(hides)))} is the program's (a temporary table or "
            "trigger, a function, a converter), not eosdb's or SQLite's own, so that eosdb's statements "
            "would not mean the same; nothing was published. Use a connection without it"
        )
    guard.check_names(connection)


def _set_savepoint(connection: sqlite3.Connection) -> None:
    for statement in (_UNDO, _KEEP):
        with contextlib.suppress(sqlite3.OperationalError):  # The savepoint should not exist.
            connection.execute(statement)
            raise _ignored(statement)
    try:
        connection.execute(_SET)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise IllegalStateError(UNREAD) from error
        raise
    try:
        connection.execute(_UNDO)
    except sqlite3.OperationalError as error:
        raise _ignored(_SET) from error


def _undo(connection: sqlite3.Connection) -> None:
    """Roll back to the savepoint; if that fails, the whole transaction. SQLite may have done so already."""
    if not connection.in_transaction:
        return
    try:
        connection.execute(_UNDO)
        connection.execute(_KEEP)
    except (sqlite3.Error, MemoryError, EosdbError):
        connection.rollback()
