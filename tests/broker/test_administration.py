"""Coordinators, listings, descriptions."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb import (
    BrokerConfig,
    ManualClock,
    Record,
    RecordBatch,
    TopicPartition,
)
from tests.cases import each
from tests.requests import TP, begin


@each(
    ("key", "partition"),
    [("", 0), ("a", 47), ("polygenelubricants", 0), ("Ab🙂", 35), ("my-txn", 8)],
)
def test_the_coordinator_of_a_key_is_javas_hash(
    classic_db: eosdb.Database, key: str, partition: int
) -> None:
    h = 0
    data = key.encode("utf-16-be")
    for i in range(0, len(data), 2):
        h = (31 * h + int.from_bytes(data[i : i + 2], "big")) % 2**32
    signed = h - 2**32 if h >= 2**31 else h
    expected = 0 if signed == -(2**31) else abs(signed) % 50
    assert classic_db.broker.find_coordinator(key).partition == expected
    assert classic_db.broker.find_coordinator(key, "group").partition == expected
    assert key not in ("", "a", "polygenelubricants") or expected == partition


def test_the_coordinator_epoch_rises_with_each_opening_that_coordinates(
    classic_db: eosdb.Database, db_path: Path
) -> None:
    assert classic_db.broker.find_coordinator("a").epoch == 0
    classic_db.broker.init_producer_id("a")
    assert classic_db.broker.find_coordinator("a").epoch == 1
    with eosdb.connect(db_path, clock=classic_db.clock) as other:
        assert other.broker.find_coordinator("a").epoch == 1
        other.broker.init_producer_id("a")
        assert classic_db.broker.find_coordinator("a").epoch == 2


def test_listing_by_state_producer_and_duration(
    classic_db: eosdb.Database, clock: ManualClock
) -> None:
    a = begin(classic_db, "a")
    clock.advance(500)
    begin(classic_db, "b")
    classic_db.broker.init_producer_id("idle")

    def ids(**filters: object) -> list[str]:
        return [t.transactional_id for t in classic_db.broker.list_transactions(**filters)]  # type: ignore[arg-type]

    assert ids() == ["a", "b", "idle"]
    assert ids(states=["Ongoing", "Nonsense"]) == ["a", "b"]
    assert ids(states=["Nonsense"]) == []
    assert ids(producer_ids=[a.producer_id, 99]) == ["a"]
    assert ids(duration_ms=499) == ["a", "idle"]
    assert ids(duration_ms=500) == ["idle"], "longer than, not as long as"
    assert ids(states=["Ongoing"], duration_ms=100) == ["a"]
    for longer_than_time in (clock.time_ms() + 2, 2**62):
        assert ids(duration_ms=longer_than_time) == []


def test_a_finished_transaction_is_described_without_partitions(
    classic_db: eosdb.Database, clock: ManualClock
) -> None:
    who = begin(classic_db)
    classic_db.broker.add_offsets_to_txn("a", *who, "g")
    described = classic_db.broker.describe_transactions(["a"])["a"]
    assert described.partitions == {TP}, "consumer offsets are not listed"
    start = described.transaction_start_time_ms
    assert start == clock.time_ms()
    clock.advance(5)
    classic_db.broker.end_txn("a", *who, True)
    described = classic_db.broker.describe_transactions(["a"])["a"]
    assert (described.partitions, described.transaction_start_time_ms) == (frozenset(), start)
    classic_db.broker.init_producer_id("a")
    assert classic_db.broker.describe_transactions(["a"])["a"].transaction_start_time_ms == -1


def test_auto_creation_when_it_is_wanted(db_path: Path) -> None:
    config = BrokerConfig(auto_create_topics_enable=True, num_partitions=3)
    with eosdb.connect(db_path, config=config) as db:
        db.admin.list_topics()
        assert db.producer().send("fresh", b"v", partition=2).result().partition == 2
        db.broker.append(TopicPartition("raw", 0), RecordBatch([Record()]))
        assert db.admin.list_topics() == ["fresh", "raw"]
        with pytest.raises(eosdb.InvalidTopicExceptionError):
            db.producer().send("a b", b"v")


def test_a_topic_that_may_exist_already_stays_as_it_is(db_path: Path) -> None:
    with eosdb.connect(db_path) as db:
        made = db.admin.create_topic("sales", 3, {"retention.ms": "-1"}, exist_ok=True)
        assert made.partitions == 3
        before = db.info()["journal_position"]
        assert db.admin.create_topic("sales", 5, {"retention.ms": "7"}, exist_ok=True) == made
        assert db.admin.create_topic("sales", exist_ok=True, validate_only=True) == made
        assert db.admin.describe_topic("sales").config == {"retention.ms": "-1"}
        assert db.info()["journal_position"] == before
        with pytest.raises(eosdb.TopicAlreadyExistsError):
            db.admin.create_topic("sales", 3)
        with pytest.raises(eosdb.InvalidTopicExceptionError):
            db.admin.create_topic("sal es", exist_ok=True)
