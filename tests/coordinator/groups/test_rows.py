"""Which groups SQL finds to be due."""

from __future__ import annotations

import pytest

import eosdb
from eosdb.coordinator.groups import rows
from eosdb.coordinator.groups.decisions import Group
from eosdb.model.values import GroupState
from eosdb.store.writing.unit import Unit

DEADLINE_MS = 70_000


@pytest.mark.parametrize(("late_ms", "found"), [(0, None), (1, "waiting")])
def test_a_rebalance_is_over_after_its_deadline_not_at_it(
    db: eosdb.Database, late_ms: int, found: str | None
) -> None:
    def look(unit: Unit) -> str | None:
        waiting = Group("waiting", GroupState.PREPARING_REBALANCE, deadline_ms=DEADLINE_MS)
        rows.record(unit, None, waiting, 10_000)
        rows.record(unit, None, Group("stable", GroupState.STABLE), 10_000)
        return rows.first_overdue(unit, DEADLINE_MS + late_ms)

    assert db._store.write(look) == found
