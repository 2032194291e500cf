"""What takes the space of a file, compared with what SQLite and the file system say."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.admin import storage

pytestmark = pytest.mark.slow

TRANSACTIONS = 40


def fill(db: eosdb.Database) -> None:
    for topic in ("large", "small", "gone"):
        db.admin.create_topic(topic)
    with db.producer(transactional_id="a") as producer:
        producer.init_transactions()
        for i in range(TRANSACTIONS):
            producer.begin_transaction()
            for _ in range(10):
                producer.send("large", b"v" * 1_000, key=b"key")
            producer.send("small", b"v")
            producer.flush()
            producer.commit_transaction() if i % 4 else producer.abort_transaction()
    db.broker.append(TopicPartition("gone", 0), RecordBatch([Record(value=b"v" * 900_000)]))
    db.admin.delete_topic("gone")
    with db.begin() as tx:
        tx.connection.exec_driver_sql("CREATE TABLE mine (x)")
    db._store.checkpoint()


def test_the_parts_add_up_to_the_file(db: eosdb.Database, db_path: Path) -> None:
    fill(db)
    found = db.admin.stats()
    assert not found.is_estimate
    assert found.total_bytes == db_path.stat().st_size
    assert sum(part.bytes for part in found.parts) == found.total_bytes
    assert [part.bytes for part in found.parts] == sorted(
        (part.bytes for part in found.parts), reverse=True
    )
    kinds = {part.name: part.kind for part in found.parts}
    assert kinds["records"] == "records"
    assert kinds["records_offset"] == "records index"
    assert kinds["eosdb_journal_transactions"] == "journal index"
    assert kinds["partitions"] == "state"
    assert kinds["partitions_topic_id"] == "state index"
    assert kinds["eosdb_baseline_partitions"] == "baseline"
    assert kinds["mine"] == "own table"
    ((free,),) = db.query("SELECT freelist_count FROM pragma_freelist_count").rows
    assert found.bytes_of("free") == free * 4096 > 800_000
    assert found.bytes_of("records") > TRANSACTIONS * 10_000


def test_a_topic_has_its_records_and_its_events(db: eosdb.Database) -> None:
    fill(db)
    found = db.admin.stats()
    large, small = found.topics
    assert (large.topic, large.records) == ("large", TRANSACTIONS * 11), "a marker in each"
    assert (small.topic, small.records) == ("small", TRANSACTIONS * 2)
    assert large.record_bytes == TRANSACTIONS * 10 * 1_003
    assert small.record_bytes == TRANSACTIONS
    journal = found.bytes_of("journal", "journal index")
    assert 0.2 * journal < large.journal_bytes + small.journal_bytes < journal
    assert found.transactions == TRANSACTIONS
    ((content,),) = db.query(
        "SELECT sum(length(detail)) FROM eosdb_journal WHERE transactional_id IS NOT NULL"
    ).rows
    assert content < found.bytes_per_transaction * TRANSACTIONS < journal


def test_pages_and_records_are_those_that_are_there(
    db: eosdb.Database, clock: eosdb.ManualClock
) -> None:
    """Also where records have been deleted, are to be, or have been compacted away."""
    fill(db)
    db.admin.create_topic("compacted", config={"cleanup.policy": "compact"})
    with db.producer() as producer:
        for i in range(100):
            producer.send("compacted", f"{i}", key=f"{i % 3}")
    db.housekeeping()
    db.broker.delete_records(TopicPartition("large", 0), 100)
    found = db.admin.stats()
    stored = db.query(
        "SELECT topic, count(*) FROM records JOIN partitions USING (partition_id) GROUP BY topic"
    ).rows
    assert {topic.topic: topic.records for topic in found.topics} == dict(stored)
    pages: dict[str, int] = dict(
        db.query("SELECT name, pageno FROM dbstat WHERE aggregate = 1").rows
    )
    assert {part.name: part.bytes for part in found.parts if part.name} == {
        name: 4096 * count for name, count in pages.items() if name != "sqlite_schema"
    }


def test_an_estimate_says_so_and_is_near(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where SQLite was compiled without dbstat."""
    fill(db)
    exact = db.admin.stats()
    monkeypatch.setattr(storage, "_EXACT", "SELECT name FROM no_such_table")
    estimate = db.admin.stats()
    assert estimate.is_estimate
    assert sum(part.bytes for part in estimate.parts) == estimate.total_bytes == exact.total_bytes
    assert estimate.bytes_of("free") == exact.bytes_of("free")
    for kind in ("records", "journal"):
        assert estimate.bytes_of(kind) == pytest.approx(exact.bytes_of(kind), rel=0.4)
    assert {part.name for part in estimate.parts} == {part.name for part in exact.parts} - {
        "sqlite_schema"
    }


def test_topics_that_may_not_be_described_are_left_out(db: eosdb.Database, db_path: Path) -> None:
    fill(db)
    db.admin.create_acls([eosdb.Acl("User:reader", "describe", "topic", "small")])
    with eosdb.connect(db_path, read_only=True, principal="User:reader") as seen:
        assert [topic.topic for topic in seen.admin.stats().topics] == ["small"]


def test_an_empty_file_has_no_transaction_to_measure(db: eosdb.Database) -> None:
    found = db.admin.stats()
    assert (found.transactions, found.bytes_per_transaction, found.topics) == (0, 0.0, ())
    with sqlite3.connect(db.path) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    assert found.total_bytes == pages * 4096
