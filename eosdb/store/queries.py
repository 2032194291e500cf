"""Facts about an open file, and the user's own read-only queries."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import takewhile
from typing import Any, Final

from eosdb.errors import InvalidRequestError
from eosdb.model.answers import Parameters
from eosdb.model.config import guess
from eosdb.model.damage import parsed, reads
from eosdb.model.reports import ViewDescription
from eosdb.model.validation import check_collection, shown
from eosdb.model.values import TransactionState
from eosdb.native import accelerator
from eosdb.store import baseline, journal, wal
from eosdb.store.file.connection import connect, hearing
from eosdb.store.file.failures import translate, translated
from eosdb.store.file.open_files import size_of
from eosdb.store.schema import file_id, newest
from eosdb.store.store import Store
from eosdb.system.road import road

Bound = tuple[object, ...] | dict[str, object]
_AT_ONCE: Final = 100
# A search in the text finds every use, because SQL cannot spell these names in another way.
_OF_THE_PROCESS: Final = re.compile(
    "hard_heap_limit|soft_heap_limit|temp_store_directory|data_store_directory|fts3_tokenizer", re.I
)
"""SQLite settings that affect every connection. The last one takes the address of machine code."""
_WRITES: Final = re.compile(
    r"(\s|--.*\n|/\*[^*]*\*+([^/*][^*]*\*+)*/)*"  # Comments are no part of the statement.
    r"(ATTACH|PRAGMA\s+(\w+\s*\.\s*)?(journal_mode\s*[=(]|wal_checkpoint))", re.I
)  # fmt: skip


def info(store: Store) -> dict[str, object]:
    """Return sizes, counts and versions of the file."""
    with store.read() as connection:

        def one(sql: str) -> Any:
            return connection.execute(sql).fetchone()[0]

        counters = dict(connection.execute("SELECT name, value FROM counters"))
        facts = {
            "size_bytes": os.path.getsize(store.path),
            "wal_bytes": size_of(store.path + "-wal"),
            "file_id": file_id.read(connection),
            "schema_version": newest.of(connection).version,
            "sqlite_version": sqlite3.sqlite_version,
            "native": accelerator.road(),
            "portable": road.IS_PORTABLE,
            "topics": one("SELECT count(*) FROM topics"),
            "partitions": one("SELECT count(*) FROM partitions WHERE partition >= 0"),
            "records": one(
                "SELECT COALESCE(sum(log_end_offset - log_start_offset), 0) FROM partitions "
                "WHERE partition >= 0"
            ),
            "transactional_ids": one("SELECT count(*) FROM transactional_ids"),
            "open_transactions": one(
                "SELECT count(*) FROM transactional_ids "
                f"WHERE state = '{TransactionState.ONGOING.label}'"
            ),
            "groups": one(
                "SELECT count(*) FROM (SELECT group_id FROM groups UNION SELECT group_id FROM "
                "group_offsets UNION SELECT group_id FROM pending_group_offsets)"
            ),
            "journal_position": journal.last_position(connection),
            "history_position": baseline.read(connection).position,
            "coordinator_epoch": counters.get("coordinator_epoch", 0),
            "next_producer_id": counters.get("next_producer_id", 0),
        }
        connection.execute("COMMIT")  # End the snapshot, so that it is not listed as a reader.
        return facts | {"wal_held_by": wal.readers(store.path)}


def query(
    store: Store, sql: str, parameters: Parameters
) -> tuple[tuple[str, ...], Iterator[tuple[Any, ...]]]:
    """Run one read-only statement; returns its columns and rows. Raises InvalidRequestError if SQLite
    rejects the statement."""
    check(sql)
    values = bindable(parameters)
    store.check_open()
    with translated(store.path):
        connection = connect(store.path, store.lock_timeout_ms, read_only=True)
    return answer(connection, store.path, sql, values)


def check(sql: str) -> None:
    """Raises InvalidRequestError for statements with an effect outside their connection."""
    if _WRITES.match(sql):
        raise InvalidRequestError(_ONLY_READS)
    if (named := _OF_THE_PROCESS.search(sql)) is not None:
        raise InvalidRequestError(
            f"the statement names {named[0]}, which affects every connection of this process; a query may "
            "neither read nor change it. Remove it"
        )


def bindable(parameters: Parameters) -> Bound:
    """The parameters as SQLite takes them: in order, or by name for `:name`. Raises InvalidRequestError."""
    if type(parameters) is dict or isinstance(parameters, Mapping):
        return {str(name): _bindable(f":{name}", value) for name, value in parameters.items()}
    values = check_collection("parameters", parameters)
    return tuple(_bindable(f"number {at}", value) for at, value in enumerate(values, 1))


def _bindable(name: str, value: object) -> object:
    """The value of a parameter; a scalar of numpy as Python's. The driver takes other buffers for BLOBs,
    and times for texts, and so finds nothing."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if value is None or isinstance(value, int | float | str | bytes | bytearray | memoryview):
        return value
    raise InvalidRequestError(
        f"parameter {name}: got {shown(value)}, expected a number, text, bytes or None; give a time as "
        "milliseconds since the epoch, or as your table has it; give each value of a collection a ?"
    )


