"""INSERT statements for any number of rows: each statement costs as much as a row, so units use few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import nan
from typing import Final

from eosdb.store.schema.newest import in_baseline

NULL: Final = nan
"""SQLite stores NaN as NULL. For None, `sqlite3` looks for an adapter first, which costs as much as ten
numbers."""


class Insertion:
    """One kind of INSERT. `build` makes the SQL for a number of rows."""

    __slots__ = ("statement", "table")

    def __init__(self, table: str, build: Callable[[int], str]) -> None:
        self.table: Final = table
        self.statement: Final = lru_cache(maxsize=None)(build)
        """The SQL for this many rows."""

    @classmethod
    def plain(cls, table: str, columns: Sequence[str]) -> Insertion:
        """An insertion that binds one value for each column."""
        return Insertion(table, _binding(table, columns))

    def statements(
        self, rows: Sequence[Sequence[object]]
    ) -> Iterator[tuple[str, Sequence[object]]]:
        """Yield few statements, which stay prepared, and parameters that insert all rows in order."""
        left = len(rows)
        while left:
            size = left if left < 16 else 16 if left < 64 else 64
            some = rows[len(rows) - left :][:size]
            yield (
                self.statement(size),
                [NULL if cell is None else cell for row in some for cell in row],
            )
            left -= size


class FoldedInsertion(Insertion):
    """An INSERT for projections; `baseline` is the same INSERT into the baseline's table."""

    __slots__ = ("baseline",)

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        self.baseline: Final = Insertion.plain(in_baseline(table), columns)
        super().__init__(table, _binding(table, columns))


def _binding(table: str, columns: Sequence[str]) -> Callable[[int], str]:
    head = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "
    row = f"({', '.join('?' * len(columns))})"
    return lambda rows: head + ", ".join([row] * rows)
