"""Counters for ids that are never reused: topic and partition ids, producer-id blocks, epochs."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Final

from eosdb.store.writing.table import TableOf
from eosdb.store.writing.unit import TRANSACTIONS, Folding, Memo

_COUNTERS: Final = TableOf("counters", "name value", key="name", value=lambda row: int(row[1]))


@dataclass(slots=True)
class _CounterMemo(Memo):
    values: dict[str, int] = field(default_factory=dict)
    survives = TRANSACTIONS


def set_counter(unit: Folding, name: str, value: int) -> None:
    unit.execute(_COUNTERS.replace, (name, value))
    unit.memos[_CounterMemo].values[name] = value


def counter(source: Folding | sqlite3.Connection, name: str) -> int:
    """Return the last assigned value; 0 if there is none."""
    if isinstance(source, sqlite3.Connection):
        return _COUNTERS.find(source, name) or 0
    values = source.memos[_CounterMemo].values
    if name not in values:
        values[name] = _COUNTERS.find(source, name) or 0
    return values[name]
