"""Transactions that hang are found, whatever made them hang, and can be ended; anything else is told as
it is."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import HangingReason, ManualClock, Record, RecordBatch, TopicPartition
from eosdb.admin import hanging
from eosdb.admin.tools import Tools
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.errors import InvalidRequestError, TransactionalIdNotFoundError
from eosdb.model.reports import OpenTransaction
from eosdb.model.values import TransactionState
from tests.readers import committed_values
from tests.requests import Send

TP = TopicPartition("t", 0)


def begin(db: eosdb.Database, name: str = "x", timeout_ms: int = 60_000) -> tuple[int, int]:
    me = db.broker.init_producer_id(name, timeout_ms)
    db.broker.add_partitions_to_txn(name, *me, [TP])
    append(db, me, name)
    return me


def append(
    db: eosdb.Database, me: tuple[int, int], name: str = "x", sequence: int = 0
) -> eosdb.ProduceResult:
    batch = RecordBatch([Record(value=b"in " + name.encode())], *me, sequence, True)
    return db.broker.append(TP, batch, transactional_id=name)


def plain(db: eosdb.Database, value: bytes = b"plain") -> None:
    db.broker.append(TP, RecordBatch([Record(value=value)]))


def refuse(db: eosdb.Database, *, committed: bool) -> None:
    """Has x decided, and its marker refused: the partition has seen a coordinator of epoch 1000."""
    me = begin(db)
    db.broker.write_txn_markers(*me, False, [TP], 1_000)
    append(db, me, sequence=1)
    with pytest.raises(eosdb.TransactionCoordinatorFencedError):
        db.broker.end_txn("x", *me, committed)


@pytest.mark.parametrize("name", ["x", "x\0y", 'é"\\'])
def test_a_transaction_that_will_end_does_not_hang(
    classic_db: eosdb.Database, clock: ManualClock, name: str
) -> None:
    begin(classic_db, name)
    (found,) = classic_db.admin.open_transactions()
    assert (found.topic_partition, found.start_offset, found.state) == (TP, 0, "Ongoing")
    assert found.transactional_id == name
    assert found.start_time_ms == clock.time_ms()
    assert found.deadline_ms == clock.time_ms() + 60_000
    assert found.hanging is None
    assert classic_db.admin.find_hanging_transactions() == []


def test_one_that_is_older_than_its_timeout_hangs_until_somebody_writes(
    classic_db: eosdb.Database, clock: ManualClock
) -> None:
    begin(classic_db)
    plain(classic_db)
    clock.advance(60_001)
    (found,) = classic_db.admin.find_hanging_transactions()
    assert found.hanging is HangingReason.OVERDUE
    assert classic_db.admin.find_hanging_transactions(min_age_ms=60_002) == []
    assert classic_db.admin.abort_transaction(TP, found.start_offset) == "ABORT"
    assert committed_values(classic_db, TP) == [b"plain"]
    assert classic_db.admin.open_transactions() == []


@pytest.mark.parametrize("committed", [True, False])
def test_one_that_is_decided_and_refused_hangs_and_ends_as_decided(
    classic_db: eosdb.Database, committed: bool
) -> None:
    refuse(classic_db, committed=committed)
    plain(classic_db)
    assert committed_values(classic_db, TP) == []
    (found,) = classic_db.admin.find_hanging_transactions()
    assert found.hanging is HangingReason.REFUSED
    assert found.deadline_ms == -1
    assert classic_db.admin.abort_transaction(TP, found.start_offset) == (
        "COMMIT" if committed else "ABORT"
    )
    assert committed_values(classic_db, TP) == ([b"in x"] if committed else []) + [b"plain"]
    assert classic_db.admin.find_hanging_transactions() == []
    assert classic_db.verify().ok
    begin(classic_db)  # The id goes on.


def test_one_that_the_coordinator_does_not_know_as_open_hangs(
    classic_db: eosdb.Database, db_path: Path, clock: ManualClock
) -> None:
    begin(classic_db)
    plain(classic_db)
    classic_db.close()
    with contextlib.closing(sqlite3.connect(db_path)) as raw:
        raw.execute("UPDATE transactional_ids SET partitions = '[]'")
        raw.commit()
    with eosdb.connect(db_path, clock=clock) as damaged:
        (found,) = damaged.admin.find_hanging_transactions()
        assert found.hanging is HangingReason.NOT_ITS_PARTITION
        assert damaged.admin.abort_transaction(TP, found.start_offset) == "ABORT"
        assert committed_values(damaged, TP) == [b"plain"]
        assert damaged.admin.find_hanging_transactions() == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"producer_id": 8}, HangingReason.UNKNOWN),
        ({"state": TransactionState.EMPTY}, HangingReason.COMPLETED),
        ({"producer_epoch": 4}, HangingReason.ANOTHER_EPOCH),
        ({"partitions": frozenset()}, HangingReason.NOT_ITS_PARTITION),
        ({"start_time_ms": 900}, HangingReason.OVERDUE),
        ({"state": TransactionState.PREPARE_COMMIT}, None),
        ({"state": TransactionState.PREPARE_COMMIT, "producer_epoch": 4}, None),
        (
            {"state": TransactionState.PREPARE_ABORT, "partitions": frozenset()},
            HangingReason.NOT_ITS_PARTITION,
        ),
    ],
)
def test_what_hangs_follows_from_what_both_sides_know(
    change: dict[str, object], reason: HangingReason | None
) -> None:
    known: dict[str, object] = {
        "transactional_id": "x", "producer_id": 7, "producer_epoch": 3, "last_producer_epoch": -1,
        "previous_producer_id": -1, "state": TransactionState.ONGOING, "timeout_ms": 99,
        "start_time_ms": 901, "last_update_time_ms": 950, "partitions": frozenset({TP}),
        "groups": frozenset(),
    }  # fmt: skip
    found = OpenTransaction(
        topic=TP.topic, partition=TP.partition, producer_id=7, producer_epoch=3,
        coordinator_epoch=2, start_offset=0, last_timestamp=900, start_time_ms=900,
    )  # fmt: skip
    metadata = TransactionMetadata(**{**known, **change})  # type: ignore[arg-type]
    assert hanging.judge(found, metadata, 2, 1_000) is reason
    assert hanging.judge(found, None, 2, 1_000) is HangingReason.UNKNOWN


def test_aborting_one_that_goes_on_fences_its_producer(classic_db: eosdb.Database) -> None:
    me = begin(classic_db)
    plain(classic_db)
    assert classic_db.admin.abort_transaction(TP, 0) == "ABORT"
    assert committed_values(classic_db, TP) == [b"plain"]
    with pytest.raises(eosdb.ProducerFencedError):
        classic_db.broker.end_txn("x", *me, True)
    assert classic_db.verify().ok


def test_an_offset_where_none_begins_is_told_where_some_do(classic_db: eosdb.Database) -> None:
    with pytest.raises(InvalidRequestError, match="none is open"):
        classic_db.admin.abort_transaction(TP, 0)
    plain(classic_db)
    begin(classic_db)
    with pytest.raises(InvalidRequestError, match="begin at 1"):
        classic_db.admin.abort_transaction(TP, 0)
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        classic_db.admin.abort_transaction(TopicPartition("nowhere", 0), 0)


def test_fencing_ends_the_transaction_and_the_producer(classic_db: eosdb.Database) -> None:
    me = begin(classic_db)
    after = classic_db.admin.fence_producer("x")
    assert after.producer_id == me[0]
    assert after.producer_epoch > me[1]
    with pytest.raises(eosdb.InvalidProducerEpochError):
        append(classic_db, me, sequence=1)
    assert classic_db.admin.open_transactions() == []
    classic_db.admin.fence_producer("x")


def test_fencing_that_gives_up_may_have_aborted_the_transaction(
    classic_db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first attempt aborts, and the file is locked then, or others keep the id busy."""
    coordinator, again = classic_db.admin._core.coordinator, eosdb.ConcurrentTransactionsError
    for behind in (again, eosdb.DatabaseLockedError):
        begin(classic_db)
        answers = iter([again("busy"), *[behind("refused")] * 10])

        def init(*_: object, answers: Iterator[eosdb.EosdbError] = answers) -> None:
            raise next(answers)

        with monkeypatch.context() as patch:
            patch.setattr(type(coordinator), "init_producer_id", init)
            with pytest.raises(behind) as told:
                classic_db.admin.fence_producer("x")
        assert told.value.outcome == "unknown"
        classic_db.admin.fence_producer("x")


