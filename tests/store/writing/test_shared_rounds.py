"""Requests that share a unit see what those before them wrote, whichever way they look."""

from __future__ import annotations

from pathlib import Path

import eosdb
from eosdb.events.kinds import ProducerIdBlockAllocated
from eosdb.maintenance import replay
from eosdb.store.writing.group_commit import Request
from eosdb.store.writing.unit import Unit


def test_a_rebuild_folds_the_event_of_a_request_in_the_same_round(db_path: Path) -> None:
    def add(unit: Unit) -> int:
        return unit.record(ProducerIdBlockAllocated(1, first_producer_id=0, size=10, version=1))

    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        round_ = [Request(add, sync=True), Request(replay.rebuild, sync=True)]
        db._store._run_round(round_)
        position, events = (request.result for request in round_)
        assert events == position, "its event was the newest"
        assert db.verify().ok
