"""The lag of a group is the same number everywhere: the records that it could read now."""

from __future__ import annotations

import random

import pytest

import eosdb
from eosdb import Database, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.log.reading.lag import COUNTED_MAX

TP = TopicPartition("orders", 0)


def behind(db: Database) -> dict[str, int]:
    return {group.group_id: group.behind for group in db.admin.overview().groups}


def described(db: Database, group_id: str) -> int:
    (partition,) = db.admin.describe_group_offsets(group_id).partitions
    return partition.lag


def test_a_group_that_has_read_everything_in_front_of_a_marker_is_not_behind(db: Database) -> None:
    db.admin.create_topic("orders")
    with db.producer(transactional_id="shop") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("orders", b"v")
    eosdb.process(db, "orders", lambda _: None, group_id="g", transactional_id="w", until_idle_ms=1)
    (partition,) = db.admin.describe_group_offsets("g").partitions
    assert partition.committed_offset < partition.log_end_offset
    assert behind(db) == {"g": 0}
    assert 'eosdb_group_lag_offsets{group="g",topic="orders",partition="0"} 0' in db.metrics_text()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_number_that_describe_counts_one_by_one(db: Database, seed: int) -> None:
    """With transactions of both fates, an open one, gaps that compaction and deletion have left."""
    chance = random.Random(seed)
    db.admin.create_topic("orders", config={"cleanup.policy": "compact,delete"})
    producers = [db.producer(transactional_id=f"p{number}") for number in range(3)]
    for producer in producers:
        producer.init_transactions()
    for _ in range(12):
        chosen = chance.sample(producers, 2)
        for producer in chosen:
            producer.begin_transaction()
        for _ in range(chance.randrange(12)):
            key = b"%d" % chance.randrange(4)
            chance.choice(chosen).send("orders", b"v", key=key).result()
            if chance.random() < 0.3:
                db.broker.append(TP, RecordBatch([Record(key, b"plain")]))
        for producer in chosen:
            chance.choice((producer.commit_transaction, producer.abort_transaction))()
    db.housekeeping()
    producers[0].begin_transaction()
    producers[0].send("orders", b"open", key=b"k").result()
    db.broker.append(TP, RecordBatch([Record(b"k", b"held back")]))
    db.broker.delete_records(TP, 3)
    end = db.broker.offsets(TP).high_watermark
    for offset in range(end + 1):
        db.broker.offset_commit(f"g{offset}", {TP: OffsetAndMetadata(offset)})
    assert behind(db) == {f"g{offset}": described(db, f"g{offset}") for offset in range(end + 1)}
    assert all(group.behind.is_exact for group in db.admin.overview().groups)


def test_beyond_a_thousand_records_it_is_an_upper_bound(db: Database) -> None:
    db.admin.create_topic("orders")
    with db.producer(transactional_id="shop") as producer:
        producer.init_transactions()
        for _ in range(3):
            with producer.transaction():
                for _ in range(COUNTED_MAX // 2):
                    producer.send("orders", b"v")
    for group_id, offset in (("far", 0), ("near", COUNTED_MAX)):
        db.broker.offset_commit(group_id, {TP: OffsetAndMetadata(offset)})
    far, near = db.admin.overview().groups
    assert (near.behind, near.behind.is_exact) == (described(db, "near"), True)
    assert not far.behind.is_exact
    assert described(db, "far") == 3 * COUNTED_MAX // 2 < far.behind <= 3 * COUNTED_MAX // 2 + 3
