"""The sum of the records that compaction has passed: there some are missing, and it proves which are left.

Each record counts with 64 bits, mixed from its offset and its checksum, so that no other records have the
same sum. Sums are modulo 2**64, so records are added and taken away in any order.
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
    """Return the sum of records, given as offsets and checksums; None, from before schema 7, counts as
    0."""
    # A sum of checksums would not do: they grow with the offset, so 1 and 4 would pass for 2 and 3.
    total = 0
    for offset, checksum in records:
        # The numbers are SplitMix64's.
        mixed = ((checksum or 0) + offset * _STEP) & _BITS
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _BITS
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _BITS
        total += mixed ^ mixed >> 31
    return signed(total)


def between(source: Unit | sqlite3.Connection, partition_id: int, first: int, end: int) -> int:
    """Return the sum of the partition's records in [first, end)."""
    if end <= first:
        return 0
    return of(source.execute(_BETWEEN, (partition_id, first, end)))


@overload
def added(total: int, more: int) -> int: ...
@overload
def added(total: int | None, more: int) -> int | None: ...
def added(total: int | None, more: int) -> int | None:
    """Return the sum with more in it; None if it is not known."""
    return None if total is None else signed(total + more)