def test_fencing_an_id_that_nobody_has_used_makes_it(classic_db: eosdb.Database) -> None:
    """`Admin.fenceProducers` is an InitProducerId."""
    made = classic_db.admin.fence_producer("new")
    described = classic_db.broker.describe_transactions(["new"])["new"]
    assert (described.state, described.transaction_timeout_ms) == ("Empty", 60_000)
    after = classic_db.broker.init_producer_id("new")
    assert after == (made.producer_id, made.producer_epoch + 1)
    with pytest.raises(InvalidRequestError, match="empty"):
        classic_db.admin.fence_producer("")


# -- why ----------------------------------------------------------------------------------------


def test_a_diagnosis_says_who_holds_the_partition_and_what_waits(
    classic_db: eosdb.Database, clock: ManualClock
) -> None:
    plain(classic_db)
    me = begin(classic_db, "holder")
    begin(classic_db, "other", 30_000)
    clock.advance(5_000)
    for _ in range(3):
        plain(classic_db)
    append(classic_db, me, "holder", 1)
    classic_db.broker.offset_commit("g", {TP: eosdb.OffsetAndMetadata(0)})
    why = classic_db.admin.diagnose(TP, "g")
    assert (why.offsets.last_stable_offset, why.offsets.log_end_offset) == (1, 7)
    assert why.holder is not None
    assert (why.holder.transactional_id, why.holder.start_offset) == ("holder", 1)
    assert why.holder.deadline_ms - why.now_ms == 55_000
    assert (why.others_open, why.waiting_committed, why.waiting_open) == (1, 3, 3)
    assert why.group is not None
    assert (why.group.committed_offset, why.group.lag) == (0, 1)
    assert why.group.lag is not None
    assert why.group.lag.held_back == 6
    assert why.group_state == "Empty"


