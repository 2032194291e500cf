"""Finds the owner's views, triggers and foreign keys that would break without eosdb's tables.

SQLite reports the tables that a view or trigger uses when it compiles a statement on it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Final

from eosdb.store.schema import guard
from eosdb.store.schema.newest import newest_schema

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
"""SQL: the foreign keys, by table."""
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
    """Return the owner's objects that use, belong to, or refer to eosdb's tables and views."""
    ours = guard.own_names().union(name.lower() for name in typed_views(connection))
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
        if type_ == "view" and _uses(connection, f"SELECT * FROM {_quoted(name)}", ours):
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
    """For each kind of statement that fires triggers on the table: the views and triggers that use
    eosdb's tables."""
    columns = ""
    with contextlib.suppress(sqlite3.Error):
        columns = ", ".join(
            f"{_quoted(name)} = {_quoted(name)}"
            for (name,) in connection.execute(
                "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0", (table,)
            )
        )
    for statement in (
        f"INSERT INTO {_quoted(table)} DEFAULT VALUES",
        f"DELETE FROM {_quoted(table)}",
        f"UPDATE {_quoted(table)} SET {columns}",
    ):
        if sources := _uses(connection, statement, ours):
            yield sources


def _uses(connection: sqlite3.Connection, statement: str, ours: frozenset[str]) -> set[str]:
    """The innermost view or trigger of each access to eosdb's tables; empty for a direct access."""
    sources: set[str] = set()

    def note(action: int, name: str | None, _: object, __: object, source: str | None) -> int:
        if action in _USES and (name or "").lower() in ours:
            sources.add((source or "").lower())
        return sqlite3.SQLITE_OK

    connection.set_authorizer(note)
    try:
        with contextlib.suppress(sqlite3.Error):  # The object was broken before.
            connection.execute(f"EXPLAIN {statement}").close()
    finally:
        connection.set_authorizer(None)
    return sources


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
