"""Typed views over the JSON values of a topic: plain SQL views, each with a row and an event.

The row stores the view's columns, because SQLite reports no declared type for computed columns.
"""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Final

from eosdb.errors import InvalidRequestError
from eosdb.events.kinds import ViewColumn, ViewCreated, ViewDropped
from eosdb.log import partition_rows
from eosdb.model.config import guess
from eosdb.model.damage import parsed, reads
from eosdb.model.reports import JsonView
from eosdb.model.values import TopicPartition
from eosdb.store.schema import guard
from eosdb.store.schema.texts import ASCII_ALONE, as_text, is_not_utf8
from eosdb.store.writing.table import Table
from eosdb.store.writing.unit import Folding, Unit

TYPES: Final = ("TEXT", "INTEGER", "REAL", "BOOLEAN", "JSON")
COORDINATES: Final = ("_partition", "_offset", "_timestamp", "_key")
"""The columns after the user's own in every typed view."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_VIEWS: Final = Table("eosdb_json_views", "name topic columns created_time", "name")
_PATH: Final = re.compile(r'[^."\[\]\x00-\x1f]+(\.[^."\[\]\x00-\x1f]+)*')


def parse_column(field: str, type_name: str) -> ViewColumn:
    """Parse a JSON field, or a dotted path of fields, into a column named after it. Raises
    InvalidRequestError."""
    name = field.replace(".", "_")
    if not _PATH.fullmatch(field) or not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"field {field!r}: expected the name of a JSON field, or a path such as customer.name, of "
            "letters, digits and underscores"
        )
    if type_name.upper() not in TYPES:
        raise InvalidRequestError(
            f"field {field}: got type {type_name!r}, expected one of {', '.join(TYPES)}"
        )
    return ViewColumn(name, field, type_name.upper())


def create(unit: Unit, name: str, topic: str, columns: tuple[ViewColumn, ...], now_ms: int) -> None:
    """Create a typed view. Raises UnknownTopicOrPartitionError, and InvalidRequestError for an invalid
    name or one in use."""
    partition_rows.load(unit, TopicPartition(topic, 0))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"view {name!r}: expected a name of up to 63 letters, digits and underscores that does not "
            "begin with a digit"
        )
    if guard.is_own(name) or name.lower().startswith("sqlite_"):
        raise InvalidRequestError(
            f"view {name!r}: this name is reserved for eosdb or SQLite, choose another"
        )
    taken = unit.execute(
        "SELECT type FROM sqlite_master WHERE lower(name) = lower(?)", (name,)
    ).fetchone()
    if taken is not None:
        raise InvalidRequestError(
            f"there is a {taken[0]} {name!r} already; drop it first, or choose another name"
        )
    names = [column.name.lower() for column in columns]
    if not columns or len(set(names)) < len(names) or set(names) & set(COORDINATES):
        raise InvalidRequestError(
            f"view {name}: expected one or more different fields, none of them named "
            f"{', '.join(COORDINATES)}; got {', '.join(column.name for column in columns) or 'none'}"
        )
    unit.record(ViewCreated(timestamp=now_ms, topic=topic, name=name, view_columns=columns))


def find(unit: Unit, name: str) -> tuple[str, str]:
    """Return the view's name as created, and its topic. Raises InvalidRequestError without such a view."""
    row = unit.execute(
        "SELECT name, topic FROM eosdb_json_views WHERE lower(name) = lower(?)", (name,)
    ).fetchone()
    if row is None:
        names = [each for (each,) in unit.execute("SELECT name FROM eosdb_json_views LIMIT 1000")]
        raise InvalidRequestError(
            f"there is no typed view {name!r}{guess(name, names)}; see `eosdb views list`"
        )
    return row[0], row[1]


def drop(unit: Unit, name: str, now_ms: int) -> None:
    unit.record(ViewDropped(timestamp=now_ms, name=name))


@reads("eosdb_json_views")
def describe(connection: sqlite3.Connection) -> list[JsonView]:
    return [
        JsonView(name, topic, {c["name"]: c["type"] for c in parsed(columns)})
        for name, topic, columns in connection.execute(
            "SELECT name, topic, columns FROM eosdb_json_views ORDER BY name"
        )
    ]


