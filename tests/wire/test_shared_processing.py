"""A `processor` and a consume-process-produce loop over the wire divide the work: each record once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException

import eosdb
from eosdb.wire.server import Server
from tests.waiting import eventually
from tests.wire.peer import PATIENCE_S

pytestmark = pytest.mark.slow

PARTITIONS = 4
COOPERATIVE = {
    "heartbeat.interval.ms": 100,
    "partition.assignment.strategy": "cooperative-sticky",
}


@pytest.fixture
def db(db_path: Path) -> Iterator[eosdb.Database]:
    with eosdb.connect(db_path, durability="normal") as opened:
        opened.admin.create_topic("in", partitions=PARTITIONS)
        opened.admin.create_topic("out")
        yield opened
        assert opened.verify().ok


@pytest.fixture
def server(db: eosdb.Database) -> Iterator[Server]:
    with db.serve() as made:
        yield made


class WireWorker:
    """Copies "in" to "out" in transactions, by librdkafka, until `stop`."""

    def __init__(self, server: Server, membership: Mapping[str, Any] = COOPERATIVE) -> None:
        where = {"bootstrap.servers": server.bootstrap_servers}
        self._consumer = confluent_kafka.Consumer(
            {
                **where,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **membership,
            }
        )
        self._consumer.subscribe(["in"])
        self._producer = confluent_kafka.Producer({**where, "transactional.id": "wire"})
        self._producer.init_transactions(PATIENCE_S)
        self._must_end = threading.Event()
        self._errors: list[BaseException] = []
        self.copied = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._must_end.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        for error in self._errors:
            raise error

    def _run(self) -> None:
        try:
            while not self._must_end.is_set():
                read = [m for m in self._consumer.consume(10, 0.05) if m.error() is None]
                if read:
                    self._copy(read)
            self._consumer.close()
        except BaseException as error:
            self._errors.append(error)

    def _copy(self, read: list[confluent_kafka.Message]) -> None:
        firsts: dict[int, int] = {}
        ends: dict[int, int] = {}
        self._producer.begin_transaction()
        for message in read:
            offset, partition = message.offset(), message.partition()
            assert offset is not None
            assert partition is not None
            firsts.setdefault(partition, offset)
            ends[partition] = offset + 1
            self._producer.produce("out", message.value())
        metadata: Any = self._consumer.consumer_group_metadata()
        try:
            self._producer.send_offsets_to_transaction(_positions(ends), metadata, PATIENCE_S)
            self._producer.commit_transaction(PATIENCE_S)
            self.copied += len(read)
        except KafkaException as error:
            reason: Any = error.args[0]
            assert reason.txn_requires_abort(), reason
            self._producer.abort_transaction(PATIENCE_S)
            assigned = {tp.partition for tp in self._consumer.assignment()}
            for tp in _positions(firsts):
                if tp.partition in assigned:
                    self._consumer.seek(tp)


def _positions(by_partition: dict[int, int]) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition("in", p, offset) for p, offset in by_partition.items()]


def copy_of(record: eosdb.ConsumerRecord) -> bytes:
    assert isinstance(record.value, bytes)
    return record.value


def test_a_processor_and_a_wire_worker_copy_each_record_once(
    db: eosdb.Database, server: Server
) -> None:
    processor = db.processor(
        "in",
        copy_of,
        "out",
        group_id="g",
        transactional_id="library",
        consumer={"heartbeat_interval_ms": 100},
    )
    results: list[eosdb.ProcessReport] = []
    running = threading.Thread(target=lambda: results.append(processor.run()), daemon=True)
    running.start()
    sent: list[bytes] = []

    def send(count: int) -> None:
        values = [f"{len(sent) + i}".encode() for i in range(count)]
        with db.producer() as producer:
            for i, value in enumerate(values):
                producer.send("in", value, partition=i % PARTITIONS)
        sent.extend(values)

    def is_stable_with(members: int) -> bool:
        group = db.broker.describe_group("g")
        return group.state == "Stable" and len(group.members) == members

    with db.consumer(auto_offset_reset="earliest", isolation_level="read_committed") as reader:
        reader.subscribe(["out"])
        copied: list[object] = []

        def all_copied() -> bool:
            copied.extend(record.value for record in reader.poll(50))
            return set(copied) >= set(sent)

        send(100)
        eventually(all_copied)
        worker = WireWorker(server)
        send(100)
        eventually(lambda: is_stable_with(2))
        while worker.copied == 0:
            send(20)
            eventually(all_copied)
        worker.stop()
        send(100)
        eventually(all_copied)
        processor.stop()
        running.join(PATIENCE_S)
        assert results[0].processed + worker.copied == len(sent)
        assert sorted(map(str, copied)) == sorted(map(str, sent))
