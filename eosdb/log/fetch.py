"""Reading a partition: records up to what the isolation level allows, and offsets by time.

Everything here runs on one snapshot of the file. Control records and aborted data are part of a
fetch; leaving them out is the reader's work, as with Kafka's consumer.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final

from eosdb.errors import InvalidRequestError, OffsetOutOfRangeError
from eosdb.log import transaction_index
from eosdb.log.batch import headers_from_text
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

_RECORDS: Final = (
    'SELECT "offset", timestamp, timestamp_type, key, value, headers, producer_id, producer_epoch, '
    "sequence, is_transactional, control FROM records "
    'WHERE partition_id = ? AND "offset" >= ? AND "offset" < ? ORDER BY "offset" LIMIT ?'
)
_DATA: Final = (
    'SELECT "offset", timestamp, timestamp_type, key, value, headers, '
    "CASE is_transactional WHEN 1 THEN producer_id ELSE -1 END FROM records "
    'WHERE partition_id = ? AND "offset" >= ? AND "offset" < ? AND control IS NULL '
    'ORDER BY "offset" LIMIT ?'
)
_HEADERS: Final = itemgetter(5)
_CHUNK: Final = 64
"""So many rows are read before their size is looked at: what is read too much stays bounded."""
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
) -> FetchResult:
    """Records from `offset` on, at least one when there is one.

    Raises OffsetOutOfRangeError below the log start and beyond the log end.
    """
    bound = _checked_bound(partition, offset, read_committed)
    found = connection.execute(_RECORDS, (partition.partition_id, offset, bound, max_records + 1))
    rows, exhausted = _within(found, partition, max_records, max_bytes)
    next_offset = max(offset, bound) if exhausted else rows[-1][0] + 1
    return FetchResult(
        [_log_record(*row) for row in rows],
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
) -> FetchedData:
    """The same without control records, as rows that SQLite made: what SQLite and Python do for each column
    of each record is what reading costs."""
    bound = _checked_bound(partition, offset, read_committed)
    found = connection.execute(_DATA, (partition.partition_id, offset, bound, max_records + 1))
    rows, exhausted = _within(found, partition, max_records, max_bytes)
    next_offset = max(offset, bound) if exhausted else rows[-1][0] + 1
    if any(map(_HEADERS, rows)):
        rows = [
            (*row[:5], None if row[5] is None else headers_from_text(row[5]), row[6])
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


def _within(
    found: sqlite3.Cursor, partition: Partition, max_records: int, max_bytes: int
) -> tuple[list[tuple[Any, ...]], bool]:
    """The rows that both limits allow, at least one, and whether there are no more.

    Nothing is measured in a log that is smaller than the limit.
    """
    if partition.size_bytes <= max_bytes:
        rows = found.fetchall()
        return rows[:max_records], len(rows) <= max_records
    rows, sizes = [], []
    left = max_bytes
    while left >= 0 and (chunk := found.fetchmany(_CHUNK)):
        rows += chunk
        measured = [len(row[3] or b"") + len(row[4] or b"") + len(row[5] or "") for row in chunk]
        sizes += measured
        left -= sum(measured)
    if left < 0:
        fitting = bisect_right(list(accumulate(sizes)), max_bytes)
        max_records = min(max_records, max(fitting, 1))
    return rows[:max_records], len(rows) <= max_records


def _log_record(
    offset: int,
    timestamp: int,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: str | None,
    producer_id: int,
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
        () if headers is None else headers_from_text(headers),
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
