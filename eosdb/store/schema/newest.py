"""The newest schema as SQL: the result of all revisions, and the documented views.

The revisions define the schema. Each has a script of plain SQL, and a new file gets all of them without
Alembic, which would need a quarter of a second. 64-bit integers are declared INT: Spark's JDBC
reader takes INTEGER for 32 bits. A projection's statement exists twice: for the live tables and for the
baseline's.

A file is either eosdb's own, recognised by its header, or another application's with eosdb's tables. The
header of such an adopted file belongs to its owner: applications store their schema number in
`user_version` and their identity in `application_id`. So eosdb recognises it by its tables.
"""

from __future__ import annotations

import re
import sqlite3
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

from eosdb.store.schema import file_id
from eosdb.store.schema.event_names import JOURNAL
from eosdb.store.schema.texts import COMMITTED_TEXTS

_HAS_BOTH: Final = "SELECT count(*) = 2 FROM sqlite_master WHERE type = 'table' AND name IN (?, ?)"


class Kind(NamedTuple):
    application_id: int
    version: int | None
    """The newest revision of eosdb's tables; None without such tables, -1 if unknown."""
    is_empty: bool
    """It has no tables, and its header is unset."""

    @property
    def is_adopted(self) -> bool:
        return self.version is not None and self.application_id != APPLICATION_ID


# decisions/0044: an adopted file keeps its owner's header, so eosdb's version is in a table.
def of(connection: sqlite3.Connection) -> Kind:
    """Return the kind of the file. For eosdb's own files, two fields of the header suffice."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (user_version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id == APPLICATION_ID:
        return Kind(application_id, int(user_version), False)
    if connection.execute(_HAS_BOTH, (IDENTITY_TABLE, ALEMBICS)).fetchone()[0]:
        return Kind(application_id, _revision(connection), False)
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return Kind(application_id, None, not (objects or application_id or user_version))


def _revision(connection: sqlite3.Connection) -> int:
    revisions = [str(name) for (name,) in connection.execute(f"SELECT version_num FROM {ALEMBICS}")]
    return int(revisions[0]) if len(revisions) == 1 and revisions[0].isdecimal() else -1


APPLICATION_ID: Final = 0x656F7364
"""The letters `eosd`, stored in the field `application_id` of the SQLite header."""
SCHEMA_VERSION: Final = 1
"""The number of the newest revision in `migrations`."""
EVENT_TABLES: Final = ("eosdb_journal", "records")
# decisions/0009: a rebuild keeps this table, because no event records a group session.
LEASE_TABLES: Final = ("group_sessions",)
IDENTITY_TABLE: Final = "eosdb_file"
"""The table with the file id. It is not an event, because it belongs to the file and not to its history."""
# decisions/0022: the baseline has copies of the folded tables at an earlier event; replay starts there.
BASELINE_TABLE: Final = "eosdb_baseline"
"""The table with the position of the baseline. The copies of the folded tables have this name as prefix."""
ALEMBICS: Final = "eosdb_alembic_version"
_OF_ALEMBIC: Final = (
    f"CREATE TABLE {ALEMBICS} (\n\tversion_num VARCHAR(32) NOT NULL, \n\t"
    f"CONSTRAINT {ALEMBICS}_pkc PRIMARY KEY (version_num)\n)"
)
"""Alembic creates its table by this text, so a new file equals an upgraded one."""


class SchemaObject(NamedTuple):
    type: str
    name: str
    table: str
    sql: str


@lru_cache(maxsize=1)
def newest_schema() -> tuple[SchemaObject, ...]:
    """Return every table, index, trigger and view of a new file, in the order of creation."""
    scratch = sqlite3.connect(":memory:", isolation_level=None)
    try:
        create(scratch)
        rows = scratch.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
        )
        return tuple(SchemaObject(*row) for row in rows)
    finally:
        scratch.close()


def tables() -> tuple[str, ...]:
    """Return the names of all tables, each after the tables that its foreign keys refer to."""
    return tuple(table.table for table in newest_schema() if table.type == "table")


def materialized_tables() -> tuple[str, ...]:
    """Return the names of the tables that are folded from events."""
    others = (*EVENT_TABLES, *LEASE_TABLES, IDENTITY_TABLE, ALEMBICS)
    return tuple(
        name for name in tables() if name not in others and not name.startswith(BASELINE_TABLE)
    )


def in_baseline(table: str) -> str:
    """Return the name of a materialized table's copy in the baseline."""
    return f"{BASELINE_TABLE}_{table.removeprefix('eosdb_')}"


