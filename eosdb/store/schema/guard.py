"""Protects eosdb's tables and views from the user's own SQL.

Only eosdb may write them and use names that start with `eosdb_`: the next rebuild would delete a row that
no event describes. To find the owner's views and triggers that need eosdb's tables, this module compiles
statements on them: SQLite then reports every table used.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from eosdb.errors import InvalidRequestError
from eosdb.store.schema import newest
from eosdb.store.schema.newest import newest_schema, tables, views

PREFIX: Final = "eosdb_"
_ON_A_TABLE: Final = {
    sqlite3.SQLITE_INSERT,
    sqlite3.SQLITE_UPDATE,
    sqlite3.SQLITE_DELETE,
    sqlite3.SQLITE_CREATE_TABLE,
    sqlite3.SQLITE_DROP_TABLE,
    sqlite3.SQLITE_CREATE_VIEW,
    sqlite3.SQLITE_DROP_VIEW,
    sqlite3.SQLITE_CREATE_VTABLE,
    sqlite3.SQLITE_DROP_VTABLE,
    # A temporary table or view would hide eosdb's of the same name from statements without `main`.
    sqlite3.SQLITE_CREATE_TEMP_TABLE,
    sqlite3.SQLITE_CREATE_TEMP_VIEW,
}
_ON_A_SECOND_NAME: Final = {
    sqlite3.SQLITE_CREATE_INDEX,
    sqlite3.SQLITE_DROP_INDEX,
    sqlite3.SQLITE_CREATE_TRIGGER,
    sqlite3.SQLITE_DROP_TRIGGER,
    sqlite3.SQLITE_CREATE_TEMP_INDEX,
    sqlite3.SQLITE_CREATE_TEMP_TRIGGER,
    sqlite3.SQLITE_ALTER_TABLE,
}
"""Actions with the index or trigger (ALTER TABLE: the database) as first argument and the table as
second."""
_HEADER: Final = {"application_id", "user_version"}
_PRAGMAS: Final = {
    *_HEADER, "checkpoint_fullfsync", "data_store_directory", "foreign_keys", "fullfsync",
    "hard_heap_limit", "journal_mode", "journal_size_limit", "locking_mode", "mmap_size", "query_only",
    "schema_version", "soft_heap_limit", "synchronous", "temp_store_directory", "wal_autocheckpoint",
    "wal_checkpoint", "writable_schema",
}  # fmt: skip
_HARMLESS: Final = _HEADER | {
    "defer_foreign_keys", "foreign_key_check", "foreign_key_list", "index_info", "index_list",
    "index_xinfo", "integrity_check", "quick_check", "table_info", "table_list", "table_xinfo",
}  # fmt: skip
_KEYS: Final = "foreign_keys"
_OFF: Final = {"0", "off", "false", "no"}
_last: Final = threading.local()
"""`name` is the table or setting of the last rejection in this thread. SQLite's error does not name it."""


@cache
def own_names() -> frozenset[str]:
    """Return the names of eosdb's tables and views in lower case."""
    return frozenset(name.lower() for name in (*tables(), *views()))


def is_own(name: str) -> bool:
    """Whether a table or view of this name is, or would be, eosdb's."""
    return name.lower().startswith(PREFIX) or name.lower() in own_names()


# Uses a range, because a program may have replaced LIKE's function. "`" follows "_" in ASCII.
_RESERVED: Final = (
    "SELECT name FROM main.sqlite_master WHERE type IN ('table', 'view') "
    "AND name COLLATE NOCASE >= 'eosdb_' AND name COLLATE NOCASE < 'eosdb`' /* eosdb */"
)


def check_names(connection: sqlite3.Connection) -> None:
    """Raises InvalidRequestError if a user's table or view has a reserved name: for a renamed table, SQLite
    does not pass the new name to the authorizer."""
    taken = [name for (name,) in connection.execute(_RESERVED) if name.lower() not in own_names()]
    if taken:
        raise InvalidRequestError(
            f"{', '.join(sorted(taken))}: names that begin with {PREFIX} are reserved for eosdb; nothing "
            "was stored; give your table another name"
        )


def may_not(action: int, first: str | None, second: str | None) -> bool:
    """Whether the authorizer must reject this action of the user's own SQL."""
    if action in _ON_A_TABLE:
        return is_own(first or "")
    if action == sqlite3.SQLITE_ALTER_TABLE and first == "temp":
        return True  # SQLite does not tell the new name.
    if action in _ON_A_SECOND_NAME:
        return is_own(second or "")
    if action == sqlite3.SQLITE_PRAGMA:
        # A pragma without a value only reads, except wal_checkpoint.
        return (first or "").lower() in _PRAGMAS and (
            second is not None or first == "wal_checkpoint"
        )
    return False


def sets_connection(action: int, first: str | None, second: str | None) -> bool:
    """Whether the action affects later statements on the connection: eosdb's own, or the next block's."""
    if action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH):
        return True
    name = (first or "").lower()
    if action != sqlite3.SQLITE_PRAGMA or second is None or name in _HARMLESS:
        return False
    return name != _KEYS or second.lower() not in _OFF