def view_created(unit: Folding, event: ViewCreated, position: int) -> None:
    columns = json.dumps([column._asdict() for column in event.view_columns])
    unit.execute(_VIEWS.insert, (event.name, event.topic, columns, event.timestamp))
    unit.change_views(f'DROP VIEW IF EXISTS "{event.name}"')
    unit.change_views(_definition(event.name, event.topic, event.view_columns))


@reads("eosdb_json_views")
def definitions(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the SQL of all views by name."""
    return {
        name: _definition(name, topic, tuple(ViewColumn(**column) for column in parsed(text)))
        for name, topic, text in connection.execute(
            "SELECT name, topic, columns FROM eosdb_json_views"
        )
    }


def make_all(connection: sqlite3.Connection) -> None:
    """Create all views from their rows, also those whose events a baseline has replaced."""
    for name, sql in definitions(connection).items():
        connection.execute(f'DROP VIEW IF EXISTS "{name}"')
        connection.execute(sql)


def view_dropped(unit: Folding, event: ViewDropped, position: int) -> None:
    unit.execute(_VIEWS.delete, (event.name,))
    unit.change_views(f'DROP VIEW IF EXISTS "{event.name}"')


_EXACT: Final = 2**53 - 1
"""Floating point holds integers up to here exactly."""


def _definition(name: str, topic: str, columns: tuple[ViewColumn, ...]) -> str:
    """Return the SQL of a view. Values that are not JSON become NULL, and so does what does not fit its
    column. Raises ValueError for a name that could inject SQL; an untrusted file may have such names."""
    names = (name, *(column.name for column in columns))
    if not all(map(_NAME.fullmatch, names)) or "'" in topic or guard.is_own(name):
        raise ValueError(f"view {name!r} of topic {topic!r}: eosdb creates no view with such names")
    extracted = ",\n            ".join(
        f"json_extract(document, {_path(column)}) AS c{i}" for i, column in enumerate(columns)
    )
    shown = ",\n    ".join(
        f'{_converted(f"c{i}", column.type)} AS "{column.name}"' for i, column in enumerate(columns)
    )
    return f"""CREATE VIEW "{name}" AS
SELECT
    {shown},
    _partition, _offset, _timestamp, _key
FROM (
    SELECT
            {extracted},
        _partition, _offset, _timestamp, _key
    FROM (
        SELECT
            CASE WHEN json_valid(CAST(value AS TEXT)) THEN CAST(value AS TEXT) END AS document,
            partition AS _partition, "offset" AS _offset, timestamp AS _timestamp,
            {as_text("key")} AS _key
        FROM committed_records
        WHERE topic = '{topic}'
    )
)"""


def _path(column: ViewColumn) -> str:
    path = "$" + "".join(f'."{field}"' for field in column.path.split("."))
    return "'" + path.replace("'", "''") + "'"


def _converted(value: str, type_name: str) -> str:
    """SQL: the value as this type, or NULL if that would change it."""
    if type_name in ("TEXT", "JSON"):
        text = f"CAST({value} AS TEXT)"
        invalid = is_not_utf8(f"CAST({value} AS BLOB)")
        return f"CASE WHEN {value} {ASCII_ALONE} OR NOT {invalid} THEN {text} END"
    # The comparison converts text that is a number as a whole.
    number = f"CAST({value} AS NUMERIC)"
    is_number = f"{value} = {number}"
    if type_name == "REAL":
        return f"CASE WHEN {is_number} THEN CAST({value} AS REAL) END"
    whole = f"{number} = CAST({number} AS INTEGER) AND {number} BETWEEN -{_EXACT} AND {_EXACT}"
    exact = f"typeof({number}) = 'integer' OR {whole}"
    if type_name == "BOOLEAN":
        exact = f"{number} IN (0, 1)"
    return f"CASE WHEN {is_number} AND ({exact}) THEN CAST({number} AS INTEGER) END"
