"""Reads a partition: one function and one result for every reader (decisions/0083).

Everything runs on one snapshot of the file. The accelerator makes the rows, or in unusual cases Python.
Both check the rows, and only Python reports errors. Below the last stable offset the
result is final. So readers that read parts of a range at different times together read a consistent set.

The accelerator packs and checks a range in C. Every offset must be stored, and every record must match its
checksum; otherwise Python reads row by row, finds the fault and raises.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final, NamedTuple, get_args

from eosdb.errors import InvalidRequestError, OffsetOutOfRangeError
from eosdb.log import transaction_index
from eosdb.log.checksum import (
    CONTENT_ASKED,
    CONTENT_GIVEN,
    MARKER,
    SHOWN,
    STORED,
    UNCHECKED,
    selecting,
)
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import row_check
from eosdb.model.fetched import AbortedTransaction, Block, StoredRows, Want
from eosdb.model.values import IsolationLevel
from eosdb.native import accelerator
from eosdb.native.cells import Cells

_ROOM: Final = 8 << 20
"""The most bytes of keys, values and headers in one read. They are in memory three times for a moment;
for larger records the way of reading matters little."""
_WHOLE_GIVEN: Final = (
    "key, value, headers, control, checksum, ?, ?, ?, ?, "
    # decisions/0058: placed after unindexed columns, the offset is read from the row, not from an index.
    '"offset", timestamp, timestamp_type, producer_id, is_transactional'
)
_WHOLE_OTHERS: Final = "producer_epoch, sequence, sequence_round, position"
_WHOLE_RANGE: Final = (
    "FROM records INDEXED BY records_offset "
    'WHERE partition_id = ? AND "offset" >= ? AND "offset" < ?'
)
_WHOLE_SHOWN: Final = f"SELECT eosdb_rows({_WHOLE_GIVEN}) {_WHOLE_RANGE}"
_WHOLE_DATA: Final = f"SELECT eosdb_rows({_WHOLE_GIVEN}, {_WHOLE_OTHERS}) {_WHOLE_RANGE}"
_WHOLE_BATCHES: Final = f"SELECT eosdb_batches({_WHOLE_GIVEN}, {_WHOLE_OTHERS}) {_WHOLE_RANGE}"

Made = tuple[StoredRows, Cells | None, bytearray | None]
"""The records' parts of a Block."""


def read_whole(
    connection: sqlite3.Connection,
    partition: Partition,
    start: int,
    stop: int,
    want: Want,
    max_bytes: int,
) -> Made | None:
    """Return the wanted parts of the records in [start, stop), aborted ones included. None if they exceed
    `max_bytes`, if anything is unusual, or if the accelerator cannot make them. Batches need not reach
    `stop`: they have at least one record, and otherwise as many as fit into `max_bytes`."""
    assert 0 <= start < stop, (start, stop)
    module = accelerator.rows()
    # The accelerator needs every row from `start` on.
    if module is None or start < max(partition.clean_offset, partition.log_start_offset):
        return None
    partition_id = partition.partition_id
    if not want.is_data:
        if want is Want.STORED:
            return None
        parameters = (max_bytes, start, stop, partition_id, partition_id, start, stop)
        batches = _batches(module, connection, parameters)
        return None if batches is None else (StoredRows(), None, batches)
    size, rows = stop - start, partition.log_end_offset - partition.log_start_offset
    room = min(max_bytes, _ROOM)
    if partition.size_bytes * size > room * rows:
        return None
    parameters = (room, start, stop, partition_id, partition_id, start, stop)
    statement = _WHOLE_SHOWN if want is Want.SHOWN else _WHOLE_DATA
    try:
        data: bytes | None = connection.execute(statement, parameters).fetchone()[0]
        if data is None:
            return None
        cells = Cells(data)
        if want is Want.CELLS:
            return (StoredRows(), cells, None) if cells.has_plain_headers else None
        return _rows(module, cells, want), cells, None
    except (
        sqlite3.Error,
        MemoryError,
        UnicodeDecodeError,
    ):  # decisions/0060: the Python code finds and raises the error.
        return None


