"""A kind of new row, and the INSERT for any number of them: what a unit writes goes out in few statements,
since each costs as much as the row itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final


class Insertion:
    """One INSERT. `row` makes the SQL of one row from the number of values that are bound before it."""

    __slots__ = ("_head", "_row", "statement", "table")

    def __init__(self, table: str, columns: Sequence[str], row: Callable[[int], str]) -> None:
        self.table: Final = table
        self._head = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "
        self._row = row
        self.statement: Final = lru_cache(maxsize=None)(self._statement)
        """The SQL for so many rows, of so many values each."""

    @classmethod
    def plain(cls, table: str, columns: Sequence[str]) -> Insertion:
        """One value for each column."""
        values = f"({', '.join('?' * len(columns))})"
        return cls(table, columns, lambda _: values)

    def _statement(self, rows: int, width: int) -> str:
        return self._head + ", ".join([self._row(i * width) for i in range(rows)])

    def statements(
        self, rows: Sequence[Sequence[object]]
    ) -> Iterator[tuple[str, Sequence[object]]]:
        """SQL and values that insert all the rows, in their order: few statements, which stay prepared."""
        left, width = len(rows), len(rows[0])
        while left:
            size = left if left < 16 else 16 if left < 64 else 64
            some = rows[len(rows) - left :][:size]
            values = some[0] if size == 1 else [value for row in some for value in row]
            yield self.statement(size, width), values
            left -= size
