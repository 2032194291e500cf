"""The baseline: a second copy of the materialized tables as of an earlier event, from which replay
starts.

Housekeeping advances it: one commit folds events into the baseline and deletes them. An event at or before
the baseline is kept only while a record refers to its position.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

from eosdb.errors import CorruptDatabaseError, InvalidRequestError
from eosdb.model.clock import format_time_ms
from eosdb.store.schema.newest import BASELINE_TABLE, Statement, in_baseline, materialized_tables
from eosdb.store.schema.row_checksum import row_checksum, signed
from eosdb.store.writing.insertion import FoldedInsertion
from eosdb.store.writing.unit import Parameters, Unit

T = TypeVar("T")


class Baseline(NamedTuple):
    """The baseline's state. `position` and `timestamp` are the last folded event's. The events after it, up
    to `measured_position`, have `measured_bytes` in total."""

    position: int = 0
    timestamp: int = 0
    measured_position: int = 0
    measured_bytes: int = 0
    rows_sum: int = 0
    """The sum of the checksums of all rows in the baseline's tables, to detect a missing or extra row."""


_PROBLEMS: Final = 20
_COLUMNS: Final = ", ".join(Baseline._fields)
_READ: Final = f"SELECT {_COLUMNS} FROM {BASELINE_TABLE}"
_SAVE: Final = f"UPDATE {BASELINE_TABLE} SET ({_COLUMNS}, checksum) = (?, ?, ?, ?, ?, ?)"


def read(source: Unit | sqlite3.Connection) -> Baseline:
    """Return the baseline's state; its position is 0 if no event was ever deleted."""
    row = source.execute(_READ).fetchone()
    return Baseline() if row is None else Baseline(*row)


def save(source: Unit | sqlite3.Connection, baseline: Baseline) -> None:
    source.execute(_SAVE, (*baseline, row_checksum(*baseline)))


def check_reached(connection: sqlite3.Connection, position: int, asked: str) -> None:
    """Raises InvalidRequestError for a position before the baseline, where the history begins. `asked`
    describes the request in the message."""
    at = read(connection)
    if position < at.position:
        raise InvalidRequestError(
            f"{asked} is before the history of this file, which begins with the state after event "
            f"{at.position} ({format_time_ms(at.timestamp)}): earlier events have been deleted "
            "(history.retention.ms, history.retention.bytes); give that position or a later one, or use a "
            "backup"
        )


def problems(connection: sqlite3.Connection) -> list[str]:
    """For `verify`: the faults of the baseline's row and of its tables' rows."""
    rows = connection.execute(f"SELECT {_COLUMNS}, checksum FROM {BASELINE_TABLE}").fetchall()
    if len(rows) != 1:
        return [f"{BASELINE_TABLE}: found {len(rows)} rows, expected 1"]
    *columns, checksum = rows[0]
    if checksum != row_checksum(*columns):
        return [f"{BASELINE_TABLE}: the row {tuple(columns)} does not fit its checksum"]
    found, total = list[str](), 0
    for table in map(in_baseline, materialized_tables()):
        weight = _weight(table)
        names = ", ".join(name for name in _names(connection, table) if name != '"checksum"')
        for *row, stored in connection.execute(f'SELECT {names}, checksum FROM "{table}"'):
            checksum = row_checksum(*row)
            total += weight * checksum
            if checksum != stored and len(found) < _PROBLEMS:
                found.append(f"{table}: the row {tuple(row)} does not fit its checksum")
    if signed(total) != (expected := Baseline(*columns).rows_sum):
        found.append(
            f"{BASELINE_TABLE}: the rows of its tables have the sum {signed(total)}, expected {expected}; "
            "one has been altered, added or deleted"
        )
    return found


def check_sound(connection: sqlite3.Connection) -> None:
    """Raises CorruptDatabaseError if the baseline was altered, before a copy or fold uses it."""
    if wrong := problems(connection):
        raise CorruptDatabaseError(
            f"{wrong[0]}; the baseline is damaged, so it was not used. Restore a backup; `eosdb verify` "
            "shows what else is damaged"
        )


