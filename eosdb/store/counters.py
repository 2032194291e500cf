"""Counters for ids that are never reused: topic and partition ids, producer-id blocks, epochs."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Final

from eosdb.model.damage import reads
from eosdb.store.schema.newest import Statement
from eosdb.store.writing.unit import TRANSACTIONS, Folding, Memo

_SET: Final = Statement(
    "INSERT INTO {counters} (name, value) VALUES (?, ?) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
_BY_NAME: Final = Statement("SELECT value FROM {counters} WHERE name = ?")


@dataclass(slots=True)
class _CounterMemo(Memo):
    values: dict[str, int] = field(default_factory=dict)
    survives = TRANSACTIONS


def set_counter(unit: Folding, name: str, value: int) -> None:
    unit.execute(_SET, (name, value))
    unit.memos[_CounterMemo].values[name] = value


def counter(source: Folding | sqlite3.Connection, name: str) -> int:
    """Return the last assigned value; 0 if there is none."""
    if isinstance(source, sqlite3.Connection):
        return _read(source, name)
    values = source.memos[_CounterMemo].values
    if name not in values:
        values[name] = _read(source, name)
    return values[name]


@reads("counters")
def _read(source: Folding | sqlite3.Connection, name: str) -> int:
    row = source.execute(_BY_NAME, (name,)).fetchone()
    return 0 if row is None else int(row[0])
