"""Restores a file to the state after an earlier event. In a copy, it deletes later events and their
records, and folds the state again.

The copy will have another history, so it gets a new file id. States before the baseline cannot be restored,
nor records that retention or compaction has removed since. New events in the copy move the log start, or
the clean offset, past the missing records.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Final, NamedTuple

from eosdb.broker.core import Core
from eosdb.coordinator.projection import apply
from eosdb.errors import InvalidRequestError
from eosdb.events.kinds import LogCleaned, LogStartOffsetMoved
from eosdb.log import checksum
from eosdb.log.batch import STORED_SIZE
from eosdb.log.partition_rows import Partition, by_id, read_all, sound
from eosdb.maintenance import copies
from eosdb.maintenance.replay import rebuild
from eosdb.model.clock import format_time_ms
from eosdb.model.damage import reads
from eosdb.model.progress import Progress, report_progress
from eosdb.model.validation import check_int, check_path
from eosdb.model.values import PARTITIONS_MAX
from eosdb.store import baseline, journal
from eosdb.store.file.connection import hearing
from eosdb.store.schema import file_id, newest
from eosdb.store.schema.event_names import member
from eosdb.store.schema.identify import check_known
from eosdb.store.schema.newest import GIVES_PAGES_BACK
from eosdb.store.schema.row_checksum import signed
from eosdb.store.writing.unit import Unit

_NEWEST_AT: Final = """
SELECT ifnull(max(position), 0) FROM (
    SELECT position, timestamp FROM eosdb_journal UNION ALL SELECT position, timestamp FROM eosdb_baseline
)
WHERE timestamp <= ?
"""
"""SQL. Includes the baseline, because the event at its position may have been deleted."""
_TRIGGERS: Final = """
SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name IN ('eosdb_journal', 'records')
"""
_CLEANED: Final = f"""
SELECT {member(LogCleaned, "partition_id")}, max({member(LogCleaned, "clean_offset")})
FROM eosdb_journal WHERE kind = 'LogCleaned' AND position > ? GROUP BY 1
"""
_FIRST_EVENT: Final = "SELECT min(timestamp) FROM eosdb_journal"


def restore_to(
    core: Core,
    target: str | os.PathLike[str],
    position: int | None = None,
    timestamp: int | None = None,
    *,
    on_progress: Progress | None = None,
) -> int:
    """Write a copy of the file as it was after event `position`, or at `timestamp` (ms): give exactly one
    of the two. Returns the position.

    Records that retention or compaction has removed since cannot be restored; the copy's log start shows
    that. `on_progress(done, total)` counts pages and events. Raises InvalidRequestError for a position
    beyond the journal or before the history (`history_retention_ms`), and IllegalStateError if `target`
    exists.
    """
    path = check_path("target", target)

    def work(report: Progress) -> int:
        with core.store.read() as connection:
            check_known(connection)
            wanted = wanted_position(connection, position, timestamp)
            _copy_after(connection, path, wanted, core.clock.time_ms(), report)
        return wanted

    return report_progress(on_progress, work)


def wanted_position(
    connection: sqlite3.Connection, position: int | None, timestamp: int | None
) -> int:
    """Return the position to restore: `position`, or that of the newest event at or before `timestamp`
    (ms). Raises InvalidRequestError for a position beyond the journal or before the baseline, for a time
    before the first event, and unless exactly one is given."""
    if (position is None) == (timestamp is None):
        raise InvalidRequestError("expected either a journal position or a timestamp, and not both")
    if position is not None:
        check_int("position", position, 0, journal.last_position(connection))
        baseline.check_reached(connection, position, f"position {position}")
        return position
    at_time = check_int("timestamp", timestamp, 0)
    (newest,) = connection.execute(_NEWEST_AT, (at_time,)).fetchone()
    baseline.check_reached(connection, newest, format_time_ms(at_time))
    (first,) = connection.execute(_FIRST_EVENT).fetchone()
    if not newest and first is not None:
        raise InvalidRequestError(
            f"timestamp: got {format_time_ms(at_time)}, which is before the first event, at "
            f"{format_time_ms(first)}; give a later time (position 0 restores an empty file)"
        )
    return int(newest)


def _copy_after(
    source: sqlite3.Connection,
    target: str,
    position: int,
    now_ms: int,
    on_progress: Progress,
) -> None:
    """Create `target` with the state after `position`. Progress counts the copied pages, the folded events,
    and the pages that are then rewritten."""
    pages = copies.page_count(source)
    total = pages + position + pages

    def change(copied: sqlite3.Connection) -> None:
        _cut_after(copied, position, now_ms, lambda done, _: on_progress(pages + done, total))
        on_progress(total, total)

    copies.copy(source, target, lambda done, _: on_progress(done, total), change)


def _cut_after(
    connection: sqlite3.Connection, position: int, now_ms: int, on_progress: Progress
) -> None:
    """Reset the copy to the state after `position`; `on_progress` counts folded events."""
    since = _since(connection, position)
    connection.execute("BEGIN IMMEDIATE")
    triggers = connection.execute(_TRIGGERS).fetchall()
    for name, _ in triggers:
        connection.execute(f'DROP TRIGGER "{name}"')
    connection.execute("DELETE FROM eosdb_journal WHERE position > ?", (position,))
    connection.execute("DELETE FROM records WHERE position > ?", (position,))
    at = baseline.read(connection)
    baseline.save(connection, at._replace(measured_position=at.position, measured_bytes=0))
    unit = Unit(connection, apply)
    rebuild(unit, on_progress)
    for partition in read_all(connection, -PARTITIONS_MAX):
        _admit_losses(unit, partition, since.get(partition.partition_id, _Since()), now_ms)
    # `rebuild` has created eosdb's triggers. The missing ones are the owner's: create them, too.
    present = {name for name, _ in connection.execute(_TRIGGERS)}
    for name, sql in triggers:
        if name not in present:
            connection.execute(sql)
    file_id.renew(connection)
    connection.execute("COMMIT")
    if not newest.of(connection).is_adopted:
        connection.execute(GIVES_PAGES_BACK)
    with hearing(connection):
        connection.execute("VACUUM")


class _Since(NamedTuple):
    """Where a partition has lost records since the restored position: all below the log start, and those
    that compaction removed below `clean_offset` (-1: none)."""

    log_start_offset: int = 2**63 - 1
    clean_offset: int = -1
    missing_sum: int = 0
    """The sum of the wrongly missing records, which the copy must not hide."""


@reads("journal")
def _since(connection: sqlite3.Connection, position: int) -> dict[int, _Since]:
    """Return for each partition the limits of the records lost since the position."""
    found = {}
    for partition in sound(connection, "partitions", ()):
        start, clean = partition.log_start_offset, partition.clean_offset
        there = checksum.between(connection, partition.partition_id, start, clean)
        missing = signed(partition.cleaned_sum - there)
        found[partition.partition_id] = _Since(start, missing_sum=missing)
    for partition_id, clean in connection.execute(_CLEANED, (position,)):
        found[partition_id] = found.get(partition_id, _Since())._replace(clean_offset=clean)
    return found


@reads("partitions")
def _admit_losses(unit: Unit, partition: Partition, since: _Since, now_ms: int) -> None:
    partition_id, start = partition.partition_id, partition.log_start_offset
    where = (now_ms, *partition.topic_partition, partition_id)
    if since.log_start_offset > start:
        (first,) = unit.execute(
            'SELECT min("offset") FROM records WHERE partition_id = ?', (partition_id,)
        ).fetchone()
        start = partition.log_end_offset if first is None else max(first, start)
    if start > partition.log_start_offset:
        there = checksum.between(unit, partition_id, start, partition.clean_offset)
        gone = signed(partition.cleaned_sum - there - since.missing_sum)
        size = partition.size_bytes - _size(unit, partition_id, start)
        unit.record(LogStartOffsetMoved(*where, start, size, "restore", gone))
        partition = by_id(unit, partition_id)
    if since.clean_offset >= 0:
        clean = min(since.clean_offset, partition.log_end_offset)
        there = checksum.between(unit, partition_id, start, max(clean, partition.clean_offset))
        unit.record(
            LogCleaned(
                *where,
                clean_offset=clean,
                removed=0,
                size=partition.size_bytes - _size(unit, partition_id, start),
                horizons=(),
                expired_horizons=(),
                unindexed=(),
                passed_sum=signed(there + since.missing_sum),
                removed_sum=partition.cleaned_sum,
            )
        )


def _size(unit: Unit, partition_id: int, start: int) -> int:
    (size,) = unit.execute(
        f"SELECT COALESCE(sum({STORED_SIZE}), 0) FROM records "
        'WHERE partition_id = ? AND "offset" >= ?',
        (partition_id, start),
    ).fetchone()
    return int(size)
