"""Requests that share a round: each sees what those before it wrote, and is told what became of it."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

import pytest

import eosdb
from eosdb.events.kinds import ProducerIdBlockAllocated
from eosdb.maintenance import replay
from eosdb.store.writing.group_commit import UnitRequest
from eosdb.store.writing.unit import Unit
from eosdb.store.writing.writer import Writer


def test_a_rebuild_folds_the_event_of_a_request_in_the_same_round(db_path: Path) -> None:
    def add(unit: Unit) -> int:
        return unit.record(ProducerIdBlockAllocated(1, first_producer_id=0, size=10, version=1))

    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        round_ = [UnitRequest(add, sync=True), UnitRequest(replay.rebuild, sync=True)]
        db._store._run_round(round_)
        position, events = (request.result for request in round_)
        assert events == position, "its event was the newest"
        assert db.verify().ok


@pytest.mark.parametrize("failing", range(5))
def test_whoever_fails_in_a_round_each_request_has_an_error_if_and_only_if_it_is_not_stored(
    db_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The unit of all does not fit, so each gets one of its own; the WAL cannot be renewed at one of them,
    or the checkpoint behind the last one fails."""
    run, looks = Writer.run, 0

    def not_together(writer: Writer, batch: list[UnitRequest]) -> None:
        if len(batch) > 1:
            raise sqlite3.OperationalError("database or disk is full")
        run(writer, batch)

    def fail_once(*_: object) -> None:
        nonlocal looks
        looks += 1
        if looks == failing + 1:
            raise eosdb.StorageError("not at this moment")

    def store(number: int, unit: Unit) -> None:
        unit.execute("INSERT INTO mine VALUES (?)", (number,))

    with eosdb.connect(db_path) as db:
        with db.begin() as tx:
            tx.connection.exec_driver_sql("CREATE TABLE mine (number INTEGER)")
        round_ = [UnitRequest(partial(store, number), sync=True) for number in range(3)]
        with monkeypatch.context() as patch:
            patch.setattr(Writer, "run", not_together)
            patch.setattr(Writer, "make_good", fail_once)
            patch.setattr(Writer, "checkpoint_when_due", fail_once)
            db._store._run_round(round_)
        assert looks == min(failing + 1, 5)
        stored = [number for (number,) in db.query("SELECT number FROM mine").rows]
        assert stored == [number for number in range(3) if round_[number].error is None]
        assert len(stored) == min(max(failing - 1, 0), 3)
