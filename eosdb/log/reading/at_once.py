"""Reads a range of records as one value, packed and checked in C by the accelerator.

Only a range that is as usual: each offset there, each record with a checksum that it fits. For anything
else the answer is None, and the caller reads row by row, which decides what is wrong and raises.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Final

from eosdb.log.partition_rows import Partition
from eosdb.log.record_rows import Columns
from eosdb.native import accelerator

_ROOM: Final = 8 << 20
"""The most bytes of keys, values and headers that are read at once: they are in memory thrice for a moment,
and for larger records it matters little how rows are read."""
_GIVEN: Final = (
    "key, value, headers, control, checksum, ?, ?, ?, ?, "
    # decisions/0058: behind columns that no index has, so that the offset is the row's own.
    '"offset", timestamp, timestamp_type, producer_id, is_transactional'
)
_OTHERS: Final = "producer_epoch, sequence, sequence_round, position"
_RANGE: Final = (
    "FROM records INDEXED BY records_offset "
    'WHERE partition_id = ? AND "offset" >= ? AND "offset" < ?'
)
_SOME: Final = f"SELECT eosdb_rows({_GIVEN}) {_RANGE}"
_ALL: Final = f"SELECT eosdb_rows({_GIVEN}, {_OTHERS}) {_RANGE}"
_BATCHES: Final = f"SELECT eosdb_batches({_GIVEN}, {_OTHERS}) {_RANGE}"


def can_be_packed(partition: Partition, start: int) -> bool:
    """Whether the range from `start` on must have every row, each with a checksum."""
    return start >= max(partition.clean_offset, partition.log_start_offset) and (
        0 <= partition.checked_from <= start
    )


def columns(
    connection: sqlite3.Connection, partition: Partition, start: int, stop: int, max_bytes: int
) -> tuple[Columns, bytes] | None:
    """Return the data records of [start, stop), aborted ones included, with the columns that consumers get,
    and the same as cells; None if there is more than `max_bytes` of them, or anything is unusual."""
    packed = cells(connection, partition, start, stop, max_bytes, _SOME)
    module = accelerator.rows()
    if packed is None or module is None:
        return None
    try:
        offsets, timestamps, types, keys, values, headers = module.columns(packed)
    except (ValueError, MemoryError):  # Text that is no UTF-8.
        return None
    return Columns(timestamps, types, keys, values, headers, offsets), packed


def cells(
    connection: sqlite3.Connection,
    partition: Partition,
    start: int,
    stop: int,
    max_bytes: int = _ROOM,
    statement: str = _ALL,
) -> bytes | None:
    """Return the same with all columns, each row checked in full, in the form of `eosdb.native.cells`."""
    if accelerator.rows() is None:
        return None
    size, partition_id = stop - start, partition.partition_id
    rows = partition.log_end_offset - partition.log_start_offset
    room = min(max_bytes, _ROOM)
    if (
        size <= 0
        or partition.size_bytes * size > room * rows
        or not can_be_packed(partition, start)
    ):
        return None
    parameters = (room, start, stop, partition_id, partition_id, start, stop)
    try:
        found: bytes | None = connection.execute(statement, parameters).fetchone()[0]
    except (
        sqlite3.Error,
        MemoryError,
    ):  # decisions/0060: Python's way raises what is to be raised.
        return None
    return found


def batches(
    connection: sqlite3.Connection, partition: Partition, start: int, stop: int, max_bytes: int
) -> bytearray | None:
    """Return the records of [start, stop), markers included, as Kafka's record batches without their
    checksums: as many as fit into `max_bytes`, but at least one. None if anything is unusual, or there are
    none."""
    module = accelerator.rows()
    if module is None or start >= stop or not can_be_packed(partition, start):
        return None
    partition_id = partition.partition_id
    parameters = (max_bytes, start, stop, partition_id, partition_id, start, stop)

    def run() -> None:
        # decisions/0060: it also ends in an error where there is no more room.
        with suppress(sqlite3.Error, MemoryError):
            connection.execute(_BATCHES, parameters).fetchone()

    try:
        read: bytearray | None = module.batches(run)
    except MemoryError:
        return None
    return read
