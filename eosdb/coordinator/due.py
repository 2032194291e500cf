"""The remembered bound: before this time nothing is due. What begins to exist may bring it forward."""

from __future__ import annotations

from typing import Final

from eosdb.store.writing.unit import Unit

DUE: Final = "housekeeping due"


def due_by(unit: Unit, time_ms: int) -> None:
    """Something that begins now is due at this time; nothing is to be done where no bound is known."""
    due: int | None = unit.memo.get(DUE)
    if due is not None:
        unit.memo[DUE] = min(due, time_ms)
