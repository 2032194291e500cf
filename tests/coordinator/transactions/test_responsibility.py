"""Who is to complete a decided transaction: the thread that decided it, until it has failed."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.coordinator.leadership import Decide, Decision, End
from eosdb.coordinator.transactions import rows
from eosdb.model.failpoints import watched
from eosdb.store.writing.unit import Unit

TP = TopicPartition("t", 0)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, eosdb.DatabaseFullError])
def test_a_decision_whose_commit_fails_is_not_this_threads_to_complete(
    classic_db: eosdb.Database, raised: type[BaseException]
) -> None:
    """It may be in the file all the same, or come again: then whoever writes next completes it."""
    db = classic_db
    me = db.broker.init_producer_id("p")
    db.broker.add_partitions_to_txn("p", *me, [TP])
    leadership = db._core.coordinator.leadership
    decided: list[Decision] = []

    def decide(unit: Unit) -> Decision:
        current = rows.load(unit, "p")
        assert current is not None
        decided.append(Decision(current, 0, End.DECIDED))
        return decided[0]

    def fails(first_step: Decide) -> None:
        def work(unit: Unit) -> None:
            first_step(unit)
            assert leadership._completing == {"p"}
            raise raised

        db._store.write(work)

    with watched(lambda _: None), pytest.raises(raised):
        leadership.decide("p", decide, fails)
    assert leadership._completing == set()


def test_positions_of_eosdbs_own_stay_when_their_group_loses_its_members(
    classic_db: eosdb.Database, clock: eosdb.ManualClock
) -> None:
    db = classic_db
    db.broker.append(TP, RecordBatch([Record(value=b"v")]))
    for group in ("__eosdb.note", "g"):
        db.broker.offset_commit(group, {TP: OffsetAndMetadata(1)})
        joined = db.broker.join_group(group, protocols=[("range", b"")])
        db.broker.leave_group(group, joined.member_id)
    clock.advance(10 * db.config.offsets_retention_minutes * 60_000)
    db.housekeeping()
    assert db.broker.offset_fetch("__eosdb.note") == {TP: OffsetAndMetadata(1)}
    assert db.broker.offset_fetch("g") == {}
