"""A unit that writes late: replay saves the same few rows at every event, and only the last save of a row
matters.

Rows wait here, the newest for each key, until a statement names their table: SQL always sees what has
been folded so far, and no caller has to think of it. The live path writes at once, since there a row is
saved once or twice in a unit.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from eosdb.store.writing.unit import Apply, T, Unit

_WAITING_MAX: Final = 5_000
"""The most rows of one table that wait, so that memory stays flat."""


class LateUnit(Unit):
    """For projections only, without `record`. Made by `late`."""

    __slots__ = ("_inserts", "_saves")

    def __init__(self, connection: sqlite3.Connection, apply: Apply) -> None:
        super().__init__(connection, apply)
        self.execute = self._execute
        self.executemany = self._executemany
        self._saves: dict[str, dict[Hashable, tuple[str, Callable[[Any], Any], Any]]] = {}
        self._inserts: dict[str, list[tuple[str, Sequence[object]]]] = {}

    def save(
        self,
        table: str,
        key: Hashable,
        statement: str,
        row: Callable[[T], Sequence[object]],
        value: T,
    ) -> None:
        waiting = self._saves.get(table)
        if waiting is None:
            waiting = self._saves[table] = {}
        before = waiting.get(key)
        # An INSERT that still waits stays one, with the newer row.
        waiting[key] = (statement if before is None else before[0], row, value)
        if len(waiting) > _WAITING_MAX:
            self._flush(table)

    def insert(self, table: str, statement: str, row: Sequence[object]) -> None:
        waiting = self._inserts.setdefault(table, [])
        waiting.append((statement, row))
        if len(waiting) > _WAITING_MAX:
            self._flush(table)

    def flush(self) -> None:
        """Write everything that waits."""
        for table in {**self._saves, **self._inserts}:
            self._flush(table)

    def _flush(self, table: str) -> None:
        inserts = self._inserts.pop(table, [])
        for statement, group in itertools.groupby(inserts, lambda waiting: waiting[0]):
            self.connection.executemany(statement, [row for _, row in group])
        saves: dict[str, list[Sequence[object]]] = {}
        for statement, row, value in self._saves.pop(table, {}).values():
            saves.setdefault(statement, []).append(row(value))
        for statement, rows in saves.items():
            self.connection.executemany(statement, rows)

    def _flush_named_in(self, statement: str) -> None:
        for waiting in (self._saves, self._inserts):
            for table in [table for table in waiting if table in statement]:
                self._flush(table)

    def _execute(self, statement: str, parameters: Any = ()) -> sqlite3.Cursor:
        self._flush_named_in(statement)
        return self.connection.execute(statement, parameters)

    def _executemany(self, statement: str, parameters: Any) -> sqlite3.Cursor:
        self._flush_named_in(statement)
        return self.connection.executemany(statement, parameters)


@contextmanager
def late(connection: sqlite3.Connection, apply: Apply) -> Iterator[LateUnit]:
    """A unit for the block; everything is written at its end, unless the block raises."""
    unit = LateUnit(connection, apply)
    yield unit
    unit.flush()
