"""A topic that has moved to a cluster takes no records and no offsets, whoever brings them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

import eosdb
from eosdb import OffsetAndMetadata, Record, TopicPartition
from eosdb.errors import InvalidConfigError, PolicyViolationError
from eosdb.model.topic_config import MOVED_TO, MOVING_TO
from eosdb.model.values import RecordBatch
from eosdb.testing.kafka import KafkaDouble
from tests.readers import committed_values

TP = TopicPartition("orders", 0)
WHERE = "broker-1:9092"


@pytest.fixture
def shop(db: eosdb.Database) -> eosdb.Database:
    db.admin.create_topic("orders")
    return db


def _send(db: eosdb.Database) -> None:
    with db.producer(enable_idempotence=False) as producer:
        producer.send("orders", b"x").result()


def _send_idempotent(db: eosdb.Database) -> None:
    with db.producer() as producer:
        producer.send("orders", b"x").result()


def _send_in_a_transaction(db: eosdb.Database) -> None:
    with db.producer(transactional_id="till") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("orders", b"x").result()


def _publish(db: eosdb.Database) -> None:
    with db.begin() as unit:
        unit.publish("orders", b"x")


def _append_once(db: eosdb.Database) -> None:
    db.append_once("sink", 0, {TP: [Record(value=b"x")]})


def _commit(db: eosdb.Database) -> None:
    db.broker.offset_commit("billing", {TP: OffsetAndMetadata(0)})


def _commit_in_a_transaction(db: eosdb.Database) -> None:
    with db.producer(transactional_id="till") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction({TP: OffsetAndMetadata(0)}, "billing")


def _reset(db: eosdb.Database) -> None:
    db.admin.reset_offsets("billing", [TP], to_latest=True, execute=True)


@pytest.mark.parametrize(
    "write",
    [
        _send, _send_idempotent, _send_in_a_transaction, _publish, _append_once, _commit,
        _commit_in_a_transaction, _reset,
    ],
)  # fmt: skip
@pytest.mark.parametrize("setting", [MOVING_TO, MOVED_TO])
def test_nobody_writes_to_it_and_the_error_says_where_to_go(
    shop: eosdb.Database, write: Callable[[eosdb.Database], None], setting: str
) -> None:
    shop.admin.alter_topic_config("orders", {setting: WHERE})
    with pytest.raises(PolicyViolationError, match=WHERE):
        write(shop)
    assert committed_values(shop, TP) == []
    shop.admin.alter_topic_config("orders", {setting: None})
    write(shop)


def test_a_stranger_is_refused_and_told_by_kafkas_error(tmp_path: Path) -> None:
    with KafkaDouble(tmp_path / "cluster.db") as cluster:
        cluster.db.admin.create_topic("orders", 1, {MOVED_TO: WHERE})
        found: list[object] = []

        def delivered(error: confluent_kafka.KafkaError | None, _: object) -> None:
            found.append(error and error.code())

        producer = confluent_kafka.Producer({"bootstrap.servers": cluster})
        producer.produce("orders", b"x", on_delivery=delivered)
        producer.flush(60)
        assert found == [PolicyViolationError.code]


def test_a_repeated_batch_is_answered_and_an_open_transaction_ends(shop: eosdb.Database) -> None:
    made = shop.broker.init_producer_id(None)
    batch = RecordBatch(
        [Record(value=b"a")], producer_id=made.producer_id, producer_epoch=made.producer_epoch,
        base_sequence=0,
    )  # fmt: skip
    shop.broker.append(TP, batch)
    with shop.producer(transactional_id="till") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"b").result()
        shop.admin.alter_topic_config("orders", {MOVING_TO: WHERE})
        producer.commit_transaction()
    assert shop.broker.append(TP, batch).duplicate
    assert committed_values(shop, TP) == [b"a", b"b"]


def test_eosdbs_own_notes_are_kept(shop: eosdb.Database) -> None:
    shop.admin.alter_topic_config("orders", {MOVED_TO: WHERE})
    shop.broker.offset_commit("__eosdb_relay.relay", {TP: OffsetAndMetadata(0)})
    assert shop.broker.offset_fetch("__eosdb_relay.relay") == {TP: OffsetAndMetadata(0)}


def test_a_place_is_plain_text(shop: eosdb.Database) -> None:
    with pytest.raises(InvalidConfigError, match="HOST:PORT"):
        shop.admin.alter_topic_config("orders", {MOVED_TO: "a\nb"})
