"""Offsets by time: the first record at or after a time, and the newest record.

The time index gives the start of a scan, and is itself checked against records: a late start, or skipped
records, would give a reader less than requested.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from eosdb.errors import CorruptDatabaseError
from eosdb.log import transaction_index
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import block, row_check
from eosdb.log.reading.block import ReadLimits
from eosdb.model.fetched import Want
from eosdb.model.values import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAndTimestamp

_TIMES: Final = (
    # The join by rowid makes SQLite take the values from the row and not from an index.
    'SELECT r.timestamp, r."offset", r.control IS NULL, r.partition_id = asked '
    "FROM (SELECT ? AS asked, rowid, * FROM records) i CROSS JOIN records r ON r.rowid = i.rowid "
    'WHERE i.partition_id = asked AND i."offset" >= ? AND i."offset" < ? ORDER BY i."offset"'
)
_TIME_INDEX: Final = (
    'SELECT timestamp, "offset" FROM time_index WHERE partition_id = ? AND timestamp < ? '
    "ORDER BY timestamp DESC LIMIT 2"
)
_FEWEST: Final = 64
_MOST: Final = 4_096
"""The most records in one read; the first reads are smaller, because most scans are short."""


class _Times(NamedTuple):
    """The times of successive records, column by column."""

    timestamps: Sequence[int]
    offsets: Sequence[int]
    is_data: Sequence[int]


def list_offset(
    connection: sqlite3.Connection, partition: Partition, timestamp: int, *, read_committed: bool
) -> OffsetAndTimestamp:
    """Return the first record at or after `timestamp`, or the record for EARLIEST, LATEST and
    MAX_TIMESTAMP; (-1, -1) if the isolation level allows none (Kafka: fetchOffsetByTimestamp). Raises
    CorruptDatabaseError and CorruptRecordError."""
    bound = block.upper_bound(partition, read_committed=read_committed)
    if timestamp == EARLIEST:
        return OffsetAndTimestamp(partition.log_start_offset, -1)
    if timestamp == LATEST:
        return OffsetAndTimestamp(bound, -1)
    if timestamp == MAX_TIMESTAMP:
        newest = _newest(connection, partition)
    else:
        assert timestamp >= 0, timestamp
        newest = _first_at(connection, partition, timestamp)
    if newest is None or newest.offset >= bound:
        return OffsetAndTimestamp(-1, -1)
    return newest


def first_data_at(
    connection: sqlite3.Connection, partition: Partition, timestamp: int, *, read_committed: bool
) -> OffsetAndTimestamp | None:
    """Return the first record at or after `timestamp` that the isolation level shows; None without one.
    Markers do not count, and under read_committed neither do aborted records. Raises CorruptDatabaseError
    and CorruptRecordError."""
    # The index also has the times of markers, so it gives only a start; the scan below skips markers.
    start = _all_older_below(connection, partition, timestamp)
    bound = block.upper_bound(partition, read_committed=read_committed)
    for times in _walk(connection, partition, start, bound):
        if max(times.timestamps) < timestamp:
            continue
        data = [offset for offset, is_data in zip(times[1], times[2], strict=True) if is_data]
        first, end = times.offsets[0], times.offsets[-1] + 1
        gone = (
            transaction_index.taken_back_in(connection, partition, first, end, data)
            if read_committed
            else frozenset()
        )
        for time, offset, is_data in zip(*times, strict=True):
            if time >= timestamp and is_data and offset not in gone:
                return _whole(connection, partition, offset)
    return None


def _first_at(
    connection: sqlite3.Connection, partition: Partition, timestamp: int
) -> OffsetAndTimestamp | None:
    start = _all_older_below(connection, partition, timestamp)
    for times in _walk(connection, partition, start, partition.log_end_offset):
        if max(times.timestamps) >= timestamp:
            pairs = zip(times.timestamps, times.offsets, strict=True)
            return _whole(
                connection, partition, next(offset for at, offset in pairs if at >= timestamp)
            )
    return None


def _newest(connection: sqlite3.Connection, partition: Partition) -> OffsetAndTimestamp | None:
    if partition.max_timestamp_offset >= max(partition.log_start_offset, partition.clean_offset):
        return OffsetAndTimestamp(partition.max_timestamp_offset, partition.max_timestamp)
    newest: tuple[int, int] | None = None
    start, end = partition.log_start_offset, partition.log_end_offset
    for times in _walk(connection, partition, start, end):
        time = max(times.timestamps)
        if newest is None or time > newest[0]:
            newest = time, times.offsets[times.timestamps.index(time)]
    return None if newest is None else _whole(connection, partition, newest[1])


def _all_older_below(connection: sqlite3.Connection, partition: Partition, timestamp: int) -> int:
    """Return the start of the scan: by the time index, all records below it are older. Raises
    CorruptDatabaseError and CorruptRecordError."""
    # decisions/0058: an index entry has no checksum, so records must confirm it: the newest one between the
    # previous entry and this one must have this entry's time.
    entries = connection.execute(_TIME_INDEX, (partition.partition_id, timestamp)).fetchall()
    begin = partition.log_start_offset
    newest: tuple[int, int]
    before: tuple[int, int]
    newest, before = (*entries, (-1, -1), (-1, -1))[:2]
    columns = [*zip(*entries, strict=True)]
    if row_check.first_strange(columns, ("timestamp", "offset")) is not None:
        raise _misleading(partition, newest)
    if newest[1] <= begin:
        return begin
    start, whole = max(before[1], begin), max(begin, partition.clean_offset)
    greatest = max(
        (max(times.timestamps) for times in _walk(connection, partition, start, newest[1])),
        default=-1,
    )
    is_there = start >= whole and (start == 0 or before[1] >= begin)
    if (
        not before[0] < newest[0] < timestamp
        or not before[1] < newest[1] <= partition.log_end_offset
        or greatest > newest[0]
        or (is_there and greatest != newest[0])
    ):
        raise _misleading(partition, newest)
    return newest[1]


def _misleading(partition: Partition, entry: tuple[object, object]) -> CorruptDatabaseError:
    return CorruptDatabaseError(
        f"time_index: {partition.topic_partition}: the entry of offset {entry[1]!r:.40} does not fit the "
        "records before it; `eosdb inspect rebuild` restores it from the events, `eosdb verify` shows what "
        "else is damaged"
    )


def _walk(
    connection: sqlite3.Connection, partition: Partition, start: int, end: int
) -> Iterator[_Times]:
    """Yield the records of [start, end) in chunks. Raises CorruptRecordError if a record is missing, or
    the index leads to another record."""
    rows = connection.execute(_TIMES, (partition.partition_id, start, end))
    size = _FEWEST
    while chunk := rows.fetchmany(size):
        timestamps, offsets, is_data, is_own = zip(*chunk, strict=True)
        if (
            row_check.first_strange((timestamps, offsets), ("timestamp", "offset")) is not None
            or row_check.sound(partition, offsets, start, end) < len(offsets)
            or not all(is_own)
        ):
            raise row_check.damaged(partition, start, "or a later one cannot be found")
        yield _Times(timestamps, offsets, is_data)
        start, size = offsets[-1] + 1, min(2 * size, _MOST)
    if max(start, partition.clean_offset) < end:
        raise row_check.damaged(partition, max(start, partition.clean_offset), "is missing")


def _whole(connection: sqlite3.Connection, partition: Partition, offset: int) -> OffsetAndTimestamp:
    """Return the record's offset and time. Raises CorruptRecordError if it does not match its checksum."""
    found = block.read(
        connection, partition, offset, partition.log_end_offset, committed=False, want=Want.STORED,
        limits=ReadLimits(1, 0),
    )  # fmt: skip
    return OffsetAndTimestamp(offset, found.rows.timestamp[0])
