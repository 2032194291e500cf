"""Which transactional ids SQL finds to be due."""

from __future__ import annotations

import pytest

import eosdb
from eosdb.coordinator.transactions import rows
from eosdb.model.values import TransactionState
from eosdb.store.writing.unit import Unit
from tests.coordinator.transactions.requests import START_MS, TIMEOUT_MS, UPDATE_MS, metadata

AT_REST = ["CompleteAbort", "CompleteCommit", "Empty"]


def one_in_each_state(unit: Unit) -> None:
    for state in TransactionState:
        known = metadata(state, transactional_id=state.label)
        rows.record(unit, None, known, UPDATE_MS)


@pytest.mark.parametrize(
    ("age", "expired"), [(499, []), (500, AT_REST), (501, AT_REST)], ids=["younger", "at", "older"]
)
def test_ids_at_rest_expire_at_the_limit(db: eosdb.Database, age: int, expired: list[str]) -> None:
    def expire(unit: Unit) -> int:
        one_in_each_state(unit)
        return rows.expire(unit, UPDATE_MS + age, 500)

    assert db._store.write(expire) == len(expired)
    with db._store.read() as connection:
        left = {known.transactional_id for known in rows.read_where(connection)}
    assert sorted({state.label for state in TransactionState} - left) == expired


@pytest.mark.parametrize(("late_ms", "found"), [(0, None), (1, "Ongoing")])
def test_an_open_transaction_times_out_after_its_deadline_not_at_it(
    db: eosdb.Database, late_ms: int, found: str | None
) -> None:
    def look(unit: Unit) -> str | None:
        one_in_each_state(unit)
        return rows.first_timed_out(unit, START_MS + TIMEOUT_MS + late_ms)

    assert db._store.write(look) == found
