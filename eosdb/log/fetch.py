"""Reading a partition: records up to what the isolation level allows, and offsets by time.

Everything here runs on one snapshot of the file. Control records and aborted data are part of a
fetch; leaving them out is the reader's work, as with Kafka's consumer.
"""

from __future__ import annotations

import sqlite3
from operator import itemgetter
from typing import Final

from eosdb.errors import InvalidRequestError, OffsetOutOfRangeError
from eosdb.log import data, row_check, transaction_index
from eosdb.log.checksum import CONTENT, CONTENT_GIVEN
from eosdb.log.partitions import Partition
from eosdb.model import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AbortedTransaction,
    FetchedData,
    FetchResult,
    LogRecord,
    OffsetAndTimestamp,
)

ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")

_RANGE: Final = (
    'FROM records WHERE partition_id = ? AND "offset" >= ? AND "offset" < ? ORDER BY "offset"'
)
_RECORDS: Final = {
    check_crcs: (
        f'SELECT "offset", timestamp, timestamp_type, key, value, headers, producer_id, {content}, '
        f"producer_epoch, sequence, is_transactional, control {_RANGE}"
    )
    for check_crcs, content in ((True, CONTENT), (False, "NULL"))
}
_DATA: Final = {
    check_crcs: (
        'SELECT "offset", timestamp, timestamp_type, key, value, headers, '
        f"{data.TRANSACTION_OF}, {content} {_RANGE}"
    )
    for check_crcs, content in ((True, CONTENT_GIVEN), (False, "NULL"))
}
_HEADERS: Final = itemgetter(row_check.HEADERS)
_BY_TIME: Final = (
    'SELECT "offset", timestamp FROM records '
    'WHERE partition_id = ? AND "offset" >= ? AND timestamp >= ? ORDER BY "offset" LIMIT 1'
)
_TIME_INDEX: Final = (
    'SELECT "offset" FROM time_index WHERE partition_id = ? AND timestamp < ? '
    "ORDER BY timestamp DESC LIMIT 1"
)
_NEWEST: Final = (
    'SELECT "offset", timestamp FROM records WHERE partition_id = ? AND "offset" >= ? '
    'ORDER BY timestamp DESC, "offset" LIMIT 1'
)


def check_isolation_level(isolation_level: object) -> bool:
    """Whether it is read_committed. Raises InvalidRequestError for an unknown level."""
    if isolation_level not in ISOLATION_LEVELS:
        raise InvalidRequestError(
            f"isolation_level: got {isolation_level!r}, expected one of {', '.join(ISOLATION_LEVELS)}"
        )
    return isolation_level == "read_committed"


def upper_bound(partition: Partition, *, read_committed: bool) -> int:
    """The offset a reader of this isolation level must not reach."""
    return partition.last_stable_offset if read_committed else partition.log_end_offset


def fetch(
    connection: sqlite3.Connection,
    partition: Partition,
    offset: int,
    *,
    read_committed: bool,
    max_records: int,
    max_bytes: int,
    check_crcs: bool = True,
) -> FetchResult:
    """Records from `offset` on, at least one when there is one.

    Raises OffsetOutOfRangeError below the log start and beyond the log end, and CorruptRecordError when
    the first one is not what was written.
    """
    bound = _checked_bound(partition, offset, read_committed)
    found = connection.execute(_RECORDS[check_crcs], (partition.partition_id, offset, bound))
    rows, exhausted = data.within(found, partition, max_records, max_bytes)
    next_offset = max(offset, bound) if exhausted else rows[-1][0] + 1
    if check_crcs:
        rows, next_offset = row_check.checked(partition, rows, offset, next_offset)
    return FetchResult(
        [_log_record(partition, *row) for row in rows],
        partition.log_end_offset,
        partition.last_stable_offset,
        partition.log_start_offset,
        _aborted(connection, partition, offset, next_offset) if read_committed and rows else [],
        next_offset,
    )