def answer(
    connection: sqlite3.Connection, path: str, sql: str, parameters: Bound
) -> tuple[tuple[str, ...], Iterator[tuple[Any, ...]]]:
    """Run the statement on a read-only connection, which is closed after the last row."""
    rows = _rows(connection, path, sql, parameters)
    columns: tuple[str, ...] = next(rows)
    return columns, rows


def _rows(
    connection: sqlite3.Connection, path: str, sql: str, parameters: Bound
) -> Iterator[tuple[Any, ...]]:
    """Yield the columns, then the rows. A short result is read at once. A longer one holds a snapshot until
    its last row is read or the iterator is dropped."""
    with closing(connection), refusals(path, connection):
        # With limit 0, ATTACH fails anywhere in a statement. An authorizer would also reject the statement
        # when a signal interrupts its callback.
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        with hearing(connection):
            cursor = connection.execute(sql, parameters)
            rows = cursor.fetchmany(_AT_ONCE)
        if len(rows) < _AT_ONCE:
            connection.close()  # All rows are read, so the snapshot ends.
        yield tuple(column[0] for column in cursor.description or ())
        yield from rows
        if len(rows) == _AT_ONCE:
            with hearing(connection):
                yield from cursor


@contextmanager
def refusals(path: str, connection: sqlite3.Connection | None = None) -> Iterator[None]:
    """Translate SQLite's errors about a user's statement inside the block; a connection gives the names
    that are similar to one that does not exist."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_AUTH):
            raise InvalidRequestError(_ONLY_READS) from error
        if code in _REFUSED:
            hint = "" if connection is None else _hint(connection, str(error))
            raise InvalidRequestError(f"SQLite refuses the statement: {error}{hint}") from error
        raise translate(error, path) from error
    except (sqlite3.Warning, ValueError, OverflowError) as error:
        raise InvalidRequestError(f"SQLite refuses the statement: {error}") from error


def _hint(connection: sqlite3.Connection, refused: str) -> str:
    """Return what helps after such an error: a similar view or column, or how a topic is queried."""
    what, _, name = refused.partition(": ")
    name = name.rpartition(".")[2]
    if what == "malformed JSON":
        return "; json_valid(…) finds the values that are JSON"
    known = {"no such table": _VIEWS, "no such column": _COLUMNS}.get(what)
    with suppress(sqlite3.Error):  # A fleet has no topics, and somebody's own view may be broken.
        if known is _VIEWS and connection.execute(_TOPIC, (name,)).fetchone():
            return f"; it is a topic: FROM committed_texts WHERE topic = '{name}', or a typed view"
        return "" if known is None else guess(name, [each for (each,) in connection.execute(known)])
    return ""


_TOPIC: Final = "SELECT 1 FROM topics WHERE topic = ?"
_VIEWS: Final = "SELECT name FROM sqlite_master WHERE type = 'view'"
_COLUMNS: Final = (
    "SELECT c.name FROM sqlite_master v, pragma_table_info(v.name) c WHERE v.type = 'view'"
)


_ONLY_READS: Final = (
    "the statement would write or attach a file; a query only reads. Write your own tables with db.engine, "
    "db.begin() or any SQLite client"
)
_REFUSED: Final = (
    sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_RANGE, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG,
)  # fmt: skip


def describe_views(connection: sqlite3.Connection) -> list[ViewDescription]:
    """Describe the documented views, with their columns in this file. A view's
    description is the first sentence of the comment above its definition."""
    texts = {name: _first_sentence(sql) for name, sql in newest.views().items()}
    return [
        ViewDescription(
            name,
            tuple(row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')),
            text,
        )
        for name, text in texts.items()
    ]


def _first_sentence(sql: str) -> str:
    lines = takewhile(lambda line: line.startswith("-- "), sql.splitlines())
    text = " ".join(line.removeprefix("-- ") for line in lines)
    return text.partition(". ")[0].removesuffix(".") + "."


_COMPUTED = {
    "journal": {"detail": "TEXT"},
    "transactions": {"partitions": "TEXT"},
    "consumer_offsets": {"readable_lag": "INTEGER", "held_back": "INTEGER"},
    "partition_offsets": {},
    "transaction_history": {
        "producer_id": "INTEGER", "producer_epoch": "INTEGER", "from_state": "TEXT",
        "to_state": "TEXT", "partitions": "TEXT",
    },
    "all_records": {"status": "TEXT"},
    "record_batches": {
        "base_offset": "INTEGER", "count": "INTEGER", "producer_id": "INTEGER",
        "producer_epoch": "INTEGER", "base_sequence": "INTEGER", "is_transactional": "INTEGER",
        "control": "TEXT", "max_timestamp": "INTEGER", "size": "INTEGER",
    },
}  # fmt: skip
"""Columns of the documented views for which SQLite reports no type."""


@reads("eosdb_json_views")
def columns(connection: sqlite3.Connection, view: str) -> dict[str, str]:
    """Return the columns of a table or view with their types."""
    types = dict(_COMPUTED.get(view, {}))
    row = connection.execute(
        "SELECT columns FROM eosdb_json_views WHERE name = ?", (view,)
    ).fetchone()
    if row is not None:
        types |= {column["name"]: _JSON_TYPES[column["type"]] for column in parsed(row[0])}
    # Typed views also compute their key as text.
    computed = "" if row is None else "TEXT"
    return {
        name: types.get(name, _PLAIN_TYPES.get(declared, declared) or computed)
        for name, declared in connection.execute(
            "SELECT name, type FROM pragma_table_info(?)", (view,)
        )
    }


_PARAMETER: Final = re.compile(
    r"""('[^']*'|"[^"]*"|`[^`]*`|\[[^]]*]|--[^\n]*|/\*.*?\*/)|\?\d*|[:@$]\w+""", re.DOTALL
)


