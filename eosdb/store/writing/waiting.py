"""Deferred writes: a unit saves the same few rows again and again, and only the last version of each
matters; new rows go out in few statements.

The last row for each key is deferred until a statement names its table, so SQL always sees what has been
folded so far, and callers need not care.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

from eosdb.store.writing.insertion import Insertion

_Saved: TypeAlias = tuple[str, Callable[[Any], Any], Any]
"""A statement, and what makes its row of which value."""
_WAITING_MAX: Final = 5_000
"""The most deferred rows of one table, so that memory stays bounded."""

_DELETES_RECORDS: Final = "DELETE FROM records"
_TABLE_IN_ITS_TRIGGER: Final = " partitions"


class Waiting:
    """The deferred rows of one unit."""

    __slots__ = ("_connection", "_inserts", "_saves", "tables")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._saves: defaultdict[str, dict[Hashable, _Saved]] = defaultdict(dict)
        self._inserts: defaultdict[str, list[tuple[Insertion, Sequence[object]]]] = defaultdict(
            list
        )
        self.tables: Final[dict[str, None]] = {}
        """Tables with deferred rows, in the order of the first row of each."""

    def save(
        self,
        table: str,
        key: Hashable,
        statement: str,
        row: Callable[[Any], Sequence[object]],
        value: object,
    ) -> None:
        """Defer a row, replacing the one with the same key."""
        self.tables[table] = None
        waiting = self._saves[table]
        before = waiting.get(key)
        # An INSERT that still waits stays one, with the newer row.
        waiting[key] = (statement if before is None else before[0], row, value)
        if len(waiting) > _WAITING_MAX:
            self.write(table)

    def insert(self, insertion: Insertion, row: Sequence[object]) -> None:
        """Defer a new row."""
        table = insertion.table
        self.tables[table] = None
        waiting = self._inserts[table]
        waiting.append((insertion, row))
        if len(waiting) > _WAITING_MAX:
            self.write(table)

    def new_rows(self, table: str) -> list[tuple[Insertion, Sequence[object]]]:
        """Return the deferred new rows of the table."""
        return self._inserts.get(table, [])

    def write_named_in(self, statement: str) -> None:
        """Write the deferred rows of every table that the statement or its triggers name."""
        if _DELETES_RECORDS in statement:
            statement += _TABLE_IN_ITS_TRIGGER
        for table in [table for table in self.tables if table in statement]:
            self.write(table)

    def write_all(self) -> None:
        for table in [*self.tables]:
            self.write(table)

    def write(self, table: str) -> None:
        """Write the deferred rows of one table, new rows first."""
        self.tables.pop(table, None)
        execute = self._connection.execute
        inserts = self._inserts.pop(table, None)
        if inserts:
            for insertion, group in itertools.groupby(inserts, itemgetter(0)):
                for statement, values in insertion.statements([row for _, row in group]):
                    execute(statement, values)
        saves = self._saves.pop(table, None)
        if not saves:
            return
        if len(saves) < 3:
            for statement, row, value in saves.values():
                execute(statement, row(value))
            return
        of_statement: dict[str, list[Sequence[object]]] = {}
        for statement, row, value in saves.values():
            of_statement.setdefault(statement, []).append(row(value))
        for statement, rows in of_statement.items():
            self._connection.executemany(statement, rows)

    def discard(self) -> None:
        """Drop all deferred rows."""
        self._saves.clear()
        self._inserts.clear()
        self.tables.clear()
