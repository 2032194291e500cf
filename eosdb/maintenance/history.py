"""Trims the history: folds the oldest events into the baseline, and deletes them from the journal.

`history.retention.ms` and `history.retention.bytes` decide which events are due. Each step is one unit of
limited size. An event whose records are stored stays in the journal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple

from eosdb.errors import CorruptDatabaseError
from eosdb.events import encoding
from eosdb.events.kinds import Event
from eosdb.model.config import BrokerConfig
from eosdb.model.failpoints import Failpoint, reach
from eosdb.store import baseline, journal
from eosdb.store.baseline import Baseline, BaselineFolding
from eosdb.store.schema.row_checksum import signed
from eosdb.store.writing.unit import Unit, late

EVENTS_PER_UNIT: Final = 60
_BYTES_PER_UNIT: Final = 256 * 1024
_MEASURED_PER_UNIT: Final = 5_000
_UNMEASURED_MAX: Final = 1_000
"""The most events that a reader measures each time. If there are more, a unit measures them once."""
_SIZE: Final = (
    "length(kind) + length(CAST(detail AS BLOB)) + ifnull(length(topic), 0) "
    "+ ifnull(length(CAST(transactional_id AS BLOB)), 0) + 32"
)
"""SQL: the bytes of an event: its texts, and SQLite's overhead for the numbers and the row."""
_SIZES: Final = (
    f"SELECT position, {_SIZE} AS size FROM eosdb_journal "
    "WHERE position > ? ORDER BY position LIMIT ?"
)
_MEASURE: Final = f"SELECT max(position), ifnull(sum(size), 0) FROM ({_SIZES})"
_NEXT: Final = (
    "SELECT timestamp FROM eosdb_journal "
    "WHERE position > ? AND position < ? ORDER BY position LIMIT 1"
)
_ROWS_LEFT: Final = (
    'SELECT 1 FROM records WHERE partition_id = ? AND "offset" BETWEEN ? AND ? LIMIT 1'
)


class _Sized(NamedTuple):
    position: int
    event: Event
    size: int


def is_due(connection: sqlite3.Connection, config: BrokerConfig, now_ms: int) -> bool:
    """Whether `advance` has work to do. Needs only a few look-ups on a read connection."""
    last = journal.last_position(connection)
    at = baseline.read(connection)
    oldest = connection.execute(_NEXT, (at.position, last)).fetchone()
    if oldest is None:
        return False
    if config.history_retention_ms >= 0 and oldest[0] <= now_ms - config.history_retention_ms:
        return True
    if not _may_be_too_large(connection, config):
        return False
    if last - at.measured_position > _UNMEASURED_MAX:
        return True
    _, more = connection.execute(_MEASURE, (at.measured_position, _UNMEASURED_MAX)).fetchone()
    return at.measured_bytes + int(more) > config.history_retention_bytes


def advance(unit: Unit, config: BrokerConfig, now_ms: int) -> int:
    """Fold some due events into the baseline, and delete them. Returns their number, which is also 0 if
    this unit could only measure events."""
    last = unit.last_position()
    at = before = baseline.read(unit)
    if _may_be_too_large(unit, config):
        at = _measured(unit, at)
    due = _due(unit, at, last, config, now_ms)
    if due:
        rows_sum = _fold(unit, due)
        reach(Failpoint.HISTORY_FOLDED)
        at = _after(at, due, rows_sum)
    if at != before:
        baseline.save(unit, at)
    unit.executemany(
        "DELETE FROM eosdb_journal WHERE position = ?",
        [(position,) for position, event, _ in due if not _has_rows(unit, event)],
    )
    if due:
        reach(Failpoint.HISTORY_TRIMMED)
    return len(due)


def _may_be_too_large(source: Unit | sqlite3.Connection, config: BrokerConfig) -> bool:
    """Whether the journal can exceed `history.retention.bytes`: it cannot if the file is smaller."""
    (file_bytes,) = source.execute(
        "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    ).fetchone()
    return 0 <= config.history_retention_bytes < int(file_bytes)


def _measured(unit: Unit, at: Baseline) -> Baseline:
    until, size = unit.execute(_MEASURE, (at.measured_position, _MEASURED_PER_UNIT)).fetchone()
    if until is None:
        return at
    return at._replace(measured_position=until, measured_bytes=at.measured_bytes + size)


def _due(
    unit: Unit, at: Baseline, last: int, config: BrokerConfig, now_ms: int
) -> Sequence[_Sized]:
    """Return the due events after the baseline, as many as a unit may fold."""
    due: list[_Sized] = []
    folded, excess = 0, at.measured_bytes - config.history_retention_bytes
    rows = unit.execute(
        f"SELECT {journal.COLUMNS}, {_SIZE} FROM eosdb_journal WHERE position > ? AND position < ? "
        f"ORDER BY position LIMIT {EVENTS_PER_UNIT}",
        (at.position, last),
    )
    for *row, size in rows:
        position, event = journal.event_of(row)
        by_time = 0 <= config.history_retention_ms <= now_ms - event.timestamp
        by_size = config.history_retention_bytes >= 0 and folded < excess
        if not (by_time or by_size) or folded > _BYTES_PER_UNIT:
            break
        folded += size
        due.append(_Sized(position, event, size))
    return due


def _fold(unit: Unit, due: Sequence[_Sized]) -> int:
    """Fold the events into the baseline's tables. Returns the change of the sum of the rows' checksums.
    Raises CorruptDatabaseError."""
    baseline.watch(unit.connection)
    try:
        with late(unit.connection, unit.projection) as writing:
            folding = BaselineFolding(writing)
            for position, event, _ in due:
                unit.projection(folding, event, position)
    except (sqlite3.IntegrityError, TypeError, AttributeError, OverflowError) as error:
        raise CorruptDatabaseError(
            f"journal: the events from position {due[0].position} on cannot be folded into the baseline "
            f"({error!r}), so the history was not trimmed; `eosdb verify` shows the damage"
        ) from error
    return baseline.changed(unit.connection)


def _after(at: Baseline, due: Sequence[_Sized], rows_sum: int) -> Baseline:
    position, event, _ = due[-1]
    measured = sum([size for place, _, size in due if place <= at.measured_position])
    return Baseline(
        position,
        event.timestamp,
        max(at.measured_position, position),
        at.measured_bytes - measured,
        signed(at.rows_sum + rows_sum),
    )


def _has_rows(unit: Unit, event: Event) -> bool:
    """Whether a record of the event is stored, so that the event must stay in the journal."""
    where = encoding.place(event)
    return where is not None and unit.execute(_ROWS_LEFT, where).fetchone() is not None
