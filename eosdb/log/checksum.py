"""The columns of `records` in statements, and the checksum of a record. It covers every column, so a reader
can verify the record.

It is the sum of the Adler-32 sums of value, key and headers and of the row's numbers, modulo odd numbers,
so that no single bit can change unnoticed. Subtracting the numbers in SQL must leave the sum of the
content, which Python computes for many records at once. The upper bits cover columns that consumers never
get, so a consumer's fetch need not read them.

The sum of the records that compaction has passed proves the remaining ones. Each record counts with 64
bits, mixed from its offset and its checksum. Sums are modulo 2**64: records are added and subtracted in
any order.
"""

from __future__ import annotations

import sqlite3
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from zlib import adler32, crc32

from eosdb.model.fetched import StoredRows
from eosdb.store.schema.row_checksum import signed
from eosdb.store.writing.unit import Unit

RANGE: Final = (
    "FROM (SELECT ? AS asked, * FROM records) "
    'WHERE partition_id = asked AND "offset" >= ? AND "offset" < ?'
)
"""SQL: the rows of a partition, called `asked`, from an offset on and below another."""


STORED: Final = StoredRows._fields
"""All columns of a read."""
SHOWN: Final = STORED[: STORED.index("offset") + 1]
"""The columns that consumers get."""


def selecting(names: Sequence[str], content: str) -> str:
    """SQL: select these columns and, as the last one, the expected sum of the content."""
    listed = ", ".join(f'"{name}"' for name in names)
    return f'SELECT {listed}, {content} {RANGE} ORDER BY "offset"'


_BITS: Final = 2**64 - 1
_STEP: Final = 0x9E3779B97F4A7C15
_BETWEEN: Final = """
SELECT "offset", checksum FROM records WHERE partition_id = ? AND "offset" >= ? AND "offset" < ?
"""


def of(records: Iterable[tuple[int, int | None]]) -> int:
    """Return the sum of records, given as offsets and checksums. A damaged row may have none: None counts
    as 0."""
    # Each checksum is mixed, because plain checksums of records 1 and 4 may have the sum of 2 and 3.
    total = 0
    for offset, checksum in records:
        # The mixing function is SplitMix64.
        mixed = ((checksum or 0) + offset * _STEP) & _BITS
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _BITS
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _BITS
        total += mixed ^ mixed >> 31
    return signed(total)


def between(source: Unit | sqlite3.Connection, partition_id: int, first: int, end: int) -> int:
    if end <= first:
        return 0
    return of(source.execute(_BETWEEN, (partition_id, first, end)))


_UPPER: Final = 48
_TIMES: Final = 70368744177643
_GIVEN: Final = (
    f"({{partition_id}} * 1000003 + {{timestamp_type}} + {{producer_id}} % {_TIMES} + "
    f"{{is_transactional}} + {{is_data}} + {{timestamp}} % {_TIMES} + {{offset}})"
)
"""The columns that a consumer gets, or that decide whether it gets the record. Partition and offset are
included, because a damaged index leads to another record, perhaps at the same offset of another
partition. Terms that a batch's rows share come first, so that SQLite adds them once per INSERT."""
_OTHERS: Final = (
    "(({producer_epoch} + {sequence_round} + {position} + ({control} IS 'COMMIT') + "
    f"2 * ({{control}} IS 'ABORT') + {{sequence}}) % 32749 << {_UPPER})"
)
_NAMES: Final = {
    name: f'"{name}"'
    for name in (
        "partition_id", "offset", "timestamp", "timestamp_type", "producer_id", "is_transactional",
        "control", "producer_epoch", "sequence", "sequence_round", "position",
    )
}  # fmt: skip


def stored(terms: Mapping[str, str]) -> str:
    """SQL for the checksum of a row. `terms` are SQL for its numbers and for the sum of its content."""
    given = _GIVEN.format(**terms, is_data=f"({terms['control']} IS NULL)")
    return f"{terms['checksum']} + {given} + {_OTHERS.format_map(terms)}"


MARKER: Final = 0x155555555555
"""A control record's sum of content; no flipped bit turns another value into it."""
UNCHECKED: Final = f"CASE WHEN control IS NOT NULL THEN {MARKER} END"
"""SQL: CONTENT without a check."""
_NONE: Final = -1
"""The sum of no content, if a column is NULL, as in a missing row that an index names."""
_IS_DATA: Final = "CASE WHEN control IS NULL THEN 1 WHEN control IN ('COMMIT', 'ABORT') THEN 0 END"
"""SQL: NULL for a control that eosdb never writes, which makes the check fail."""
CONTENT: Final = (
    f"ifnull(checksum - {_GIVEN.format(**_NAMES, is_data=_IS_DATA)} - {_OTHERS.format(**_NAMES)}, "
    f"{_NONE})"
)
"""SQL: the sum that the row's content must have."""
_ASKED: Final = {**_NAMES, "partition_id": "asked", "is_data": _IS_DATA}
CONTENT_ASKED: Final = (
    f"ifnull(checksum - {_GIVEN.format(**_ASKED)} - {_OTHERS.format(**_ASKED)}, {_NONE})"
)
"""CONTENT in a statement that names the requested partition `asked` (`RANGE`). A row of
another partition, to which a damaged index may lead, does not match."""
CONTENT_GIVEN: Final = f"ifnull((checksum & {2**_UPPER - 1}) - {_GIVEN.format(**_ASKED)}, {_NONE})"
"""CONTENT at half the cost, without the columns that consumers never get."""


def content_sums(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], headers: Sequence[str | None]
) -> list[int]:
    """Return the sum of each record's content; `headers` may be empty. Raises TypeError and
    AttributeError for anything but bytes, text and None."""
    sums = _sums(values)
    if keys.count(None) < len(keys):
        sums = [of_value + 3 * of_key for of_value, of_key in zip(sums, _sums(keys), strict=True)]
    if headers and headers.count(None) < len(headers):
        texts = [None if text is None else text.encode() for text in headers]
        sums = [so_far + 5 * more for so_far, more in zip(sums, _sums(texts), strict=True)]
    return sums


def _sums(parts: Sequence[bytes | None]) -> list[int]:
    """Return the Adler-32 of each part; 0 for None, which no content has."""
    # decisions/0020: Adler-32 is twice as fast as CRC-32, and also detects every flipped bit.
    if None in parts:
        return [0 if part is None else adler32(part) for part in parts]
    return list(map(adler32, parts))  # type: ignore[arg-type]


def crc(sums: Sequence[int]) -> int:
    """Return the batch's checksum for its event: the CRC-32 of its records' sums."""
    packed = array("q", sums)
    if sys.byteorder == "big":
        packed.byteswap()
    return crc32(packed)


def first_altered(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[str | None],
    expected: Sequence[int],
) -> int | None:
    """Return the index of the first record whose content differs from CONTENT's sum; None if all match."""
    wanted = (
        [0 if sum_ == MARKER else sum_ for sum_ in expected] if MARKER in expected else expected
    )
    try:
        if content_sums(keys, values, headers) == list(wanted):
            return None
    except (TypeError, AttributeError):
        pass
    for i, (key, value, text, sum_) in enumerate(zip(keys, values, headers, wanted, strict=True)):
        try:
            if content_sums([key], [value], [text]) != [sum_]:
                return i
        except (TypeError, AttributeError):
            return i
    return None
