"""Reads a range of records as one row: SQLite concatenates the values of each column.

For readers that want columns: values cost no object each and no step through `sqlite3`. The result is
not checked; the reader compares the sums after unpacking. Ranges with gaps, rows without a checksum, and
anything unusual are left to `log.scan`.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from eosdb.log.checksum import CONTENT_ASKED
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import row_check

_NONE: Final = "-"


def _packed(column: str, size: str, *, is_valid: str) -> str:
    """SQL: all values of a column in one, and the size of each or that it is NULL. (A value of another
    type gets no size, so sizes and values do not match.)"""
    return (
        f"CAST(group_concat({column}, '') AS BLOB), "
        f"group_concat(CASE WHEN {is_valid} THEN {size} ELSE '{_NONE}' END, 's')"
    )


_BEGINNING: Final = (
    # decisions/0035: who subtracts the sums of the contents is left with the offsets, in their order.
    f'SELECT count(*), count(headers), group_concat({CONTENT_ASKED} + "offset"), '
    + ", ".join(
        _packed(column, f"length({column})", is_valid=f"{column} >= x''")
        for column in ("key", "value")
    )
)
_NUMBERS: Final = {
    "timestamp": "group_concat(timestamp)",
    # Usually the same for all rows: a list would cost as much as the timestamps.
    "timestamp_type": "CASE sum(timestamp_type) WHEN 0 THEN 0 WHEN count(*) THEN 1 END",
    "producer_id": "group_concat(producer_id)",
    "producer_epoch": "group_concat(producer_epoch)",
    "sequence": "group_concat(sequence)",
}
NUMBERS: Final = tuple(_NUMBERS)
"""Columns that can be requested besides key, value and headers."""
_HEADERS: Final = _packed(
    "headers", "length(CAST(headers AS BLOB))", is_valid="headers >= '' AND headers < x''"
)
_WRITTEN: Final = {
    name: f"sum(typeof({name}) = 'integer' AND {name} BETWEEN {least} AND {most})"
    for name, (least, most) in row_check.BOUNDS.items()
}
"""SQL: the number of rows whose value is one that eosdb writes."""
_RANGE: Final = (
    "FROM (SELECT ? AS asked, * FROM records INDEXED BY records_offset) "
    'WHERE partition_id = asked AND "offset" >= ? AND "offset" < ?'
)


class Packed(NamedTuple):
    """All rows of a range without gaps. Lists of numbers are text, as `sqlite3` returns them."""

    start: int
    size: int
    offsets_and_contents: str
    """For each row, its offset plus the sum that its content must have (`checksum.CONTENT_ASKED`)."""
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[bytes | None]
    """The stored text of the headers as UTF-8; empty if no row has any."""
    numbers: tuple[str | int, ...]
    """The requested columns; a single number applies to all rows."""


def can_be_packed(partition: Partition, start: int) -> bool:
    """Whether the range from `start` on must have every row, each with a checksum."""
    return start >= max(partition.clean_offset, partition.log_start_offset) and (
        0 <= partition.checked_from <= start
    )


def read(
    connection: sqlite3.Connection,
    partition: Partition,
    start: int,
    end: int,
    numbers: Sequence[str],
    *,
    with_headers: bool,
) -> Packed | bool:
    """Return the rows of [start, end). True if some have headers but headers were not requested; False
    if offsets are missing or anything else is unusual."""
    columns = [*([_HEADERS] if with_headers else ()), *(_NUMBERS[name] for name in numbers)]
    columns += [_WRITTEN[name] for name in numbers]
    try:
        row: tuple[Any, ...] = connection.execute(
            f"{', '.join([_BEGINNING, *columns])} {_RANGE}", (partition.partition_id, start, end)
        ).fetchone()
        count, headers, contents, *cells = row
        if count != end - start or count == 0:
            return False
        if headers and not with_headers:
            return True
        names = ("key", "value", "headers") if with_headers else ("key", "value")
        parts = {
            name: _split(cells[2 * at], cells[2 * at + 1], count) for at, name in enumerate(names)
        }
        begin = 2 * len(parts)
        listed, written = (tuple(cells[begin:][: len(numbers)]), cells[begin + len(numbers) :])
        if contents is None or None in listed or written != [count] * len(numbers):
            return False
        return Packed(
            start,
            count,
            contents,
            parts["key"],
            parts["value"],
            parts["headers"] if headers else (),
            listed,
        )
    except (sqlite3.Error, struct.error):
        # A value too large, not text, or of another size: reading row by row finds the reason.
        return False


def _split(data: bytes | None, sizes: str, count: int) -> Sequence[bytes | None]:
    """Split a concatenation by its sizes. Raises struct.error."""
    nulls = sizes.count(_NONE)
    if nulls == count and not data:
        return [None] * count
    # The sizes, joined by "s", are a format of `struct`.
    parts = struct.Struct(f"={sizes.replace(_NONE, '0')}s").unpack(data or b"")
    if nulls:
        return [
            None if size == _NONE else part
            for size, part in zip(sizes.split("s"), parts, strict=True)
        ]
    return parts
