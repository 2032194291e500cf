"""`metrics()` of producer, consumer and database, under Kafka's names."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from eosdb.testing import FaultyTransport

TP = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t")


def test_a_producer_counts_what_it_sent(db: eosdb.Database) -> None:
    producer = db.producer(linger_ms=10_000, batch_size=100)
    for _ in range(10):
        producer.send("t", b"x" * 20)
    producer.flush()
    metrics = producer.metrics()
    assert (metrics["record-send-total"], metrics["byte-total"]) == (10, 200)
    assert (metrics["batch-total"], metrics["batch-size-avg"]) == (2, 100)
    assert (metrics["batch-size-max"], metrics["records-per-batch-avg"]) == (100, 5)
    assert metrics["request-total"] == 2
    producer.close()


def test_repeats_duplicates_and_errors_are_counted(db: eosdb.Database) -> None:
    network = FaultyTransport(db.broker, seed=1, lose_response=0.5, only=("produce",))
    producer = db.producer(transport=network)
    for i in range(20):
        producer.send("t", str(i)).result()
    metrics = producer.metrics()
    lost = network.counts["lose_response"]
    assert metrics["record-retry-total"] == metrics["errors-total:NETWORK_EXCEPTION"] == lost
    assert 0 < metrics["duplicate-batches-total"] <= lost
    assert db.metrics()["duplicate-batches-total"] == lost
    assert db.metrics()["messages-in-total"] == 20


def test_errors_are_counted_by_name(db: eosdb.Database) -> None:
    producer = db.producer()
    db.admin.alter_topic_config("t", {"max.message.bytes": 10})
    assert producer.send("t", b"x" * 11).exception() is not None
    assert producer.metrics()["record-error-total"] == 1
    assert producer.metrics()["errors-total:MESSAGE_TOO_LARGE"] >= 1
    assert db.metrics()["errors-total:MESSAGE_TOO_LARGE"] == 1


def test_transactions_are_counted_and_timed(db: eosdb.Database, clock: ManualClock) -> None:
    slow = FaultyTransport(db.broker, delay_ms=(5, 5))
    producer = db.producer(transactional_id="a", transport=slow)
    producer.init_transactions()
    for committed in (True, True, False):
        producer.begin_transaction()
        producer.send("t", b"v")
        producer.send_offsets_to_transaction({TP: eosdb.OffsetAndMetadata(1)}, "g")
        producer.commit_transaction() if committed else producer.abort_transaction()
    metrics = producer.metrics()
    assert (metrics["txn-commit-total"], metrics["txn-abort-total"]) == (2, 1)
    ms = 1_000_000
    assert metrics["txn-init-time-ns-total"] == 10 * ms
    assert metrics["txn-send-offsets-time-ns-total"] == 30 * ms
    assert metrics["txn-commit-time-ns-total"] == 40 * ms, "the records, and the end"
    assert metrics["txn-abort-time-ns-total"] == 10 * ms
    assert metrics["txn-begin-time-ns-total"] == 0


def test_rates_are_those_of_the_last_minute(db: eosdb.Database, clock: ManualClock) -> None:
    producer = db.producer()
    for _ in range(60):
        producer.send("t", b"v")
        clock.advance(500)
    assert producer.metrics()["record-send-rate"] == pytest.approx(2.0)
    for _ in range(5):
        clock.advance(30_000)
        producer.metrics()
    assert producer.metrics()["record-send-rate"] == 0
    assert producer.metrics()["record-send-total"] == 60


def test_a_consumer_counts_what_it_handed_out(db: eosdb.Database) -> None:
    db.broker.append(TP, RecordBatch([Record(value=b"v")] * 10))
    consumer = db.consumer("g", auto_offset_reset="earliest")
    consumer.assign([TP])
    consumer.poll(max_records=4)
    consumer.commit()
    metrics = consumer.metrics()
    assert (metrics["records-consumed-total"], metrics["records-lag-max"]) == (4, 6)
    assert (metrics["fetch-total"], metrics["offset-commit-total"]) == (1, 1)
    assert metrics["records-per-request-avg"] == 10


def test_a_database_counts_requests_commits_and_fsyncs(db: eosdb.Database) -> None:
    before = db.metrics()
    for _ in range(3):
        db.broker.append(TP, RecordBatch([Record(value=b"v", key=b"k")] * 2))
    with pytest.raises(eosdb.OffsetOutOfRangeError):
        db.broker.fetch(TP, 99)
    after = db.metrics()
    assert (after["messages-in-total"], after["bytes-in-total"]) == (6, 12)
    assert (after["requests:produce-total"], after["requests:fetch-total"]) == (3, 1)
    assert after["errors-total:OFFSET_OUT_OF_RANGE"] == 1
    assert after["commit-total"] - before["commit-total"] == 3
    assert after["requests-per-commit-avg"] >= 1
