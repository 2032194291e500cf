"""The baseline: the folded tables as of an event, a second copy of each, from which replay begins.

It lags behind: `maintenance.history` folds into it the events that are due, and deletes them in the same
commit. An event at or before it stays while a record has its position, and no longer: rows of the log
find their event, and nothing else is asked of it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from eosdb.errors import InvalidRequestError
from eosdb.model.clock import format_time_ms
from eosdb.store.schema.newest import BASELINE_TABLE, in_baseline, materialized_tables
from eosdb.store.schema.row_checksum import row_checksum
from eosdb.store.writing.unit import Unit


class Baseline(NamedTuple):
    """`timestamp` is that of the event at `position`, the last one that is folded; of those behind it,
    up to `measured_position`, it is known how large they are."""

    position: int
    timestamp: int
    measured_position: int
    measured_bytes: int


_COLUMNS: Final = ", ".join(Baseline._fields)
_READ: Final = f"SELECT {_COLUMNS} FROM {BASELINE_TABLE}"
_SAVE: Final = f"UPDATE {BASELINE_TABLE} SET ({_COLUMNS}, checksum) = (?, ?, ?, ?, ?)"


def read(source: Unit | sqlite3.Connection) -> Baseline:
    """Where the baseline is; position 0 as long as everything is kept."""
    row = source.execute(_READ).fetchone()
    return Baseline(0, 0, 0, 0) if row is None else Baseline(*row)


def save(source: Unit | sqlite3.Connection, baseline: Baseline) -> None:
    source.execute(_SAVE, (*baseline, row_checksum(*baseline)))


def check_reached(connection: sqlite3.Connection, position: int, asked: str) -> None:
    """Raises InvalidRequestError for a position before the baseline: the history does not go back to what
    was `asked` for."""
    at = read(connection)
    if position < at.position:
        raise InvalidRequestError(
            f"{asked} is before the history of this file, which begins with the state after event "
            f"{at.position} ({format_time_ms(at.timestamp)}): earlier events have been deleted "
            "(history.retention.ms, history.retention.bytes); give that position or a later one, or use a "
            "backup"
        )


def problems(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with the row that says where the baseline is, for `verify`."""
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


# decisions/0022: the projections are the same, so their statements are, but for the names of tables.
class BaselineConnection:
    """A connection on which statements of projections read and write the baseline's tables."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Any = ()) -> sqlite3.Cursor:
        return self._connection.execute(in_terms_of_baseline(statement), parameters)

    def executemany(self, statement: str, parameters: Iterable[Any]) -> sqlite3.Cursor:
        return self._connection.executemany(in_terms_of_baseline(statement), parameters)


_VIEW: Final = re.compile(r"\s*(CREATE|DROP)\s+VIEW\b")
_NOTHING: Final = "SELECT NULL WHERE FALSE"


@lru_cache(maxsize=512)
def in_terms_of_baseline(statement: str) -> str:
    """The statement with the baseline's tables. The views of a file are not the baseline's to make: it
    has their rows."""
    if _VIEW.match(statement):
        return _NOTHING
    return _tables().sub(lambda found: found[1] + in_baseline(found[2]), statement)


@lru_cache(maxsize=1)
def _tables() -> re.Pattern[str]:
    """Names of tables where they are tables: `partitions` and `groups` are columns, too."""
    return re.compile(rf"\b((?:FROM|INTO|UPDATE|JOIN)\s+)({'|'.join(materialized_tables())})\b")


_EVENTS_WITHOUT_ROWS: Final = """
WITH gone (position, first) AS (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:gone)
)
SELECT position FROM gone
WHERE position IS NOT (
    SELECT r.position FROM records r WHERE r.partition_id = :partition_id AND r."offset" > first
    ORDER BY r."offset" LIMIT 1
) AND position IS NOT (
    SELECT r.position FROM records r WHERE r.partition_id = :partition_id AND r."offset" < first
    ORDER BY r."offset" DESC LIMIT 1
)
"""


def forget_events(unit: Unit, partition_id: int, deleted: Iterable[Sequence[int]]) -> None:
    """Rows of the partition have been deleted, given by offset and position: delete their events, if
    they are at or before the baseline and have no row left.

    The rows of an event lie together, so one that is left is a neighbour of those that are gone.
    """
    until, first = read(unit).position, dict[int, int]()
    for offset, position in deleted:
        if position <= until:
            first[position] = min(offset, first.get(position, offset))
    if first:
        asked = {"partition_id": partition_id, "gone": json.dumps([*first.items()])}
        unit.executemany(
            "DELETE FROM journal WHERE position = ?",
            unit.execute(_EVENTS_WITHOUT_ROWS, asked).fetchall(),
        )
