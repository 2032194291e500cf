"""mockafka-py as a system under test: stand-ins for confluent-kafka's classes in one process."""

from __future__ import annotations

import importlib
import time

import mockafka.kafka_store
from confluent_kafka import TopicPartition
from mockafka import FakeConsumer, FakeProducer

from tests.conformance import confluent
from tests.conformance.double import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TOPIC,
    Identity,
    NotReachable,
    Producer,
    Requests,
    Settings,
)


class Mockafka:
    """`Double` on mockafka-py's store, of which a process has only one."""

    def __init__(self) -> None:
        self.restart()

    def producer(self, settings: Settings) -> Producer:
        return _MockafkaProducer(settings)

    def read(self, partition: int = 0, isolation: str = READ_COMMITTED) -> list[str]:
        return _values(_consumer(isolation), partition)

    def end_offset(self, isolation: str) -> int:
        _, end = _consumer(isolation).get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=1)
        return int(end)

    def offset_at(self, timestamp: int, isolation: str) -> int | None:
        asked = [TopicPartition(TOPIC, 0, timestamp)]
        return _offset(_consumer(isolation).offsets_for_times(asked, timeout=1))

    def commit_offset(self, group: str, offset: int) -> None:
        offsets = [TopicPartition(TOPIC, 0, offset)]
        _consumer(READ_COMMITTED, group).commit(offsets=offsets, asynchronous=False)

    def committed_offset(self, group: str, *, stable: bool = False) -> int | None:
        consumer = _consumer(READ_COMMITTED if stable else READ_UNCOMMITTED, group)
        return _offset(consumer.committed([TopicPartition(TOPIC, 0)], timeout=1))

    def read_on(self, group: str) -> list[str]:
        consumer = _consumer(READ_COMMITTED, group)
        values = _values(consumer, 0)
        consumer.commit()
        return values

    def member(self, group: str) -> object:
        return _consumer(READ_COMMITTED, group).consumer_group_metadata()

    def departed_member(self, group: str) -> object:
        consumer = _consumer(READ_COMMITTED, group)
        metadata = consumer.consumer_group_metadata()
        consumer.close()
        return metadata

    def requests(self) -> Requests:
        raise NotReachable(confluent.NO_REQUESTS)

    def wait(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def restart(self) -> None:
        """Its data are globals of one module: loading that again is what a new process does."""
        importlib.reload(mockafka.kafka_store)
        mockafka.kafka_store.KafkaStore().create_partition(TOPIC, 2)

    def error_name(self, error: Exception) -> str:
        return confluent.error_name(error)

    def close(self) -> None:
        mockafka.kafka_store.KafkaStore.fresh()


class _MockafkaProducer:
    def __init__(self, settings: Settings) -> None:
        self._client = FakeProducer(confluent.producer_config(settings))

    def init(self) -> None:
        self._client.init_transactions(1)

    def begin(self) -> None:
        self._client.begin_transaction()

    def send(self, value: str, partition: int = 0, timestamp: int | None = None) -> None:
        self._client.produce(TOPIC, value, partition=partition, timestamp=timestamp)
        self._client.flush(1)

    def send_offset(self, offset: int, member: object) -> None:
        offsets = [TopicPartition(TOPIC, 0, offset)]
        self._client.send_offsets_to_transaction(offsets, member, 1)

    def commit(self) -> None:
        self._client.commit_transaction(1)

    def abort(self) -> None:
        self._client.abort_transaction(1)

    def identity(self) -> Identity:
        raise NotReachable("its producer tells no producer id and epoch")


def _consumer(isolation: str, group: str = "reader") -> FakeConsumer:
    consumer = FakeConsumer(
        {"group.id": group, "isolation.level": isolation, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    return consumer


def _values(consumer: FakeConsumer, partition: int) -> list[str]:
    values: list[str] = []
    while (message := consumer.poll(0)) is not None:
        if message.partition() == partition:
            values.append(message.value().decode())
    return values


def _offset(found: list[TopicPartition]) -> int | None:
    return found[0].offset if found and found[0].offset >= 0 else None
