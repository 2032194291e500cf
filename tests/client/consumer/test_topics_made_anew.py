"""A position belongs to a topic and not to a name: whoever reads a topic that is deleted and made anew
meanwhile reads all of the new one, commits nothing of the old one into it, and is told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

import eosdb
from eosdb import ConsumerRecord, OffsetAndMetadata, TopicPartition
from eosdb.errors import OffsetOutOfRangeError, UnknownTopicIdError

TP = TopicPartition("t", 0)
OTHER = TopicPartition("other", 0)


def fill(db: eosdb.Database, name: str, count: int, what: str) -> None:
    db.admin.create_topic(name)
    with db.producer() as producer:
        producer.send_many(name, [f"{what} {i}" for i in range(count)])


def make_anew(db: eosdb.Database, count: int) -> list[bytes]:
    db.admin.delete_topic("t")
    fill(db, "t", count, "new")
    return [b"new %d" % i for i in range(count)]


def everything(consumer: eosdb.Consumer) -> list[bytes | None]:
    found: list[bytes | None] = []
    while records := consumer.poll():
        found += [record.value for record in records]
    return found


def subscribed(db: eosdb.Database, **config: Any) -> eosdb.Consumer:
    consumer = db.consumer(**config)
    consumer.subscribe("t")
    return consumer


def assigned(db: eosdb.Database, **config: Any) -> eosdb.Consumer:
    consumer = db.consumer(**config)
    consumer.assign([TP])
    return consumer


Make = Callable[..., eosdb.Consumer]
KINDS: dict[str, tuple[Make, dict[str, Any]]] = {
    "assigned": (assigned, {}),
    "assigned, of a group": (assigned, {"group_id": "g"}),
    "subscribed": (subscribed, {}),
    "a member": (subscribed, {"group_id": "g"}),
    "a member that commits by itself": (
        subscribed,
        {"group_id": "g", "enable_auto_commit": True, "auto_commit_interval_ms": 1},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "reset"), [(50, "latest"), (100, "earliest"), (150, "latest"), (150, "earliest")]
)
@pytest.mark.parametrize("kind", KINDS)
def test_all_of_the_new_topic_is_read_and_it_is_told(
    db: eosdb.Database, clock: eosdb.ManualClock, caplog: pytest.LogCaptureFixture,
    kind: str, count: int, reset: str,
) -> None:  # fmt: skip
    fill(db, "t", 100, "old")
    make, config = KINDS[kind]
    with make(db, auto_offset_reset=reset, **config) as consumer:
        consumer.poll()
        consumer.seek(TP, 0)
        assert len(everything(consumer)) == 100
        new = make_anew(db, count)
        clock.advance(10)
        with caplog.at_level(logging.WARNING, "eosdb.consumer"):
            assert everything(consumer) == new
        assert [r.message for r in caplog.records if "recreated" in r.message]
        assert consumer.position(TP) == count
        if "group_id" in config:
            consumer.commit()
            assert db.broker.offset_fetch("g") == {TP: OffsetAndMetadata(count)}


def test_records_that_were_fetched_before_are_returned_and_then_the_new_ones(
    db: eosdb.Database,
) -> None:
    fill(db, "t", 100, "old")
    with assigned(db, auto_offset_reset="earliest") as consumer:
        assert len(consumer.poll(max_records=30)) == 30
        new = make_anew(db, 40)
        old = consumer.poll(max_records=500)
        assert [record.value for record in old] == [b"old %d" % i for i in range(30, 100)]
        assert everything(consumer) == new


def test_without_a_reset_it_is_an_error_until_somebody_says_where_to_go_on(
    db: eosdb.Database,
) -> None:
    fill(db, "t", 100, "old")
    with assigned(db, auto_offset_reset="none") as consumer:
        consumer.seek(TP, 0)
        everything(consumer)
        new = make_anew(db, 150)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match=r"recreated.*seek first"):
                consumer.poll()
        consumer.seek(TP, 140)
        assert everything(consumer) == new[140:]


def at_the_end(db: eosdb.Database, **config: Any) -> tuple[eosdb.Consumer, list[ConsumerRecord]]:
    fill(db, "t", 100, "old")
    fill(db, "other", 10, "other")
    consumer = db.consumer("g", auto_offset_reset="earliest", **config)
    consumer.subscribe(["t", "other"])
    records = []
    while found := consumer.poll():
        records += found
    return consumer, records


def offsets_of(records: list[ConsumerRecord]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(r.topic, r.partition): OffsetAndMetadata(r.offset + 1) for r in records}


def by_the_consumer(db: eosdb.Database, consumer: eosdb.Consumer, offsets: Any) -> None:
    consumer.commit()


def by_hand(db: eosdb.Database, consumer: eosdb.Consumer, offsets: Any) -> None:
    consumer.commit(offsets)


def in_a_transaction(db: eosdb.Database, consumer: eosdb.Consumer, offsets: Any) -> None:
    with db.producer(transactional_id="p") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())


def in_a_block(db: eosdb.Database, consumer: eosdb.Consumer, offsets: Any) -> None:
    with db.begin() as tx:
        tx.commit_offsets(consumer.group_metadata(), offsets)


@pytest.mark.parametrize("commit", [by_the_consumer, by_hand, in_a_transaction, in_a_block])
def test_positions_in_the_old_topic_are_not_committed_into_the_new_one(
    db: eosdb.Database, commit: Callable[[eosdb.Database, eosdb.Consumer, Any], None]
) -> None:
    consumer, records = at_the_end(db)
    new = make_anew(db, 150)
    with pytest.raises(OffsetOutOfRangeError, match=r"t-0: offset 100 belongs to a deleted topic"):
        commit(db, consumer, offsets_of(records))
    assert db.broker.offset_fetch("g") == {}
    assert everything(consumer) == new
    consumer.commit()
    assert db.broker.offset_fetch("g")[TP].offset == 150
    consumer.close()


def test_what_commits_by_itself_commits_the_positions_in_other_topics(db: eosdb.Database) -> None:
    consumer, _ = at_the_end(db, enable_auto_commit=True)
    make_anew(db, 150)
    consumer.close()
    assert db.broker.offset_fetch("g") == {OTHER: OffsetAndMetadata(10)}


def test_groups_offsets_go_with_their_topic_pending_ones_too(db: eosdb.Database) -> None:
    fill(db, "t", 100, "old")
    db.broker.offset_commit("g", {TP: OffsetAndMetadata(60)})
    with db.producer(transactional_id="p") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TP: OffsetAndMetadata(100)}, "g")
        make_anew(db, 150)
        producer.commit_transaction()
    assert db.broker.offset_fetch("g") == {}


def test_a_fetch_of_another_topic_than_is_meant_is_refused(db: eosdb.Database) -> None:
    fill(db, "t", 100, "old")
    topic_id = db.broker.topic("t").topic_id
    assert db.broker.fetch_data(TP, 0, topic_id=topic_id).size == 100
    make_anew(db, 100)
    with pytest.raises(UnknownTopicIdError, match=str(topic_id)):
        db.broker.fetch_data(TP, 0, topic_id=topic_id)