def authorizer(connection: sqlite3.Connection) -> Callable[..., int]:
    """Create the authorizer for connections that run the user's own SQL. In an adopted file the user may
    set the header."""
    theirs = _HEADER if newest.of(connection).is_adopted else frozenset()
    has_keys = False

    def authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
        nonlocal has_keys
        name = (first or "").lower() if action == sqlite3.SQLITE_PRAGMA else ""
        if name in theirs:
            return sqlite3.SQLITE_OK
        if name == _KEYS and second is not None:
            # SQLite ignores it within a transaction, so a rebuilt table would lose its children.
            wanted = second.lower() not in _OFF
            has_keys = has_keys if connection.in_transaction else wanted
            if has_keys == wanted:
                return sqlite3.SQLITE_OK
        is_refused = may_not(action, first, second)
        named = second if action in _ON_A_SECOND_NAME else first
        _last.name = named if is_refused else None
        return sqlite3.SQLITE_DENY if is_refused else sqlite3.SQLITE_OK

    return authorize


def refused(error: BaseException | None) -> InvalidRequestError | None:
    """Return the error to raise if the guard caused SQLite's error; None otherwise."""
    code = getattr(error, "sqlite_errorcode", None)
    # After a change of the schema, SQLite reports a rejection as SQLITE_SCHEMA.
    if code != sqlite3.SQLITE_AUTH and not (
        code == sqlite3.SQLITE_SCHEMA and str(error) == "not authorized"
    ):
        return None
    name, _last.name = getattr(_last, "name", None), None
    return InvalidRequestError(
        ("" if name is None else f"{name}: ")
        + "the statement would write one of eosdb's tables, use a name reserved for eosdb (its tables and "
        f"views, and all that begin with {PREFIX}, also for temporary ones), end the transaction, or "
        "change a setting of the connection or the file (foreign_keys: in a transaction). Write records "
        "and offsets with publish and commit_offsets, and give your own tables other names"
    )


_USES: Final = {
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_INSERT,
    sqlite3.SQLITE_UPDATE,
    sqlite3.SQLITE_DELETE,
}
REFERENCES: Final = (
    'SELECT DISTINCT m.name, f."table" FROM sqlite_master m, pragma_foreign_key_list(m.name) f '
    "WHERE m.type = 'table' ORDER BY 1, 2"
)
"""SQL for the foreign keys: the table, and the table it refers to."""
_OBJECTS: Final = (
    "SELECT type, name, tbl_name FROM sqlite_master WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~' "
    "ORDER BY rowid"
)


def own_objects(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """Return type, name and table of every object that is not eosdb's."""
    ours = {entry.name for entry in newest_schema()} | set(typed_views(connection))
    return [entry for entry in connection.execute(_OBJECTS) if entry[1] not in ours]


def typed_views(connection: sqlite3.Connection) -> list[str]:
    """Return the names of eosdb's views over JSON values."""
    return [name for (name,) in connection.execute("SELECT name FROM eosdb_json_views")]


def dependents(connection: sqlite3.Connection) -> list[str]:
    """Describe the owner's indexes, triggers, views and foreign keys that use eosdb's tables and views."""
    ours = own_names().union(name.lower() for name in typed_views(connection))
    own = own_objects(connection)
    uses = [
        f"the {type_} {name!r} on {table!r}, which is eosdb's"
        for type_, name, table in own
        if table.lower() in ours
    ]
    for table, parent in connection.execute(REFERENCES):
        if parent.lower() in ours and table.lower() not in ours:
            uses.append(f"the foreign key of {table!r} to {parent!r}")
    for type_, name, table in own:
        if type_ == "view" and _uses(connection, f"SELECT * FROM {quoted(name)}", ours):
            uses.append(f"the view {name!r}, which reads them")
        if type_ == "trigger" and any(
            name.lower() in sources or not sources & {other.lower() for _, other, _ in own}
            for sources in _changes(connection, table, ours)
        ):
            uses.append(f"the trigger {name!r} on {table!r}, which uses them")
    return uses


def _changes(
    connection: sqlite3.Connection, table: str, ours: frozenset[str]
) -> Iterator[set[str]]:
    """For INSERT, DELETE and UPDATE on the table, yield the views and triggers that the statement involves
    and that use eosdb's tables."""
    columns = ""
    with contextlib.suppress(sqlite3.Error):
        columns = ", ".join(
            f"{quoted(name)} = {quoted(name)}"
            for (name,) in connection.execute(
                "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0", (table,)
            )
        )
    for statement in (
        f"INSERT INTO {quoted(table)} DEFAULT VALUES",
        f"DELETE FROM {quoted(table)}",
        f"UPDATE {quoted(table)} SET {columns}",
    ):
        if sources := _uses(connection, statement, ours):
            yield sources


def _uses(connection: sqlite3.Connection, statement: str, ours: frozenset[str]) -> set[str]:
    """Return the innermost view or trigger of each access to eosdb's tables; "" for a direct access."""
    sources: set[str] = set()

    def note(action: int, name: str | None, _: object, __: object, source: str | None) -> int:
        if action in _USES and (name or "").lower() in ours:
            sources.add((source or "").lower())
        return sqlite3.SQLITE_OK

    connection.set_authorizer(note)
    try:
        with contextlib.suppress(sqlite3.Error):  # The view or trigger is invalid SQL.
            connection.execute(f"EXPLAIN {statement}").close()
    finally:
        connection.set_authorizer(None)
    return sources


def quoted(name: str) -> str:
    """Quote a name of the user's as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
