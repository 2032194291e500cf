"""Who is to complete a decided transaction: the thread that decided it, until it has failed."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.coordinator.leadership import Decide, Decision
from eosdb.coordinator.transactions import decisions, rows
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.errors import TransactionCoordinatorFencedError
from eosdb.model.failpoints import watched
from eosdb.model.values import TransactionState
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
        prepared = current._replace(state=TransactionState.PREPARE_COMMIT)
        decided.append(Decision(prepared, 0))
        return decided[0]

    def fails(first_step: Decide) -> None:
        def work(unit: Unit) -> None:
            first_step(unit)
            assert leadership._completing == {"p"}
            raise raised

        late.append(first_step)
        db._store.write(work)

    late: list[Decide] = []
    with watched(lambda _: None):
        with pytest.raises(raised):
            leadership.decide("p", decide, fails)
        assert leadership._completing == set()
        db._store.write(late[0])  # Another thread has run it behind the interrupt.
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


def test_a_new_coordinators_epoch_is_above_all_that_markers_have_seen(
    classic_db: eosdb.Database,
) -> None:
    store, now = classic_db._store, classic_db.clock.time_ms()
    first = store.write(lambda unit: rows.elect(unit, now))
    assert store.write(lambda unit: rows.elect(unit, now, first + 9)) == first + 10
    assert store.write(lambda unit: rows.elect(unit, now, first)) == first + 11


def test_a_replaced_coordinator_does_not_complete_what_it_has_decided(
    classic_db: eosdb.Database,
) -> None:
    db, now = classic_db, classic_db.clock.time_ms()
    me = db.broker.init_producer_id("p")
    db.broker.add_partitions_to_txn("p", *me, [TP])

    def decided(unit: Unit) -> TransactionMetadata:
        current = rows.load(unit, "p")
        prepared = decisions.end(current, *me, True, now)
        assert prepared is not None
        rows.record(unit, current, prepared, now)
        return prepared

    prepared = db._store.write(decided)
    with db._store.read() as connection:
        old = rows.epoch(connection)
    new = db._store.write(lambda unit: rows.elect(unit, now))

    def complete(epoch: int) -> object:
        return db._store.write(
            lambda unit: rows.write_markers_and_complete(unit, prepared, epoch, now)
        )

    for epoch in (old, new + 1):
        with pytest.raises(TransactionCoordinatorFencedError):
            complete(epoch)
    assert complete(new) is not None
    assert complete(new) is None, "it is done"


def test_a_pending_offset_goes_with_its_topic(classic_db: eosdb.Database) -> None:
    """The one that is made anew under its name has none of it when the transaction commits."""
    db = classic_db
    me = db.broker.init_producer_id("p")
    db.broker.add_offsets_to_txn("p", *me, "g")
    db.broker.txn_offset_commit("p", "g", *me, {TP: OffsetAndMetadata(5)})
    db.admin.delete_topic("t")
    db.admin.create_topic("t")
    db.broker.end_txn("p", *me, True)
    assert db.broker.offset_fetch("g") == {}
    assert db.verify().ok
