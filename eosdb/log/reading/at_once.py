"""Reads a range of records as one value, packed and checked in C by the accelerator.

Every offset must be stored, and every record must match its checksum. Otherwise the answer is None, and
the caller reads row by row, which finds the fault and raises.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Any, Final

from eosdb.log.partition_rows import Partition
from eosdb.model.fetched import Rows, Want
from eosdb.native import accelerator
from eosdb.native.cells import Cells

_ROOM: Final = 8 << 20
"""The most bytes of keys, values and headers in one read. They are in memory three times for a moment;
for larger records the way of reading matters little."""
_GIVEN: Final = (
    "key, value, headers, control, checksum, ?, ?, ?, ?, "
    # decisions/0058: the offset stands after columns without an index, so that it is the row's own.
    '"offset", timestamp, timestamp_type, producer_id, is_transactional'
)
_OTHERS: Final = "producer_epoch, sequence, sequence_round, position"
_RANGE: Final = (
    "FROM records INDEXED BY records_offset "
    'WHERE partition_id = ? AND "offset" >= ? AND "offset" < ?'
)
_SHOWN: Final = f"SELECT eosdb_rows({_GIVEN}) {_RANGE}"
_DATA: Final = f"SELECT eosdb_rows({_GIVEN}, {_OTHERS}) {_RANGE}"
_BATCHES: Final = f"SELECT eosdb_batches({_GIVEN}, {_OTHERS}) {_RANGE}"

Made = tuple[Rows, Cells | None, bytearray | None]
"""The records' parts of a Block."""


def read(
    connection: sqlite3.Connection,
    partition: Partition,
    start: int,
    stop: int,
    want: Want,
    max_bytes: int,
) -> Made | None:
    """Return the wanted parts of the records in [start, stop), aborted ones included. None if they exceed
    `max_bytes`, if anything is unusual, or if the accelerator cannot make them. Batches are made as far
    as they fit, but at least one record."""
    module = accelerator.rows()
    if module is None or not _must_be_whole(partition, start):
        return None
    partition_id = partition.partition_id
    if not want.is_data:
        if want is Want.STORED:
            return None
        parameters = (max_bytes, start, stop, partition_id, partition_id, start, stop)
        batches = _batches(module, connection, parameters)
        return None if batches is None else (Rows(), None, batches)
    size, rows = stop - start, partition.log_end_offset - partition.log_start_offset
    room = min(max_bytes, _ROOM)
    if partition.size_bytes * size > room * rows:
        return None
    parameters = (room, start, stop, partition_id, partition_id, start, stop)
    statement = _SHOWN if want is Want.SHOWN else _DATA
    try:
        data: bytes | None = connection.execute(statement, parameters).fetchone()[0]
        if data is None:
            return None
        cells = Cells(data)
        if want is Want.CELLS:
            return (Rows(), cells, None) if cells.has_plain_headers else None
        return _rows(module, cells, want), cells, None
    except (
        sqlite3.Error,
        MemoryError,
        UnicodeDecodeError,
    ):  # decisions/0060: Python's way finds the error and raises it.
        return None


def _must_be_whole(partition: Partition, start: int) -> bool:
    """Whether every row from `start` on must exist with a checksum."""
    return start >= max(partition.clean_offset, partition.log_start_offset) and (
        0 <= partition.checked_from <= start
    )


def _rows(module: Any, cells: Cells, want: Want) -> Rows:
    offsets, timestamps, types, keys, values, headers = module.columns(cells.data)
    if want is Want.SHOWN:
        has_headers = headers.count(None) < len(headers)
        return Rows(timestamps, types, keys, values, headers if has_headers else (), offsets)
    return Rows(
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
        # decisions/0060: it also fails when the space is used up.
        with suppress(sqlite3.Error, MemoryError):
            connection.execute(_BATCHES, parameters).fetchone()

    try:
        read: bytearray | None = module.batches(run)
    except MemoryError:
        return None
    return read
