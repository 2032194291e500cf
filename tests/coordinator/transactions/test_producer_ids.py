"""A block of producer ids counts once the unit that allocated it is committed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import eosdb
from eosdb.coordinator.leadership import Decision
from eosdb.coordinator.transactions import rows
from eosdb.coordinator.transactions.state import FreshProducerIdNeededError
from eosdb.store.writing.unit import RedoCarefullyError, Unit


@pytest.fixture
def openers(db_path: Path) -> Iterator[tuple[eosdb.Database, eosdb.Database]]:
    config = eosdb.BrokerConfig(producer_id_block_size=2)
    with ExitStack() as opened:
        db, other = (
            opened.enter_context(eosdb.connect(db_path, durability="off", config=config))
            for _ in range(2)
        )
        yield db, other


def no_id_twice(*openers: eosdb.Database) -> bool:
    ids = [db.broker.init_producer_id().producer_id for db in openers for _ in range(3)]
    return len(set(ids)) == len(ids)


def test_a_block_is_allocated_in_the_unit_that_needs_its_first_id(db: eosdb.Database) -> None:
    before = db.metrics()["commit-total"]
    db.broker.init_producer_id("p")
    # One commit elects the coordinator.
    assert db.metrics()["commit-total"] - before == 2


@pytest.mark.parametrize("raised", [KeyboardInterrupt, eosdb.DatabaseFullError])
def test_no_id_is_given_twice_after_the_unit_of_its_block_was_rolled_back(
    openers: tuple[eosdb.Database, eosdb.Database], raised: type[BaseException]
) -> None:
    db, other = openers

    def decide(_: Unit, fresh: int | None) -> Decision:
        raise FreshProducerIdNeededError if fresh is None else raised

    with pytest.raises(raised):
        db._core.coordinator.decided("p", decide)
    assert no_id_twice(other, db)


def test_no_id_is_given_twice_after_the_unit_of_its_block_ran_again_without_it(
    openers: tuple[eosdb.Database, eosdb.Database],
) -> None:
    db, other = openers
    other.broker.init_producer_id("p")
    runs: list[int | None] = []

    def decide(unit: Unit, fresh: int | None) -> Decision:
        runs.append(fresh)
        if len(runs) == 1:
            raise FreshProducerIdNeededError
        if len(runs) == 2:
            raise RedoCarefullyError
        current = rows.load(unit, "p")
        assert current is not None
        return Decision(current, 0)

    db._core.coordinator.decided("p", decide)
    assert [fresh is None for fresh in runs] == [True, False, True]
    assert no_id_twice(other, db)
