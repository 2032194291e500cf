"""Every row of the table of groups, by requests to the broker: each group in a file of many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import eosdb
from eosdb import ManualClock
from tests.broker.asked import Asked, clock, only_its_topic, rebuilt
from tests.coordinator.groups.steps import Row, check_all
from tests.coordinator.groups.table import TABLE

__all__ = ["clock"]


@pytest.fixture(scope="module")
def db(clock: ManualClock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[eosdb.Database]:
    path = tmp_path_factory.mktemp("groups") / "all.db"
    with rebuilt(eosdb.connect(path, clock=clock, durability="off")) as opened:
        yield opened


@pytest.mark.slow
def test_the_broker_answers_as_the_table_says(db: eosdb.Database, clock: ManualClock) -> None:
    def group_of(row: Row) -> Asked:
        only_its_topic(db)
        return Asked(db, row.name, clock)

    check_all(TABLE, group_of)
