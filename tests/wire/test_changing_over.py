"""A group changes over while a real client stands between JoinGroup and the leader's SyncGroup: of two
members that have had a partition, one commits it. The table of groups has each answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

import eosdb
from eosdb import BrokerConfig
from tests.waiting import eventually
from tests.wire.test_shared_processing import WireWorker


@pytest.fixture
def shop(db_path: Path) -> Iterator[eosdb.Database]:
    config = BrokerConfig(group_consumer_heartbeat_interval_ms=100)
    with eosdb.connect(db_path, durability="off", config=config) as opened:
        opened.admin.create_topic("in", partitions=2)
        opened.admin.create_topic("out")
        yield opened
        assert opened.verify().ok


@pytest.mark.slow
def test_what_a_leader_has_read_before_its_sync_nobody_copies_again(shop: eosdb.Database) -> None:
    """kafka-python leads and has read everything. Its assignor stands between JoinGroup and SyncGroup until
    librdkafka has joined by the new protocol; then its transaction is committed."""

    def send(numbers: range) -> None:
        with shop.producer() as producer:
            for number in numbers:
                producer.send("in", b"%d" % number, partition=number % 2)

    send(range(10))
    with shop.serve() as server:
        worker: list[WireWorker] = []

        def change_over() -> None:
            worker.append(WireWorker(server, {"group.protocol": "consumer"}))
            eventually(lambda: new_member(shop) is not None)
            if new_member(shop):  # It has been given what the leader has read.
                eventually(lambda: worker[0].copied > 0)
            commit_read()

        class Standing(CooperativeStickyAssignor):
            is_second = False

            def assign(self, cluster: Any, members: Any) -> Any:
                if Standing.is_second:
                    change_over()
                return super().assign(cluster, members)

        kafkas: Any = kafka
        where = {"bootstrap_servers": server.bootstrap_servers}
        consumer = kafkas.KafkaConsumer(
            "in", group_id="g", auto_offset_reset="earliest", enable_auto_commit=False,
            partition_assignment_strategy=[Standing], **where,
        )  # fmt: skip
        producer = kafkas.KafkaProducer(transactional_id="classic", **where)
        producer.init_transactions()
        producer.begin_transaction()
        at: dict[Any, Any] = {}

        def read() -> bool:
            for partition, records in consumer.poll(timeout_ms=50).items():
                for record in records:
                    producer.send("out", record.value)
                    at[partition] = kafkas.OffsetAndMetadata(record.offset + 1, "", -1)
            return [it.offset for it in at.values()] == [5, 5]

        def commit_read() -> None:
            producer.send_offsets_to_transaction(at, consumer.group_metadata())
            producer.commit_transaction()

        eventually(read)
        Standing.is_second = True
        consumer.subscribe(["in", "more"])  # Joins again.
        eventually(lambda: not consumer.poll(timeout_ms=50) and bool(new_member(shop)))
        consumer.close()
        send(range(10, 20))
        eventually(lambda: worker[0].copied >= 10)
        worker[0].stop()
        producer.close()
    with shop.consumer(auto_offset_reset="earliest", isolation_level="read_committed") as reader:
        reader.subscribe(["out"])
        values = sorted(str(record.value) for record in reader.poll(0))
    assert values == sorted(str(b"%d" % number) for number in range(20))


def new_member(db: eosdb.Database) -> int | None:
    """How many partitions the member of the new protocol has been given; None while there is none."""
    try:
        members = db.broker.describe_consumer_group("g").members
    except eosdb.GroupIdNotFoundError:
        return None
    return sum(len(it.assignment) for it in members if not it.is_classic)