def _rows(module: Any, cells: Cells, want: Want) -> StoredRows:
    offsets, timestamps, types, keys, values, headers = module.columns(cells.data)
    if want is Want.SHOWN:
        has_headers = headers.count(None) < len(headers)
        return StoredRows(timestamps, types, keys, values, headers if has_headers else (), offsets)
    return StoredRows(
        timestamps,
        types,
        keys,
        values,
        headers,
        offsets,
        cells.numbers("producer_id").tolist(),
        cells.numbers("producer_epoch").tolist(),
        cells.numbers("sequence").tolist(),
    )


def _batches(
    module: Any, connection: sqlite3.Connection, parameters: tuple[int, ...]
) -> bytearray | None:
    """Return Kafka's record batches without their checksums, markers included."""

    def run() -> None:
        # decisions/0060: the statement also fails if the output buffer is full, which is no error.
        with suppress(sqlite3.Error, MemoryError):
            connection.execute(_WHOLE_BATCHES, parameters).fetchone()

    try:
        made: bytearray | None = module.batches(run)
    except MemoryError:
        return None
    return made


ISOLATION_LEVELS: Final = get_args(IsolationLevel)

_STORED: Final = (selecting(STORED, UNCHECKED), selecting(STORED, CONTENT_ASKED))
_SHOWN: Final = (selecting(SHOWN, UNCHECKED), selecting(SHOWN, CONTENT_GIVEN))
"""The columns that consumers get, without and with the expected sum of the content."""
_OFFSET: Final = STORED.index("offset")
_CHUNK: Final = 64
"""The rows between two checks of their size. This bounds how far a read exceeds its limit."""
_MEASURED: Final = tuple(itemgetter(STORED.index(name)) for name in ("key", "value", "headers"))
_PIECE: Final = 1 << 20
"""The size in bytes of the parts of a long range with large records."""


class ReadLimits(NamedTuple):
    """The limits of one read; it may exceed the bytes to return one record."""

    records: int
    bytes: int


def check_isolation_level(isolation_level: object) -> bool:
    """Whether the level is read_committed. Raises InvalidRequestError for an unknown one."""
    if isolation_level not in ISOLATION_LEVELS:
        raise InvalidRequestError(
            f"isolation_level: got {isolation_level!r}, expected one of {', '.join(ISOLATION_LEVELS)}"
        )
    return isolation_level == "read_committed"


def upper_bound(partition: Partition, *, read_committed: bool) -> int:
    return partition.last_stable_offset if read_committed else partition.log_end_offset


def checked_bound(partition: Partition, offset: int, *, read_committed: bool) -> int:
    """Return the end offset for a fetch. Raises OffsetOutOfRangeError below the log start and beyond the
    log end."""
    if not partition.log_start_offset <= offset <= partition.log_end_offset:
        raise OffsetOutOfRangeError(
            f"{partition.topic_partition}: got offset {offset}, the log goes from "
            f"{partition.log_start_offset} to {partition.log_end_offset}"
        )
    return upper_bound(partition, read_committed=read_committed)


def check_range(partition: Partition, start: int, end: int, *, read_committed: bool) -> None:
    """Raises InvalidRequestError if `end` is beyond the isolation level's bound, and
    OffsetOutOfRangeError if the log begins after `start`."""
    bound = upper_bound(partition, read_committed=read_committed)
    if end > bound:
        raise InvalidRequestError(
            f"{partition.topic_partition}: got end {end}, readers may read up to {bound}"
        )
    if start < partition.log_start_offset and start < end:
        raise OffsetOutOfRangeError(
            f"{partition.topic_partition}: got start {start}, the log begins at "
            f"{partition.log_start_offset}"
        )


