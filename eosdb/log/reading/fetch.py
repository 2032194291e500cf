"""Fetching records from a partition, up to the bound of the isolation level.

Everything here runs on one snapshot of the file. A fetch includes control records and aborted data,
which the client filters, as Kafka's consumer does. `fetch_data` filters for eosdb's own readers.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress, repeat
from operator import itemgetter
from typing import Any, Final, get_args

from eosdb.errors import InvalidRequestError, OffsetOutOfRangeError
from eosdb.log import transaction_index
from eosdb.log.checksum import CONTENT_ASKED, CONTENT_GIVEN, MARKER, MARKERS, UNCHECKED
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import at_once, row_check
from eosdb.log.record_rows import FETCHED, OFFSET, RANGE, STORED, Columns, beginning, by_column
from eosdb.model.fetched import FetchedColumns, FetchedData, FetchResult, LogRecord
from eosdb.model.values import Header, IsolationLevel

ISOLATION_LEVELS: Final = get_args(IsolationLevel)

_IN_ORDER: Final = f'{RANGE} ORDER BY "offset"'
_RECORDS: Final = {
    check_crcs: f"SELECT {beginning(content)}, {', '.join(STORED[len(FETCHED) :])} {_IN_ORDER}"
    for check_crcs, content in ((True, CONTENT_ASKED), (False, UNCHECKED))
}
_DATA: Final = {
    check_crcs: f"SELECT {beginning(content)} {_IN_ORDER}"
    for check_crcs, content in ((True, CONTENT_GIVEN), (False, UNCHECKED))
}
_CHUNK: Final = 64
"""How many rows are read between two checks of their size, which bounds what is read in excess."""
_MEASURED: Final = tuple(itemgetter(FETCHED.index(name)) for name in ("key", "value", "headers"))


def check_isolation_level(isolation_level: object) -> bool:
    """Whether the level is read_committed. Raises InvalidRequestError for an unknown one."""
    if isolation_level not in ISOLATION_LEVELS:
        raise InvalidRequestError(
            f"isolation_level: got {isolation_level!r}, expected one of {', '.join(ISOLATION_LEVELS)}"
        )
    return isolation_level == "read_committed"


def upper_bound(partition: Partition, *, read_committed: bool) -> int:
    """Return the end offset for readers of this isolation level."""
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
    """Return records from `offset` on, at least one if there is any.

    Raises OffsetOutOfRangeError below the log start and beyond the log end, and CorruptRecordError if
    the first record does not match its checksum.
    """
    fetched = fetch_columns(
        connection, partition, offset, read_committed=read_committed, max_records=max_records,
        max_bytes=max_bytes, check_crcs=check_crcs,
    )  # fmt: skip
    columns = (
        fetched.offsets, fetched.timestamps, fetched.timestamp_types, fetched.keys, fetched.values,
        fetched.headers or repeat(()), fetched.producer_ids, fetched.producer_epochs, fetched.sequences,
        map(bool, fetched.are_transactional), fetched.controls,
    )  # fmt: skip
    return FetchResult(
        list(map(LogRecord._make, zip(*columns, strict=False))),
        fetched.high_watermark,
        fetched.last_stable_offset,
        fetched.log_start_offset,
        fetched.aborted_transactions,
        fetched.next_offset,
    )


def fetch_columns(
    connection: sqlite3.Connection,
    partition: Partition,
    offset: int,
    *,
    read_committed: bool,
    max_records: int,
    max_bytes: int,
    check_crcs: bool = True,
    as_batches: bool = False,
) -> FetchedColumns:
    """The same, column by column, or with `as_batches` as record batches if the accelerator can. Raises
    the errors of `fetch`."""
    bound = _checked_bound(partition, offset, read_committed)
    next_offset, columns = max(offset, min(bound, offset + max_records)), Columns()
    batches: bytearray | None = None
    if as_batches:
        batches = at_once.batches(connection, partition, offset, next_offset, max_bytes)
    if batches is None and offset < bound:
        columns, next_offset = _stored(
            connection, partition, offset, bound, max_records, max_bytes, check_crcs=check_crcs
        )
    return FetchedColumns(
        columns.offset,
        columns.timestamp,
        columns.timestamp_type,
        columns.key,
        columns.value,
        _headers(partition, columns.offset, columns.headers),
        columns.producer_id,
        columns.producer_epoch,
        columns.sequence,
        columns.is_transactional,
        columns.control,
        partition.log_end_offset,
        partition.last_stable_offset,
        partition.log_start_offset,
        transaction_index.collect(connection, partition, offset, next_offset)
        if read_committed and (columns.offset or batches)
        else [],
        next_offset,
        batches,
    )


def _stored(
    connection: sqlite3.Connection,
    partition: Partition,
    offset: int,
    bound: int,
    max_records: int,
    max_bytes: int,
    *,
    check_crcs: bool,
) -> tuple[Columns, int]:
    """Return the records from `offset` on with all columns, and the offset after them."""
    cursor = connection.execute(_RECORDS[check_crcs], (partition.partition_id, offset, bound))
    rows, exhausted = within(cursor, partition, offset, STORED, max_records, max_bytes)
    next_offset = max(offset, bound) if exhausted else rows[-1][OFFSET] + 1
    columns = by_column(rows, STORED)
    if check_crcs:
        count, next_offset = row_check.checked(
            partition, columns, offset, bound, exhausted=exhausted
        )
        if count < len(rows):
            columns = by_column(rows[:count], STORED)
    return columns, next_offset


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
    """Return only the records that the isolation level shows, column by column.

    `max_records` includes records that are filtered out, so the result may have fewer, even none, with
    more to come. The cost of reading is what SQLite and Python spend on each column of each record.
    """
    bound = _checked_bound(partition, offset, read_committed)
    next_offset = min(bound, offset + max_records)
    cells: bytes | None = None
    found = at_once.columns(connection, partition, offset, next_offset, max_bytes)
    if found is not None:
        columns, cells = found
    else:
        columns, next_offset = _data_by_row(
            connection, partition, offset, bound, max_records, max_bytes, check_crcs=check_crcs
        )
    if read_committed and columns.offset:
        seen = columns.offset if check_crcs else None
        gone = transaction_index.taken_back_in(connection, partition, offset, next_offset, seen)
        if gone:
            kept = [at not in gone for at in columns.offset]
            columns = Columns._make(tuple(compress(column, kept)) for column in columns)
            cells = None
    return FetchedData(
        columns.offset,
        columns.timestamp,
        columns.timestamp_type,
        columns.key,
        columns.value,
        _headers(partition, columns.offset, columns.headers),
        partition.log_end_offset,
        partition.last_stable_offset,
        partition.log_start_offset,
        next_offset,
        cells,
    )


def _data_by_row(
    connection: sqlite3.Connection,
    partition: Partition,
    offset: int,
    bound: int,
    max_records: int,
    max_bytes: int,
    *,
    check_crcs: bool,
) -> tuple[Columns, int]:
    """Return the data records from `offset` on, aborted ones included, and the offset after them."""
    cursor = connection.execute(_DATA[check_crcs], (partition.partition_id, offset, bound))
    rows, exhausted = within(cursor, partition, offset, FETCHED, max_records, max_bytes)
    next_offset = max(offset, bound) if exhausted else rows[-1][OFFSET] + 1
    # What looks like an old marker may be a damaged record, so `checked` inspects it.
    markers = (MARKER,) if check_crcs else MARKERS
    columns = by_column(row_check.without_markers(rows, markers))
    if check_crcs and not row_check.are_whole(partition, rows, columns, offset, next_offset):
        count, next_offset = row_check.checked(
            partition, by_column(rows), offset, bound, exhausted=exhausted
        )
        columns = by_column(row_check.without_markers(rows[:count]))
    return columns, next_offset


def within(
    cursor: sqlite3.Cursor,
    partition: Partition,
    start: int,
    names: Iterable[str],
    max_records: int,
    max_bytes: int,
) -> tuple[list[tuple[Any, ...]], bool]:
    """Return the rows within both limits, at least one, and whether these are all rows. They end before a
    row with a value that eosdb never writes; raises CorruptRecordError if that is the first one.

    Sizes are not computed in a log that is smaller than `max_bytes`.
    """
    if partition.size_bytes <= max_bytes:
        rows = cursor.fetchmany(max_records + 1)
    else:
        rows, left = [], max_bytes
        while len(rows) <= max_records and (chunk := cursor.fetchmany(_CHUNK)):
            # Sizes are summed by chunk in C, and by row only in the chunk that reaches the limit.
            try:
                size = sum(sum(map(len, filter(None, map(part, chunk)))) for part in _MEASURED)
            except TypeError:  # A number, at which the rows end anyway.
                rows += chunk
                break
            if size > left:
                sizes = (sum(len(part(row) or b"") for part in _MEASURED) for row in chunk)
                fitting = bisect_right(list(accumulate(sizes)), left)
                max_records = min(max_records, max(len(rows) + fitting, 1))
                rows += chunk
                break
            rows += chunk
            left -= size
    cursor.close()
    strange = row_check.first_strange(rows, names)
    if strange is None:
        return rows[:max_records], len(rows) <= max_records
    place, name = strange
    if place == 0:
        at = rows[0][OFFSET]
        at = at if type(at) is int and at > start else start
        raise row_check.damaged(partition, at, f"has no {name} that eosdb writes")
    return rows[: min(place, max_records)], False


def _checked_bound(partition: Partition, offset: int, read_committed: bool) -> int:
    if not partition.log_start_offset <= offset <= partition.log_end_offset:
        raise OffsetOutOfRangeError(
            f"{partition.topic_partition}: got offset {offset}, the log goes from "
            f"{partition.log_start_offset} to {partition.log_end_offset}"
        )
    return upper_bound(partition, read_committed=read_committed)


def _headers(
    partition: Partition, offsets: Sequence[int], texts: Sequence[str | None]
) -> Sequence[tuple[Header, ...]]:
    """Return the headers of each record; empty if no record has any."""
    if texts.count(None) == len(texts):
        return ()
    return [
        row_check.headers(partition, offset, text)
        for offset, text in zip(offsets, texts, strict=True)
    ]
