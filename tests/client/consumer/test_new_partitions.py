"""`auto_offset_reset="latest"` begins with what comes after the subscription: a partition that is created
later is read from its beginning (KIP-1327)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import eosdb
from eosdb import ConsumerRecord, TopicPartition

Grow = Callable[[eosdb.Database], TopicPartition]


def by_a_partition(db: eosdb.Database) -> TopicPartition:
    db.admin.create_partitions("t1", 2)
    return TopicPartition("t1", 1)


def by_a_topic(db: eosdb.Database) -> TopicPartition:
    db.admin.create_topic("t2")
    return TopicPartition("t2", 0)


def by_a_topic_made_anew(db: eosdb.Database) -> TopicPartition:
    db.admin.delete_topic("t1")
    db.admin.create_topic("t1")
    return TopicPartition("t1", 0)


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t1")
    put(db, TopicPartition("t1", 0), "old")


def put(db: eosdb.Database, tp: TopicPartition, value: str) -> None:
    with db.producer() as producer:
        producer.send(tp.topic, value.encode(), partition=tp.partition)


def consumer_of(db: eosdb.Database, group: str | None) -> eosdb.Consumer:
    consumer = db.consumer(group, auto_offset_reset="latest", enable_auto_commit=False)
    consumer.subscribe(re.compile("t.*"))
    return consumer


def read(*consumers: eosdb.Consumer) -> list[object]:
    return [r.value for _ in range(20) for each in consumers for r in each.poll(timeout_ms=100)]


@pytest.mark.slow
@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("grow", [by_a_partition, by_a_topic, by_a_topic_made_anew])
def test_the_first_records_of_a_new_partition_are_read(
    db: eosdb.Database, group: str | None, grow: Grow
) -> None:
    with consumer_of(db, group) as consumer:
        assert read(consumer) == []
        put(db, grow(db), "first")
        assert read(consumer) == [b"first"]
    with consumer_of(db, "another") as later:
        assert read(later) == []


@pytest.mark.slow
def test_a_member_that_subscribes_later_reads_what_an_earlier_one_has_seen_come(
    db: eosdb.Database,
) -> None:
    """The earlier one had the partition and read nothing of it."""
    with consumer_of(db, "g") as earlier:
        read(earlier)
        tp = by_a_partition(db)
        assert read(earlier) == []
    with consumer_of(db, "g") as later:
        put(db, tp, "first")
        earlier.close()
        assert read(later) == [b"first"]


def test_a_topic_that_is_subscribed_again_is_not_forgotten(db: eosdb.Database) -> None:
    with db.consumer("g", auto_offset_reset="latest") as consumer:
        consumer.subscribe("t1")
        put(db, by_a_partition(db), "first")
        put(db, by_a_topic(db), "skipped")
        consumer.subscribe(["t1", "t2"])
        assert read(consumer) == [b"first"]


def test_an_offset_out_of_range_is_reset_to_the_end(db: eosdb.Database) -> None:
    with consumer_of(db, None) as consumer:
        tp = by_a_partition(db)
        put(db, tp, "first")
        assert read(consumer) == [b"first"]
        consumer.seek(tp, 99)
        assert read(consumer) == []


@pytest.mark.slow
def test_a_processor_reads_them(db: eosdb.Database) -> None:
    seen: list[object] = []

    def handle(record: ConsumerRecord) -> None:
        seen.append(record.value)
        if record.value == b"begin":
            put(db, by_a_partition(db), "first")

    with consumer_of(db, "g") as consumer:
        read(consumer)
        consumer.commit()
    put(db, TopicPartition("t1", 0), "begin")
    eosdb.process(
        db, "t1", handle, group_id="g", consumer={"auto_offset_reset": "latest"}, until_idle_ms=500
    )
    assert seen == [b"begin", b"first"]