def part_of(partition: Partition, max_records: int) -> ReadLimits:
    assert max_records > 0, max_records
    rows = partition.log_end_offset - partition.log_start_offset
    about = max(_PIECE * rows // max(partition.size_bytes, 1), 1)
    return ReadLimits(min(max_records, about), 64 * _PIECE)


def read(
    connection: sqlite3.Connection,
    partition: Partition,
    start: int,
    stop: int,
    *,
    committed: bool,
    want: Want,
    limits: ReadLimits,
    check_crcs: bool = True,
) -> Block:
    """Return the records of [start, stop) within the limits: at least one, if there is any. `committed`
    omits aborted data; for readers of all stored data, `aborted` lists it instead. Raises
    CorruptRecordError if the first record does not match its checksum."""
    bounds = partition.offsets()
    if start >= stop:
        return Block(start, start, StoredRows(), bounds)
    assert limits.records > 0, limits
    assert limits.bytes >= 0, limits
    end = min(stop, start + limits.records)
    made = read_whole(connection, partition, start, end, want, limits.bytes)
    if made is None:
        rows, end = _by_row(connection, partition, start, stop, want, limits, check_crcs=check_crcs)
        made = rows, None, None
    assert start < end or not check_crcs, (start, end)  # A reader goes on from the end.
    rows, cells, batches = made
    aborted: Sequence[AbortedTransaction] = ()
    offsets = rows.offset or (() if cells is None else cells.numbers("offset"))
    if not committed or not (len(offsets) or batches):
        pass
    elif not want.is_data:
        aborted = transaction_index.collect(connection, partition, start, end)
    else:
        seen = offsets if check_crcs else None
        gone = transaction_index.taken_back_in(connection, partition, start, end, seen)
        if gone:
            kept = [at not in gone for at in offsets]
            rows, cells = rows.only(kept), None if cells is None else cells._replace(kept=kept)
    if rows.headers and want not in (Want.DATA, Want.CELLS):
        rows = rows._replace(headers=row_check.headers(partition, rows))
    return Block(start, end, rows, bounds, aborted, cells, batches)


def _by_row(
    connection: sqlite3.Connection,
    partition: Partition,
    start: int,
    stop: int,
    want: Want,
    limits: ReadLimits,
    *,
    check_crcs: bool,
) -> tuple[StoredRows, int]:
    """Return the rows and the offset after them. Readers of data get no markers."""
    statements, names = (_SHOWN, SHOWN) if want is Want.SHOWN else (_STORED, STORED)
    cursor = connection.execute(statements[check_crcs], (partition.partition_id, start, stop))
    (*columns, contents), exhausted = _within(cursor, partition, start, names, limits)
    rows = StoredRows(*columns)
    end = max(start, stop) if exhausted else rows.offset[-1] + 1
    if check_crcs:
        count, end = row_check.checked(partition, rows, contents, start, stop, exhausted=exhausted)
        rows, contents = StoredRows._make(column[:count] for column in rows), contents[:count]
    if want.is_data and MARKER in contents:
        rows = rows.only([content != MARKER for content in contents])
    return rows, end


def _within(
    cursor: sqlite3.Cursor,
    partition: Partition,
    start: int,
    names: Sequence[str],
    limits: ReadLimits,
) -> tuple[list[Sequence[Any]], bool]:
    """Return the columns `names` and content sums of the rows within the limits, at least one, and
    whether these are all rows. They end before a row with a value that eosdb never writes. Raises
    CorruptRecordError if the first row has such a value."""
    rows, count = _measured(cursor, partition, limits)
    columns: list[Sequence[Any]] = [*zip(*rows, strict=True)] or [()] * (len(names) + 1)
    exhausted = len(rows) <= count
    strange = row_check.first_strange(columns[:-1], names)
    if strange is not None:
        place, name = strange
        if place == 0:
            at = columns[_OFFSET][0]
            at = at if type(at) is int and at > start else start
            raise row_check.damaged(partition, at, f"has a {name} that eosdb never writes")
        count, exhausted = min(place, count), False
    return [column[:count] for column in columns], exhausted


def _measured(
    cursor: sqlite3.Cursor, partition: Partition, limits: ReadLimits
) -> tuple[list[tuple[Any, ...]], int]:
    """Return rows up to the first one beyond the limits, and how many are within them. Without a row beyond
    the limits, the range has ended. A log that is smaller than the limit needs no sizes of rows."""
    max_records, left = limits
    if partition.size_bytes <= left:
        rows = cursor.fetchmany(max_records + 1)
    else:
        rows = []
        while len(rows) <= max_records and (chunk := cursor.fetchmany(_CHUNK)):
            # C sums the sizes of a whole chunk; only the chunk at the limit is summed row by row.
            try:
                size = sum(sum(map(len, filter(None, map(part, chunk)))) for part in _MEASURED)
            except TypeError:  # A damaged row has a number as key or value; stop here.
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
    return rows, max_records