def fetch_data(
    connection: sqlite3.Connection,
    partition: Partition,
    offset: int,
    *,
    read_committed: bool,
    max_records: int,
    max_bytes: int,
    check_crcs: bool = True,
) -> FetchedData:
    """The same without control records, as rows that SQLite made: what SQLite and Python do for each column
    of each record is what reading costs."""
    bound = _checked_bound(partition, offset, read_committed)
    found = connection.execute(_DATA[check_crcs], (partition.partition_id, offset, bound))
    rows, exhausted = data.within(found, partition, max_records, max_bytes, only_data=True)
    next_offset = max(offset, bound) if exhausted else rows[-1][0] + 1
    if check_crcs:
        rows, next_offset = row_check.checked(partition, rows, offset, next_offset)
    rows = data.without_markers(rows)
    if any(map(_HEADERS, rows)):
        rows = [
            (*row[:5], row_check.headers(partition, row[0], row[5]) or None, *row[6:])
            for row in rows
        ]
    return FetchedData(
        rows,
        partition.log_end_offset,
        partition.last_stable_offset,
        partition.log_start_offset,
        _aborted(connection, partition, offset, next_offset) if read_committed and rows else [],
        next_offset,
    )


def _checked_bound(partition: Partition, offset: int, read_committed: bool) -> int:
    if not partition.log_start_offset <= offset <= partition.log_end_offset:
        raise OffsetOutOfRangeError(
            f"{partition.topic_partition}: got offset {offset}, the log goes from "
            f"{partition.log_start_offset} to {partition.log_end_offset}"
        )
    return upper_bound(partition, read_committed=read_committed)


def _aborted(
    connection: sqlite3.Connection, partition: Partition, offset: int, next_offset: int
) -> list[AbortedTransaction]:
    return transaction_index.collect(connection, partition, offset, next_offset)


def _log_record(
    partition: Partition,
    offset: int,
    timestamp: int,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: str | None,
    producer_id: int,
    _: int | None,
    producer_epoch: int,
    sequence: int,
    is_transactional: int,
    control: str | None,
) -> LogRecord:
    return LogRecord(
        offset,
        timestamp,
        timestamp_type,
        key,
        value,
        row_check.headers(partition, offset, headers),
        producer_id,
        producer_epoch,
        sequence,
        is_transactional == 1,
        control,
    )


def list_offset(
    connection: sqlite3.Connection, partition: Partition, timestamp: int, *, read_committed: bool
) -> OffsetAndTimestamp:
    """The first record at or after `timestamp`, or what EARLIEST, LATEST and MAX_TIMESTAMP ask for.

    (-1, -1) when there is none below what the isolation level allows (Kafka:
    fetchOffsetByTimestamp).
    """
    bound = upper_bound(partition, read_committed=read_committed)
    if timestamp == EARLIEST:
        return OffsetAndTimestamp(partition.log_start_offset, -1)
    if timestamp == LATEST:
        return OffsetAndTimestamp(bound, -1)
    if timestamp == MAX_TIMESTAMP:
        row = _newest(connection, partition)
    else:
        row = _first_at(connection, partition, timestamp)
    if row is None or row[0] >= bound:
        return OffsetAndTimestamp(-1, -1)
    return OffsetAndTimestamp(*row)


def _newest(connection: sqlite3.Connection, partition: Partition) -> tuple[int, int] | None:
    row: tuple[int, int] | None
    if partition.max_timestamp_offset >= max(partition.log_start_offset, partition.clean_offset):
        return partition.max_timestamp_offset, partition.max_timestamp
    row = connection.execute(
        _NEWEST, (partition.partition_id, partition.log_start_offset)
    ).fetchone()
    return row


def _first_at(
    connection: sqlite3.Connection, partition: Partition, timestamp: int
) -> tuple[int, int] | None:
    """Everything below the index entry's offset is older, so the walk begins there."""
    indexed = connection.execute(_TIME_INDEX, (partition.partition_id, timestamp)).fetchone()
    start = max(partition.log_start_offset, indexed[0] if indexed else 0)
    row: tuple[int, int] | None = connection.execute(
        _BY_TIME, (partition.partition_id, start, timestamp)
    ).fetchone()
    return row
