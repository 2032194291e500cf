"""The baseline: a second copy of the materialized tables, as of an earlier event, from which replay
starts.

`maintenance.history` advances it: in one commit it folds the events that are due into the baseline and
deletes them. An event at or before the baseline is kept only while a record refers to its position.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from eosdb.errors import InvalidRequestError
from eosdb.model.clock import format_time_ms
from eosdb.store.schema.newest import BASELINE_TABLE, in_baseline, materialized_tables
from eosdb.store.schema.row_checksum import row_checksum
from eosdb.store.schema.statement import Statement
from eosdb.store.writing.insertion import FoldedInsertion
from eosdb.store.writing.unit import Parameters, Unit

T = TypeVar("T")


class Baseline(NamedTuple):
    """`position` and `timestamp` are those of the last event folded into it. The events behind it, up to
    `measured_position`, have `measured_bytes` in total."""

    position: int
    timestamp: int
    measured_position: int
    measured_bytes: int


_COLUMNS: Final = ", ".join(Baseline._fields)
_READ: Final = f"SELECT {_COLUMNS} FROM {BASELINE_TABLE}"
_SAVE: Final = f"UPDATE {BASELINE_TABLE} SET ({_COLUMNS}, checksum) = (?, ?, ?, ?, ?)"


def read(source: Unit | sqlite3.Connection) -> Baseline:
    """Return the baseline's position; 0 as long as no event has been deleted."""
    row = source.execute(_READ).fetchone()
    return Baseline(0, 0, 0, 0) if row is None else Baseline(*row)


def save(source: Unit | sqlite3.Connection, baseline: Baseline) -> None:
    source.execute(_SAVE, (*baseline, row_checksum(*baseline)))


def check_reached(connection: sqlite3.Connection, position: int, asked: str) -> None:
    """Raises InvalidRequestError for a position before the baseline, where the history begins; `asked`
    names what was requested, for the message."""
    at = read(connection)
    if position < at.position:
        raise InvalidRequestError(
            f"{asked} is before the history of this file, which begins with the state after event "
            f"{at.position} ({format_time_ms(at.timestamp)}): earlier events have been deleted "
            "(history.retention.ms, history.retention.bytes); give that position or a later one, or use a "
            "backup"
        )


def problems(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with the row that stores the baseline's position, for `verify`."""
    rows = connection.execute(f"SELECT * FROM {BASELINE_TABLE}").fetchall()
    if len(rows) != 1:
        return [f"{BASELINE_TABLE}: found {len(rows)} rows, expected 1"]
    *columns, checksum = rows[0]
    if checksum != row_checksum(*columns):
        return [f"{BASELINE_TABLE}: the row {tuple(columns)} does not fit its checksum"]
    return []


def fill(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Copy the baseline's rows of `source` into the empty materialized tables of `target`."""
    for table in materialized_tables():
        rows = source.execute(f'SELECT * FROM "{in_baseline(table)}"')
        places = ", ".join("?" for _ in rows.description)
        target.executemany(f'INSERT INTO "{table}" VALUES ({places})', rows)


class BaselineFolding:
    """What projections see of a unit when they fold into the baseline's tables."""

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
        """Do nothing: the baseline stores the rows that describe views, not the views."""


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
    """Delete the events of deleted records (pairs of offset and position) that are at or before the
    baseline and have no record left.

    The records of an event are adjacent, so if one is left, it is next to a deleted one.
    """
    until, first = read(unit).position, dict[int, int]()
    for offset, position in deleted:
        if position <= until:
            first[position] = min(offset, first.get(position, offset))
    if first:
        parameters = (partition_id, json.dumps([*first.items()]))
        unit.executemany(
            "DELETE FROM journal WHERE position = ?",
            unit.execute(_EVENTS_WITHOUT_ROWS, parameters).fetchall(),
        )
