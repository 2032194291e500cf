"""A table of the state: its statements, made once at import, and the way from a row to its value.

Only projections write to these tables, so each statement exists for the live table and for the baseline's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

from eosdb.model.damage import reads
from eosdb.store.schema.newest import Statement
from eosdb.store.writing.insertion import FoldedInsertion
from eosdb.store.writing.unit import Folding, Parameters

V = TypeVar("V")


class Table:
    """The statements of a table; `columns` and `key` are names, a text has them separated by spaces. INSERT
    takes the columns in this order. UPDATE takes them without the `fixed` ones, and the key last: if the
    key is declared behind the other columns, the same row serves both."""

    def __init__(
        self, name: str, columns: str | Iterable[str], key: str, *, fixed: str = ""
    ) -> None:
        names, self._key = _names(columns), _names(key)
        assert len(set(names)) == len(names), names
        assert {*self._key, *_names(fixed)} <= {*names}, names
        self._changing: Final = [n for n in names if n not in (*self._key, *_names(fixed))]
        self._table: Final = f"{{{name}}}"
        self.columns: Final = ", ".join(names)
        self._row: Final = (
            f"INTO {self._table} ({self.columns}) VALUES ({', '.join('?' for _ in names)})"
        )
        at_key = " AND ".join(f"{name} = ?" for name in self._key)
        self.select: Final = Statement(f"SELECT {self.columns} FROM {self._table}")
        self.at_key: Final = self.where(at_key)
        """The SELECT of the row with a key."""
        self.insert: Final = Statement(f"INSERT {self._row}")
        self.rows: Final = FoldedInsertion(name, names)
        """INSERT for `Folding.insert`, which joins many rows; a last column `checksum` is computed."""
        self.ignore: Final = Statement(f"INSERT OR IGNORE {self._row}")
        self.replace: Final = Statement(f"INSERT OR REPLACE {self._row}")
        changes = ", ".join(f"{name} = ?" for name in self._changing or self._key)
        self.update: Final = self.set(changes, at_key)
        self.delete: Final = self.deletion(at_key)

    def where(self, condition: str) -> Statement:
        """The SELECT of the rows that match an SQL condition, perhaps with ORDER BY behind it."""
        return Statement(f"SELECT {self.columns} FROM {self._table} WHERE {condition}")

    def upsert(self, condition: str) -> Statement:
        """The INSERT that replaces a row with this key if the condition holds, else does nothing."""
        keys, changes = ", ".join(self._key), (f"{n} = excluded.{n}" for n in self._changing)
        return Statement(
            f"INSERT {self._row} ON CONFLICT ({keys}) DO UPDATE SET {', '.join(changes)} "
            f"WHERE {condition}"
        )

    def set(self, changes: str, condition: str) -> Statement:
        return Statement(f"UPDATE {self._table} SET {changes} WHERE {condition}")

    def deletion(self, condition: str) -> Statement:
        return Statement(f"DELETE FROM {self._table} WHERE {condition}")


class TableOf(Table, Generic[V]):
    """A table whose rows are values. `value` makes a value of a row."""

    def __init__(
        self,
        name: str,
        columns: str | Iterable[str],
        key: str,
        value: Callable[[tuple[Any, ...]], V],
        *,
        fixed: str = "",
    ) -> None:
        super().__init__(name, columns, key, fixed=fixed)
        self.value: Final = reads(name)(value)
        """Make the value of a row. Raises CorruptDatabaseError."""

    def find(self, source: Folding | sqlite3.Connection, *key: object) -> V | None:
        """Return the value with this key; None without one. Raises CorruptDatabaseError."""
        row = source.execute(self.at_key, key).fetchone()
        return None if row is None else self.value(row)

    def read(
        self, source: Folding | sqlite3.Connection, select: Statement, parameters: Parameters = ()
    ) -> Iterator[V]:
        """Yield the values of the rows. Raises CorruptDatabaseError."""
        return map(self.value, source.execute(select, parameters))


def _names(names: str | Iterable[str]) -> tuple[str, ...]:
    given = names.split() if isinstance(names, str) else names
    return tuple('"offset"' if name == "offset" else name for name in given)