def test_a_partition_that_nobody_holds_has_no_holder(classic_db: eosdb.Database) -> None:
    plain(classic_db)
    why = classic_db.admin.diagnose(TP)
    assert (why.holder, why.waiting_committed, why.waiting_open, why.group) == (None, 0, 0, None)
    assert classic_db.admin.diagnose(TP, "nobody").group_state == "Dead"
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        classic_db.admin.diagnose(TopicPartition("t", 9))


def test_offsets_that_a_transaction_holds_are_told(classic_db: eosdb.Database) -> None:
    me = classic_db.broker.init_producer_id("x")
    classic_db.broker.add_offsets_to_txn("x", *me, "g")
    classic_db.broker.txn_offset_commit("x", "g", *me, {TP: eosdb.OffsetAndMetadata(0)})
    (standing,) = classic_db.admin.describe_group_offsets("g").partitions
    assert (standing.committed_offset, standing.lag, standing.pending) == (-1, 0, ("x",))


# -- the journal --------------------------------------------------------------------------------


def test_the_history_of_an_id_is_all_that_happened_under_it(
    classic_db: eosdb.Database, send: Send
) -> None:
    me = begin(classic_db)
    begin(classic_db, "other")
    classic_db.broker.end_txn("x", *me, True)
    history = classic_db.admin.transaction_history("x")
    assert [entry.kind for entry in history] == [
        "TransactionStateChanged", "TransactionStateChanged", "BatchAppended",
        "TransactionStateChanged", "MarkerWritten", "TransactionStateChanged",
    ]  # fmt: skip
    assert json.loads(history[-1].detail)["to_state"] == "CompleteCommit"
    with pytest.raises(TransactionalIdNotFoundError):
        classic_db.admin.transaction_history("nobody")


@pytest.mark.slow
def test_the_journal_is_read_with_filters_in_order(classic_db: eosdb.Database) -> None:
    classic_db.admin.create_topic("u")
    begin(classic_db)
    for _ in range(2_500):
        classic_db.broker.append(TopicPartition("u", 0), RecordBatch([Record(value=b"v")]))
    everything = list(classic_db.admin.journal())
    assert [entry.position for entry in everything] == list(range(1, len(everything) + 1))
    assert list(classic_db.admin.journal(topic="u")) == [e for e in everything if e.topic == "u"]
    assert list(classic_db.admin.journal(kinds=("TopicCreated",))) == [
        e for e in everything if e.kind == "TopicCreated"
    ]
    assert list(
        classic_db.admin.journal(transactional_id="x")
    ) == classic_db.admin.transaction_history("x")
    newest = Tools(classic_db.admin).journal_position(newest=3)
    assert list(classic_db.admin.journal(newest)) == everything[-3:]
    assert list(classic_db.admin.journal(10**9)) == []
