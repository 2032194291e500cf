"""The sum of the records that compaction has passed, which proves the remaining ones.

Each record counts with 64 bits, mixed from its offset and its checksum, so that no other records have the
same sum. Sums are modulo 2**64, so records are added and subtracted in any order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final, overload

from eosdb.store.schema.row_checksum import signed
from eosdb.store.writing.unit import Unit

_BITS: Final = 2**64 - 1
_STEP: Final = 0x9E3779B97F4A7C15
_BETWEEN: Final = """
SELECT "offset", checksum FROM records WHERE partition_id = ? AND "offset" >= ? AND "offset" < ?
"""


def of(records: Iterable[tuple[int, int | None]]) -> int:
    """Return the sum of records, given as offsets and checksums. None, from before schema 7, counts
    as 0."""
    # Checksums grow with the offset, so a plain sum would take 1 and 4 for 2 and 3.
    total = 0
    for offset, checksum in records:
        # The constants of SplitMix64.
        mixed = ((checksum or 0) + offset * _STEP) & _BITS
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _BITS
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _BITS
        total += mixed ^ mixed >> 31
    return signed(total)


def between(source: Unit | sqlite3.Connection, partition_id: int, first: int, end: int) -> int:
    if end <= first:
        return 0
    return of(source.execute(_BETWEEN, (partition_id, first, end)))


@overload
def added(total: int, more: int) -> int: ...
@overload
def added(total: int | None, more: int) -> int | None: ...
def added(total: int | None, more: int) -> int | None:
    """Return the sum plus `more`; None if it is unknown."""
    return None if total is None else signed(total + more)
