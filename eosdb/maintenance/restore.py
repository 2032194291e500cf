"""Restores the file as of an earlier event: later events and their records are deleted, and the state is
folded again.

The copy's future is another history, so it gets a new file id. Nothing before the baseline can be
restored. Records that retention or compaction has removed since cannot be restored either: the copy
records that in events that advance the log start, or the clean offset, past them.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from eosdb.coordinator.projection import apply
from eosdb.errors import InvalidRequestError
from eosdb.events.kinds import LogCleaned, LogStartOffsetMoved
from eosdb.log.batch import STORED_SIZE
from eosdb.log.partition_rows import by_id
from eosdb.maintenance import copies
from eosdb.maintenance.replay import rebuild
from eosdb.model.clock import Clock, format_time_ms
from eosdb.model.damage import reads
from eosdb.model.progress import Progress, report_progress
from eosdb.model.validation import check_int
from eosdb.store import baseline, journal
from eosdb.store.file.hearing import hearing
from eosdb.store.schema import file_id, kind
from eosdb.store.schema.migrate import check_known
from eosdb.store.schema.newest import GIVES_PAGES_BACK
from eosdb.store.store import Store
from eosdb.store.writing.unit import Unit

_NEWEST_AT: Final = """
SELECT ifnull(max(position), 0) FROM (
    SELECT position, timestamp FROM journal UNION ALL SELECT position, timestamp FROM eosdb_baseline
)
WHERE timestamp <= ?
"""
"""The event at the baseline's position may be gone."""


def restore_to(
    store: Store,
    clock: Clock,
    target: str,
    position: int | None,
    timestamp: int | None,
    on_progress: Progress | None,
) -> int:
    """Write the restored file to `target`. Returns its position."""

    def work(report: Progress) -> int:
        with store.read() as connection:
            check_known(connection)
            wanted = wanted_position(connection, position, timestamp)
            _copy_after(connection, target, wanted, clock.time_ms(), report)
        return wanted

    return report_progress(on_progress, work)


def wanted_position(
    connection: sqlite3.Connection, position: int | None, timestamp: int | None
) -> int:
    """Return the position to restore: the given one, or that of the newest event at or before a time
    (ms; 0 if everything is later). Raises InvalidRequestError for a position beyond the journal or
    before the baseline, and unless exactly one is given."""
    if (position is None) == (timestamp is None):
        raise InvalidRequestError("expected either a journal position or a timestamp, and not both")
    if position is not None:
        check_int("position", position, 0, journal.last_position(connection))
        baseline.check_reached(connection, position, f"position {position}")
        return position
    at_time = check_int("timestamp", timestamp, 0)
    (newest,) = connection.execute(_NEWEST_AT, (at_time,)).fetchone()
    baseline.check_reached(connection, newest, format_time_ms(at_time))
    return int(newest)


def _copy_after(
    source: sqlite3.Connection,
    target: str,
    position: int,
    now_ms: int,
    on_progress: Progress,
) -> None:
    """Create `target` as the file was after `position`. Progress counts the file's pages, the events,
    and the pages again, because the rest is rewritten."""
    pages = copies.page_count(source)
    total = pages + position + pages

    def change(copied: sqlite3.Connection) -> None:
        _cut_after(copied, position, now_ms, lambda done, _: on_progress(pages + done, total))
        on_progress(total, total)

    copies.copy(source, target, lambda done, _: on_progress(done, total), change)


def _cut_after(
    connection: sqlite3.Connection, position: int, now_ms: int, on_progress: Progress
) -> None:
    """Turn the copy into the file as it was after `position`; `on_progress` counts folded events."""
    kept = {
        partition_id: (log_start_offset, clean_offset)
        for partition_id, log_start_offset, clean_offset in connection.execute(
            "SELECT partition_id, log_start_offset, clean_offset FROM partitions"
        )
    }
    connection.execute("BEGIN IMMEDIATE")
    triggers = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' "
        "AND tbl_name IN ('journal', 'records')"
    ).fetchall()
    for name, _ in triggers:
        connection.execute(f'DROP TRIGGER "{name}"')
    connection.execute("DELETE FROM journal WHERE position > ?", (position,))
    connection.execute("DELETE FROM records WHERE position > ?", (position,))
    at = baseline.read(connection)
    baseline.save(connection, at._replace(measured_position=at.position, measured_bytes=0))
    unit = Unit(connection, apply)
    rebuild(unit, on_progress)
    for (partition_id,) in connection.execute("SELECT partition_id FROM partitions").fetchall():
        _admit_losses(unit, partition_id, *kept.get(partition_id, (2**63 - 1, 0)), now_ms=now_ms)
    for _, sql in triggers:
        connection.execute(sql)
    file_id.renew(connection)
    connection.execute("COMMIT")
    if not kind.of(connection).is_adopted:
        connection.execute(GIVES_PAGES_BACK)
    with hearing(connection):
        connection.execute("VACUUM")


@reads("partitions")
def _admit_losses(
    unit: Unit, partition_id: int, log_start_offset: int, clean_offset: int, *, now_ms: int
) -> None:
    partition = by_id(unit, partition_id)
    if log_start_offset > partition.log_start_offset:
        (first,) = unit.execute(
            'SELECT min("offset") FROM records WHERE partition_id = ?', (partition_id,)
        ).fetchone()
        start = (
            partition.log_end_offset if first is None else max(first, partition.log_start_offset)
        )
        if start > partition.log_start_offset:
            unit.record(
                LogStartOffsetMoved(
                    timestamp=now_ms,
                    topic=partition.topic,
                    partition=partition.partition,
                    partition_id=partition_id,
                    log_start_offset=start,
                    size=partition.size_bytes - _size(unit, partition_id),
                    reason="restore",
                )
            )
    partition = by_id(unit, partition_id)
    if clean_offset > partition.clean_offset:
        unit.record(
            LogCleaned(
                timestamp=now_ms,
                topic=partition.topic,
                partition=partition.partition,
                partition_id=partition_id,
                clean_offset=min(clean_offset, partition.log_end_offset),
                removed=0,
                size=partition.size_bytes - _size(unit, partition_id),
                horizons=(),
                expired_horizons=(),
            )
        )


def _size(unit: Unit, partition_id: int) -> int:
    (size,) = unit.execute(
        f"SELECT COALESCE(sum({STORED_SIZE}), 0) FROM records WHERE partition_id = ?",
        (partition_id,),
    ).fetchone()
    return int(size)
