"""Figures where there is nothing to show, and where one transaction is open in several partitions."""

from __future__ import annotations

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition


def shown(db: eosdb.Database, name: str) -> list[str]:
    return [line for line in db.metrics_text().splitlines() if line.startswith(f"{name}{{")]


def test_an_empty_partition_has_no_newest_time(db: eosdb.Database) -> None:
    name = "eosdb_partition_newest_timestamp_seconds"
    db.admin.create_topic("t")
    assert shown(db, name) == []
    db.broker.append(TopicPartition("t", 0), RecordBatch([Record(value=b"v", timestamp=0)]))
    (line,) = shown(db, name)
    assert line.endswith((" 0", " 0.0"))


def test_a_transaction_is_as_old_as_its_first_partition(
    db: eosdb.Database, clock: ManualClock
) -> None:
    db.admin.create_topic("t", partitions=3)
    with db.producer(transactional_id="p") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(3):
            producer.send("t", b"v", partition=number)
            producer.flush()
            clock.advance(1_000)
        (line,) = shown(db, "eosdb_open_transaction_seconds")
        assert line.endswith((" 3", " 3.0"))
        producer.abort_transaction()