# decisions/0023: with this, housekeeping returns free pages. It has no effect after the first page.
GIVES_PAGES_BACK: Final = "PRAGMA auto_vacuum=INCREMENTAL"


def create(connection: sqlite3.Connection) -> None:
    """Create the schema in an empty database, and mark its header. The caller provides the transaction."""
    create_objects(connection)
    stamp(connection, SCHEMA_VERSION)


def create_objects(connection: sqlite3.Connection) -> None:
    """Create the schema without changing the header, which in an adopted file belongs to its owner."""
    for statement in statements():
        connection.execute(statement)
    create_views(connection)
    file_id.renew(connection)


def problems(connection: sqlite3.Connection) -> list[str]:
    """For `verify`: return the fault of the stored revision, if any."""
    revisions = [name for (name,) in connection.execute(f"SELECT version_num FROM {ALEMBICS}")]
    if revisions == [f"{SCHEMA_VERSION:04}"]:
        return []
    return [f"{ALEMBICS}: found {revisions}, expected revision {SCHEMA_VERSION:04}"]


def unlike(connection: sqlite3.Connection) -> list[tuple[SchemaObject, str]]:
    """Return the tables, indexes, triggers and views that the owner or another program has dropped or
    changed, each with a description of the fault."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    present = {row[:2]: row[2:] for row in rows}
    found = []
    for wanted in newest_schema():
        there = present.get(wanted[:2])
        if there is None:
            found.append((wanted, f"{wanted.name}: this {wanted.type} of eosdb's is gone"))
        elif there != wanted[2:]:
            found.append((wanted, f"{wanted.name}: this {wanted.type} is not as eosdb makes it"))
    return found


def mend(connection: sqlite3.Connection) -> None:
    """Recreate damaged indexes, triggers and views, inside the caller's unit."""
    for wanted, _ in unlike(connection):
        if wanted.type != "table":
            connection.execute(f'DROP {wanted.type} IF EXISTS "{wanted.name}"')
            connection.execute(wanted.sql)


def stamp(connection: sqlite3.Connection, version: int) -> None:
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={version}")


def statements() -> list[str]:
    """Return the statements that create the result of all revisions in an empty database."""
    names = files("eosdb.migrations.versions").iterdir()
    scripts = sorted((f for f in names if f.name.endswith(".sql")), key=lambda f: f.name)
    texts = [script.read_text(encoding="utf-8") for script in scripts]
    stamp = f"INSERT INTO {ALEMBICS} VALUES ('{SCHEMA_VERSION:04}')"
    return [_OF_ALEMBIC, stamp, *(part for text in texts for part in text.split(_STATEMENT_END))]


_STATEMENT_END: Final = ";\n\n"
"""The separator of the scripts; no statement contains it."""


def create_views(connection: sqlite3.Connection) -> None:
    """Create this version's documented views."""
    for name, sql in views().items():
        connection.execute(f'DROP VIEW IF EXISTS "{name}"')
        connection.execute(sql)


@lru_cache(maxsize=1)
def views() -> dict[str, str]:
    """Return the views' definitions by name, each after the views it reads."""
    folder = files("eosdb.store.views")
    texts = {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    }
    texts |= {"journal": JOURNAL, "committed_texts": COMMITTED_TEXTS}
    first = ("committed_records", "all_records", "transaction_history")
    return {name: texts[name] for name in (*first, *sorted(set(texts) - set(first)))}


_TABLE: Final = re.compile(r"\{(\w+)\}")


# decisions/0022: a projection writes to the live tables or the baseline's; only table names differ.
class Statement(str):
    """An SQL statement for the live tables, and in `baseline` the same one for the baseline's tables. The
    template has the names of materialized tables in braces."""

    __slots__ = ("baseline",)

    baseline: str

    def __new__(cls, template: str) -> Statement:
        statement = super().__new__(cls, _TABLE.sub(r"\1", template))
        statement.baseline = _TABLE.sub(lambda found: in_baseline(found[1]), template)
        return statement