def fill(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Copy the baseline's rows of `source` into the empty materialized tables of `target`."""
    for table in materialized_tables():
        names = ", ".join(_names(target, table))
        rows = source.execute(f'SELECT {names} FROM "{in_baseline(table)}"')
        places = ", ".join("?" for _ in rows.description)
        target.executemany(f'INSERT INTO "{table}" ({names}) VALUES ({places})', rows)


def _names(connection: sqlite3.Connection, table: str) -> list[str]:
    return [f'"{name}"' for _, name, *_ in connection.execute(f'PRAGMA table_info("{table}")')]


def _weight(table: str) -> int:
    """Return the number by which this table's checksums are multiplied in the sum, so that moving a row to
    another table changes the sum."""
    return crc32(table.encode())


class _RowsSum:
    """The SQL function that triggers call for the checksum of a baseline row. It also sums a unit's
    changes."""

    def __init__(self) -> None:
        self._total = 0

    def __call__(self, *arguments: Any) -> int:
        if not arguments:
            total, self._total = self._total, 0
            return signed(total)
        weight, *columns = arguments
        checksum = row_checksum(*columns)
        self._total += weight * checksum
        return checksum


_FUNCTION: Final = "eosdb_rows_sum"
_TRIGGER: Final = (
    "CREATE TEMP TRIGGER {table}_{name} AFTER {change} ON main.{table} BEGIN {body} END"
)
_FORGET: Final = f"SELECT {_FUNCTION}(-{{weight}}, {{old}}); "
_SET: Final = f"UPDATE {{table}} SET checksum = {_FUNCTION}({{weight}}, {{new}}) WHERE {{key}}; "
_WATCHED: Final = f"SELECT 1 FROM temp.sqlite_master WHERE name LIKE '{BASELINE_TABLE}%'"


def watch(connection: sqlite3.Connection) -> None:
    """Create temporary triggers that update the checksums of the baseline's rows when projections change
    them."""
    if connection.execute(_WATCHED).fetchone() is None:
        connection.create_function(_FUNCTION, -1, _RowsSum())
        # With this, INSERT OR REPLACE also runs the DELETE triggers, for the rows that it replaces.
        connection.execute("PRAGMA recursive_triggers=1")
        for table in map(in_baseline, materialized_tables()):
            for change, body in _bodies(connection, table):
                name = change.partition(" ")[0]
                connection.execute(
                    _TRIGGER.format(table=table, name=name, change=change, body=body)
                )
    changed(connection)


def changed(connection: sqlite3.Connection) -> int:
    """Return how much the sum of the rows' checksums has changed since the last call."""
    (total,) = connection.execute(f"SELECT {_FUNCTION}()").fetchone()
    return int(total)


def _bodies(connection: sqlite3.Connection, table: str) -> Iterator[tuple[str, str]]:
    """Yield INSERT, DELETE and UPDATE, each with the body of the table's trigger for that statement."""
    rows = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
    columns = [f'"{name}"' for _, name, *_ in rows if name != "checksum"]
    terms = {
        "table": table,
        "weight": _weight(table),
        "old": ", ".join(f"OLD.{name}" for name in columns),
        "new": ", ".join(f"NEW.{name}" for name in columns),
        "key": " AND ".join(f'"{name}" = NEW."{name}"' for _, name, *_, key in rows if key),
    }
    forget, set_ = _FORGET.format_map(terms), _SET.format_map(terms)
    yield "INSERT", set_
    yield "DELETE", forget
    yield f"UPDATE OF {', '.join(columns)}", forget + set_


class BaselineFolding:
    """A unit's interface for projections that fold into the baseline's tables."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self.memos: Final = unit.memos

    def forget(self) -> None:
        self._unit.forget()

    def save(
        self,
        table: str,
        key: Hashable,
        statement: Statement,
        row: Callable[[T], Sequence[object]],
        value: T,
    ) -> None:
        self._unit.save(in_baseline(table), key, statement.baseline, row, value)

    def insert(self, insertion: FoldedInsertion, row: Sequence[object]) -> None:
        self._unit.insert(insertion.baseline, row)

    def execute(self, statement: Statement, parameters: Parameters = ()) -> sqlite3.Cursor:
        return self._unit.execute(statement.baseline, parameters)

    def executemany(self, statement: Statement, parameters: Iterable[Parameters]) -> sqlite3.Cursor:
        return self._unit.executemany(statement.baseline, parameters)

    def change_views(self, statement: str) -> None:
        """Do nothing: the baseline stores the descriptions of typed views, but has no views."""


_EVENTS_WITHOUT_ROWS: Final = """
WITH gone (asked, position, first) AS (
    SELECT ?, json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)
)
SELECT position FROM gone
WHERE position IS NOT (
    SELECT r.position FROM records r WHERE r.partition_id = asked AND r."offset" > first
    ORDER BY r."offset" LIMIT 1
) AND position IS NOT (
    SELECT r.position FROM records r WHERE r.partition_id = asked AND r."offset" < first
    ORDER BY r."offset" DESC LIMIT 1
)
"""


def forget_events(unit: Unit, partition_id: int, deleted: Iterable[Sequence[int]]) -> None:
    """Delete the events of `deleted` records (offset and position) at or before the baseline. Events that
    still have a record stay. An event's records are adjacent, so only a deleted record's neighbours are
    checked."""
    until, first = read(unit).position, dict[int, int]()
    for offset, position in deleted:
        if position <= until:
            first[position] = min(offset, first.get(position, offset))
    if first:
        parameters = (partition_id, json.dumps([*first.items()]))
        unit.executemany(
            "DELETE FROM eosdb_journal WHERE position = ?",
            unit.execute(_EVENTS_WITHOUT_ROWS, parameters).fetchall(),
        )
