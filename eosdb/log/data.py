"""Which of the rows that a query finds are handed out, and which of them are a reader's data."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from eosdb.log.partitions import Partition
from eosdb.log.row_check import HEADERS, KEY, VALUE

_MARKER: Final = -2
TRANSACTION_OF: Final = (
    "CASE WHEN control IS NULL THEN CASE is_transactional WHEN 1 THEN producer_id ELSE -1 END "
    f"ELSE {_MARKER} END"
)
"""SQL: the producer of a record that is part of a transaction, -1 for one that is not."""
_PLACE: Final = 6
"""Where a row has it."""
_CHUNK: Final = 64
"""So many rows are read before their size is looked at: what is read too much stays bounded."""


def within(
    found: sqlite3.Cursor,
    partition: Partition,
    max_records: int,
    max_bytes: int,
    *,
    only_data: bool = False,
) -> tuple[list[tuple[Any, ...]], bool]:
    """The rows that both limits allow, at least one, and whether there are no more. With `only_data` they
    have TRANSACTION_OF, and control records are not counted.

    Nothing is measured in a log that is smaller than the limit.
    """
    is_small = partition.size_bytes <= max_bytes
    rows: list[tuple[Any, ...]] = []
    sizes: list[int] = []
    left, places = max_bytes, 0
    while places <= max_records and left >= 0:
        chunk = found.fetchmany(max_records + 1 - places if is_small else _CHUNK)
        if not chunk:
            return rows, True
        rows += chunk
        places += len(chunk) - (_markers(chunk) if only_data else 0)
        if not is_small:
            measured = [
                len(row[KEY] or b"") + len(row[VALUE] or b"") + len(row[HEADERS] or "")
                for row in chunk
            ]
            sizes += measured
            left -= sum(measured)
    found.close()
    counted: Sequence[int] = range(len(rows))
    if places < len(rows):
        counted = [i for i, row in enumerate(rows) if row[_PLACE] != _MARKER]
    end = counted[max_records] if places > max_records else len(rows)
    if left < 0:
        fitting = bisect_right(list(accumulate(sizes)), max_bytes)
        end = min(end, max(fitting, counted[0] + 1 if counted else 1))
    return rows[:end], False


def without_markers(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows that are data."""
    return [row for row in rows if row[_PLACE] != _MARKER] if _markers(rows) else rows


def _markers(rows: list[tuple[Any, ...]]) -> int:
    return [row[_PLACE] for row in rows].count(_MARKER)
