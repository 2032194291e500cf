"""A transaction ends in one commit where it fits, in two steps where not, and looks the same afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb import (
    BrokerConfig,
    ConcurrentTransactionsError,
    InvalidTxnStateError,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    Record,
    RecordBatch,
    TopicPartition,
    TransactionCoordinatorFencedError,
)
from eosdb.wire.errors import COORDINATOR_NOT_AVAILABLE, coordinator_code_of
from tests.inside import Commits
from tests.readers import committed_values

pytestmark = pytest.mark.slow

TPS = [TopicPartition("t", 0), TopicPartition("t", 1)]
END = ["PrepareCommit", "MarkerWritten", "MarkerWritten", "CompleteCommit"]


def open_file(path: Path, clock: eosdb.Clock, partitions_at_once: int = 100) -> eosdb.Database:
    config = BrokerConfig(transaction_unit_partitions=partitions_at_once)
    db = eosdb.connect(path, clock=clock, config=config)
    if "t" not in db.broker.topics():
        db.admin.create_topic("t", partitions=2)
    return db


def begin(db: eosdb.Database) -> ProducerIdAndEpoch:
    """A transaction over both partitions, and offsets of a group."""
    me = db.broker.init_producer_id("app")
    batch = RecordBatch([Record(value=b"v")], *me, 0, is_transactional=True)
    db.broker.produce(dict.fromkeys(TPS, batch), transactional_id="app")
    offsets = {TPS[0]: OffsetAndMetadata(7)}
    db.broker.txn_offset_commit("app", "billing", *me, offsets)
    return me


def newest_events(db: eosdb.Database) -> list[object]:
    rows = db.query(
        "SELECT COALESCE(json_extract(detail, '$.to_state'), kind) FROM journal "
        "ORDER BY position DESC LIMIT 4"
    ).rows
    return [name for (name,) in rows][::-1]


@pytest.mark.parametrize(("partitions_at_once", "commits"), [(100, 1), (2, 1), (1, 2), (0, 2)])
def test_prepare_markers_and_complete_are_one_commit_up_to_a_bound(
    db_path: Path, clock: eosdb.ManualClock, partitions_at_once: int, commits: int
) -> None:
    with open_file(db_path, clock, partitions_at_once) as db:
        me = begin(db)
        with Commits(db) as counted:
            after = db.broker.end_txn("app", *me, True)
        assert (counted.all, counted.synced) == (commits, 1)
        assert after == ProducerIdAndEpoch(me.producer_id, me.producer_epoch + 1)
        assert newest_events(db) == END
        assert [committed_values(db, tp) for tp in TPS] == [[b"v"], [b"v"]]
        assert db.broker.offset_fetch("billing")[TPS[0]].offset == 7
        assert db.broker.end_txn("app", *me, True) == after, "a repeat gets the same answer"
        assert db.verify().ok


@pytest.mark.parametrize(("partitions_at_once", "commits"), [(100, 1), (0, 2)])
def test_a_new_producer_aborts_what_is_open_in_as_many(
    db_path: Path, clock: eosdb.ManualClock, partitions_at_once: int, commits: int
) -> None:
    with open_file(db_path, clock, partitions_at_once) as db:
        begin(db)
        with Commits(db) as counted, pytest.raises(ConcurrentTransactionsError):
            db.broker.init_producer_id("app")
        assert counted.all == commits
        assert newest_events(db)[0] == "PrepareAbort"
        assert newest_events(db)[-1] == "CompleteAbort"
        assert [committed_values(db, tp) for tp in TPS] == [[], []]
        assert db.broker.init_producer_id("app").producer_epoch >= 2
        assert db.verify().ok


def test_a_decision_stands_where_a_partition_has_seen_a_newer_coordinator(
    db_path: Path, clock: eosdb.ManualClock
) -> None:
    with open_file(db_path, clock) as db:
        me = begin(db)
        db.broker.write_txn_markers(*db.broker.init_producer_id(), True, TPS[:1], 99)
        batch = RecordBatch([Record(value=b"v")], *me, 1, is_transactional=True)
        db.broker.produce({TPS[0]: batch}, transactional_id="app")
        db.broker.write_txn_markers(*me, False, TPS[:1], 99, transaction_version=1)
        with pytest.raises(TransactionCoordinatorFencedError) as raised:
            db.broker.end_txn("app", *me, True)
        assert raised.value.outcome == "unknown"
        assert coordinator_code_of(raised.value) == COORDINATOR_NOT_AVAILABLE, "clients ask again"
        (found,) = db.broker.describe_transactions(["app"]).values()
        assert found.state == "PrepareCommit"
        assert db.producer().send("t", b"others go on", partition=1).result().offset
        with pytest.raises(ConcurrentTransactionsError):
            db.broker.init_producer_id("app")
        with pytest.raises(ConcurrentTransactionsError):
            db.broker.end_txn("app", *me, True)
        with pytest.raises(InvalidTxnStateError):
            db.broker.end_txn("app", *me, False)
        assert db.verify().ok