@reads("eosdb_json_views")
def types(store: Store, sql: str) -> list[str]:
    """Return the column types of a query that reads typed views; empty if it reads none."""
    try:
        with closing(connect(store.path, store.lock_timeout_ms, read_only=True)) as connection:
            return types_in(connection, typed_views(connection), sql)
    except (sqlite3.Error, sqlite3.Warning):
        return []


def typed_views(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return the names of the typed views, and their columns as JSON."""
    return connection.execute("SELECT name, columns FROM eosdb_json_views").fetchall()


def types_in(
    connection: sqlite3.Connection, views: Iterable[tuple[str, str]], sql: str, first: str = ""
) -> list[str]:
    """Do what `types` does on this connection. `first` declares columns in front of each view's. SQLite
    reports no types of computed columns, so temporary tables with declared types hide the views."""
    views = [(name, text) for name, text in views if name.lower() in sql.lower()]
    if not views:
        return []
    for name, text in views:
        columns = "".join(f'"{one["name"]}" {one["type"]}, ' for one in parsed(text))
        columns += "_partition, _offset, _timestamp TIMESTAMP, _key"
        connection.execute(f'CREATE TEMP TABLE "{name}" ({first}{columns})')
    # SQLite allows no parameters in a view.
    query = _PARAMETER.sub(lambda found: found[1] or "NULL", sql)
    connection.execute(f"CREATE TEMP VIEW eosdb_query AS {query}")
    found = connection.execute("SELECT type FROM pragma_table_info('eosdb_query')")
    return [kind for (kind,) in found]


_JSON_TYPES = {
    "TEXT": "TEXT", "JSON": "TEXT", "INTEGER": "INTEGER", "BOOLEAN": "INTEGER", "REAL": "REAL",
}  # fmt: skip
_PLAIN_TYPES = {"INT": "INTEGER"}
