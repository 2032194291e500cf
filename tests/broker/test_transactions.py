"""New producers, ends, time-outs and markers: what the coordinator answers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import eosdb
from eosdb import (
    ManualClock,
    TopicPartition,
)
from tests.requests import TP, begin, state

LEVEL: Final = "read_committed"


def test_producer_ids_end_with_a_clear_error(classic_db: eosdb.Database, db_path: Path) -> None:
    from eosdb.errors import ProducerIdsExhaustedError
    from eosdb.store.counters import set_counter

    classic_db._store.write(lambda unit: set_counter(unit, "next_producer_id", 2**63 - 1_001))
    assert classic_db.broker.init_producer_id().producer_id == 2**63 - 1_001
    classic_db._store.write(lambda unit: set_counter(unit, "next_producer_id", 2**63 - 999))
    with (
        eosdb.connect(db_path) as other,
        pytest.raises(ProducerIdsExhaustedError, match="start a new"),
    ):
        other.broker.init_producer_id()


def test_reads_do_not_run_housekeeping(classic_db: eosdb.Database, clock: ManualClock) -> None:
    begin(classic_db, timeout_ms=1_000)
    clock.advance(5_000)
    classic_db.broker.fetch(TP, 0)
    assert state(classic_db) == "Ongoing"


def test_transactional_ids_expire_unless_they_are_open(
    classic_db: eosdb.Database, clock: ManualClock
) -> None:
    classic_db.broker.init_producer_id("idle")
    week = classic_db.config.transactional_id_expiration_ms
    clock.advance(week - 1)
    classic_db.housekeeping()
    assert [t.transactional_id for t in classic_db.broker.list_transactions()] == ["idle"]
    clock.advance(1)
    assert classic_db.housekeeping().expired_transactional_ids == 1
    with pytest.raises(eosdb.InvalidProducerIdMappingError):
        classic_db.broker.end_txn("idle", 0, 0, True)


def test_a_partition_that_saw_a_newer_epoch_is_left_out(classic_db: eosdb.Database) -> None:
    classic_db.admin.create_topic("u")
    u = TopicPartition("u", 0)
    who = begin(classic_db)
    classic_db.broker.add_partitions_to_txn("a", *who, [u])
    classic_db.broker.write_txn_markers(who.producer_id, 9, True, [TP], 0)
    classic_db.broker.end_txn("a", *who, True)
    assert state(classic_db) == "CompleteCommit"
    assert (
        classic_db.broker.offsets(TP).log_end_offset,
        classic_db.broker.offsets(u).log_end_offset,
    ) == (1, 1)


def test_markers_over_several_partitions_are_all_or_nothing(classic_db: eosdb.Database) -> None:
    classic_db.admin.create_topic("u")
    u = TopicPartition("u", 0)
    classic_db.broker.write_txn_markers(7, 3, True, [TP], 5)
    for producer_epoch, coordinator_epoch, error in (
        (2, 5, eosdb.InvalidProducerEpochError),
        (2, 4, eosdb.InvalidProducerEpochError),
        (3, 4, eosdb.TransactionCoordinatorFencedError),
    ):
        with pytest.raises(error):
            classic_db.broker.write_txn_markers(7, producer_epoch, True, [u, TP], coordinator_epoch)
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        classic_db.broker.write_txn_markers(7, 3, True, [u, TopicPartition("nope", 0)], 5)
    assert classic_db.broker.offsets(u).log_end_offset == 0
    classic_db.broker.write_txn_markers(7, 3, False, [u, TP], 5)
    assert classic_db.broker.fetch(TP, 0, isolation_level=LEVEL).aborted_transactions == []
