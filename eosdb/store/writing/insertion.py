"""INSERT statements for many rows: a statement costs as much as inserting a row, so units use few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import nan
from typing import Final

from eosdb.native import accelerator
from eosdb.store.schema.newest import in_baseline
from eosdb.store.schema.row_checksum import row_checksum

NULL: Final = nan
"""SQLite stores NaN as NULL. For None, `sqlite3` looks for an adapter first, which costs as much as ten
numbers."""


class Insertion:
    """An INSERT into one table. `build` returns its SQL for a number of rows."""

    __slots__ = ("_is_checked", "statement", "table")

    def __init__(self, table: str, build: Callable[[int], str], is_checked: bool = False) -> None:
        self.table: Final = table
        self._is_checked: Final = is_checked
        self.statement: Final = lru_cache(maxsize=None)(build)
        """The SQL for this many rows."""

    @classmethod
    def plain(cls, table: str, columns: Sequence[str]) -> Insertion:
        """An insertion that binds one value for each column. A last column `checksum` is that of the
        others, and no row has it."""
        return Insertion(table, *_binding(table, columns))

    def statements(
        self, rows: Sequence[Sequence[object]]
    ) -> Iterator[tuple[str, Sequence[object]]]:
        """Yield statements of a few sizes, which stay prepared, and parameters to insert all rows."""
        left = len(rows)
        while left:
            size = left if left < 16 else 16 if left < 64 else 64
            yield self.statement(size), self._cells([*rows[len(rows) - left :][:size]])
            left -= size

    def _cells(self, rows: list[Sequence[object]]) -> list[object]:
        """The values to bind for these rows."""
        if (module := accelerator.rows()) is not None:
            try:
                cells: list[object] = module.cells(rows, NULL, self._is_checked)
                return cells
            except (TypeError, ValueError, OverflowError):
                pass  # decisions/0060: the code below handles all other values.
        if self._is_checked:
            rows = [(*row, row_checksum(*row)) for row in rows]
        return [NULL if cell is None else cell for row in rows for cell in row]


class FoldedInsertion(Insertion):
    """An INSERT of a projection; `baseline` is the same INSERT into the baseline's table."""

    __slots__ = ("baseline",)

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        self.baseline: Final = Insertion.plain(in_baseline(table), columns)
        super().__init__(table, *_binding(table, columns))


def _binding(table: str, columns: Sequence[str]) -> tuple[Callable[[int], str], bool]:
    assert len(set(columns)) == len(columns), columns
    head = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "
    row = f"({', '.join('?' * len(columns))})"
    return lambda rows: head + ", ".join([row] * rows), columns[-1] == "checksum"
