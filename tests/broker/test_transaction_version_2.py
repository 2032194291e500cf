"""Transaction version 2 (KIP-890) at the request level: an epoch per transaction, partitions that join by
being written to, and late requests that can never reach a later transaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import (
    ManualClock,
    OffsetAndMetadata,
    ProduceResult,
    ProducerIdAndEpoch,
    Record,
    RecordBatch,
    TopicPartition,
)  # fmt: skip
from tests.readers import committed_values
from tests.requests import skip_to_epoch

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def db(db_path: Path, clock: ManualClock) -> Iterator[eosdb.Database]:
    with eosdb.connect(db_path, clock=clock, durability="normal") as opened:
        opened.admin.create_topic("t", partitions=2)
        yield opened
        assert opened.verify().ok


def append(
    db: eosdb.Database,
    who: ProducerIdAndEpoch,
    value: bytes,
    sequence: int = 0,
    to: TopicPartition = TP,
    version: int | None = None,
) -> ProduceResult:
    batch = RecordBatch([Record(value=value)], *who, sequence, True)
    return db.broker.append(to, batch, transactional_id="a", transaction_version=version)


def state(db: eosdb.Database) -> str:
    return db.broker.describe_transactions(["a"])["a"].state


def test_a_batch_begins_the_transaction_and_brings_its_partition_in(db: eosdb.Database) -> None:
    me = db.broker.init_producer_id("a")
    assert state(db) == "Empty"
    append(db, me, b"one")
    assert state(db) == "Ongoing"
    append(db, me, b"two", to=OTHER)
    assert db.broker.describe_transactions(["a"])["a"].partitions == {TP, OTHER}
    db.broker.end_txn("a", *me, True)
    assert committed_values(db, TP) + committed_values(db, OTHER) == [b"one", b"two"]


def test_a_batch_that_is_refused_brings_nothing_in(db: eosdb.Database) -> None:
    me = db.broker.init_producer_id("a")
    with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
        append(db, me, b"the second", sequence=1)
    assert state(db) == "Empty"


def test_a_late_batch_never_joins_the_next_transaction(db: eosdb.Database) -> None:
    first = db.broker.init_producer_id("a")
    append(db, first, b"first")
    second = db.broker.end_txn("a", *first, True)
    for to in (TP, OTHER):
        with pytest.raises(eosdb.InvalidProducerEpochError):
            append(db, first, b"late", sequence=1, to=to)
    append(db, second, b"second")
    for to in (TP, OTHER):
        with pytest.raises(eosdb.InvalidProducerEpochError):
            append(db, first, b"late", sequence=1, to=to)
    with pytest.raises(eosdb.InvalidProducerEpochError):
        db.broker.txn_offset_commit("a", "g", *first, {TP: OffsetAndMetadata(9)})
    db.broker.end_txn("a", *second, True)
    assert committed_values(db, TP) == [b"first", b"second"]
    assert db.broker.offset_fetch("g") == {}


def test_sequences_begin_anew_in_every_transaction(db: eosdb.Database) -> None:
    me = db.broker.init_producer_id("a")
    for value in (b"one", b"two", b"three"):
        append(db, me, value)
        me = db.broker.end_txn("a", *me, True)
    with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
        append(db, me, b"four", sequence=3)
    assert committed_values(db, TP) == [b"one", b"two", b"three"]


def test_a_version_that_is_not_served_is_refused(db_path: Path) -> None:
    config = eosdb.BrokerConfig(transaction_version=1)
    with eosdb.connect(db_path, config=config) as old:
        me = old.broker.init_producer_id("a")
        with pytest.raises(eosdb.UnsupportedVersionError, match="up to 1"):
            old.broker.end_txn("a", *me, True, transaction_version=2)


def test_the_epochs_of_a_producer_id_are_used_up(db: eosdb.Database) -> None:
    """32766 is the last epoch that a client gets; the end of its transaction gives a new id."""
    me = db.broker.init_producer_id("a")
    me = db.broker.end_txn("a", *me, False)
    skip_to_epoch(db, "a", 32_765)
    me = db.broker.end_txn("a", me.producer_id, 32_765, False)
    assert me.producer_epoch == 32_766
    append(db, me, b"last")
    db.broker.txn_offset_commit("a", "g", *me, {TP: OffsetAndMetadata(1)})
    after = db.broker.end_txn("a", *me, True)
    assert (after.producer_id != me.producer_id, after.producer_epoch) == (True, 0)
    assert db.broker.end_txn("a", *me, True) == after
    assert committed_values(db, TP) == [b"last"]
    assert db.broker.offset_fetch("g")[TP].offset == 1
    append(db, after, b"first of the new id")
    db.broker.end_txn("a", *after, True)
    owners = db.query("SELECT DISTINCT transactional_id FROM committed_records").rows
    assert list(owners) == [("a",)]


def test_a_late_marker_does_not_end_a_later_transaction(db: eosdb.Database) -> None:
    """KIP-1228: a version 2 marker carries the epoch after its transaction's."""
    first = db.broker.init_producer_id("a")
    append(db, first, b"first")
    second = db.broker.end_txn("a", *first, True)
    append(db, second, b"second")
    with pytest.raises(eosdb.InvalidProducerEpochError, match="expected at least"):
        db.broker.write_txn_markers(*second, False, [TP], 1_000)
    assert state(db) == "Ongoing"
    third = db.broker.end_txn("a", *second, True)
    db.broker.write_txn_markers(*third, False, [TP], 1_000)  # A repeat changes nothing.
    assert committed_values(db, TP) == [b"first", b"second"]
