"""What programs of any year do, by one of Python's clients. Prints a line for each part.

python years.py CLIENT BOOTSTRAP SOURCE SINK GROUP
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

_S = 20.0


def part(name: str, what: Callable[[], object]) -> None:
    try:
        print(f"{name}: {'ok' if what() else 'wrong'}", flush=True)
    except Exception as error:
        print(f"{name}: {error!r}", flush=True)


def confluent(bootstrap: str, source: str, sink: str, group: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    common: dict[str, Any] = {"bootstrap.servers": bootstrap}
    admin = AdminClient(common)

    def create() -> bool:
        for future in admin.create_topics([NewTopic(it, 1, 1) for it in (source, sink)]).values():
            future.result(_S)
        return {source, sink} <= admin.list_topics(timeout=_S).topics.keys()

    def produce() -> bool:
        errors: list[Any] = []
        producer = Producer({**common, "enable.idempotence": True})
        for i in range(10):
            producer.produce(source, f"v{i}", f"k{i}", on_delivery=lambda e, _: errors.append(e))
        producer.flush(_S)
        return errors == [None] * 10

    def copy() -> bool:
        reading = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**common, **reading, "isolation.level": "read_committed"})
        producer = Producer({**common, "transactional.id": group})
        producer.init_transactions(_S)
        producer.begin_transaction()
        producer.produce(sink, "aborted")
        producer.flush(_S)
        producer.abort_transaction(_S)
        consumer.subscribe([source])
        messages: list[Any] = []
        deadline = time.monotonic() + _S
        while len(messages) < 10 and time.monotonic() < deadline:
            messages += [it for it in consumer.consume(10, 1.0) if it.error() is None]
        producer.begin_transaction()
        for message in messages:
            producer.produce(sink, message.value().upper(), message.key())
        offsets = [TopicPartition(source, 0, messages[-1].offset() + 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _S)
        producer.commit_transaction(_S)
        return len(messages) == 10 and consumer.committed(offsets, _S)[0].offset == 10

    def groups() -> bool:
        described = admin.describe_consumer_groups([group])[group].result(_S)
        listed = admin.list_consumer_groups().result(_S).valid
        return described.group_id == group and any(it.group_id == group for it in listed)

    for name, what in (
        ("create", create),
        ("produce", produce),
        ("transaction", copy),
        ("groups", groups),
    ):
        part(name, what)


def kafka_python(bootstrap: str, source: str, sink: str, group: str) -> None:
    from importlib.metadata import version

    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
    from kafka.admin import KafkaAdminClient, NewTopic  # type: ignore[attr-defined]

    release = tuple(int(it) for it in version("kafka-python").split(".")[:2])
    admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap)

    def create() -> bool:
        admin.create_topics([NewTopic(it, 1, 1) for it in (source, sink)])
        return {source, sink} <= set(admin.list_topics())

    def produce() -> bool:
        producer: Any = KafkaProducer(bootstrap_servers=bootstrap)
        for future in [producer.send(source, b"v%d" % i, b"k%d" % i) for i in range(10)]:
            future.get(_S)
        return True

    def read() -> tuple[Any, list[Any]]:
        consumer: Any = KafkaConsumer(
            source, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
            enable_auto_commit=False,
        )  # fmt: skip
        found: list[Any] = []
        deadline = time.monotonic() + _S
        while len(found) < 10 and time.monotonic() < deadline:
            found += [it for some in consumer.poll(1000).values() for it in some]
        return consumer, found

    def copy() -> bool:
        tp, next_ = TopicPartition(source, 0), OffsetAndMetadata(10, "", -1)
        producer: Any = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=group)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(sink, b"aborted").get(_S)
        producer.abort_transaction()
        consumer, found = read()
        producer.begin_transaction()
        for record in found:
            producer.send(sink, record.value.upper(), record.key)
        whose = consumer.group_metadata() if release >= (3, 0) else group
        producer.send_offsets_to_transaction({tp: next_}, whose)
        producer.commit_transaction()
        return len(found) == 10 and consumer.committed(tp) == 10

    def consume() -> bool:
        """Version 2.0 has no transactions."""
        consumer, found = read()
        consumer.commit()
        producer: Any = KafkaProducer(bootstrap_servers=bootstrap)
        for record in found:
            producer.send(sink, record.value.upper(), record.key).get(_S)
        return len(found) == 10 and consumer.committed(TopicPartition(source, 0)) == 10

    def groups() -> bool:
        name = "list_groups" if hasattr(admin, "list_groups") else "list_consumer_groups"
        return group in str(getattr(admin, name)())

    part("create", create)
    part("produce", produce)
    if release >= (2, 1):
        part("transaction", copy)
    else:
        part("consume", consume)
    part("groups", groups)


def aiokafka(bootstrap: str, source: str, sink: str, group: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    async def create() -> bool:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(it, 1, 1) for it in (source, sink)])
        found = await admin.list_topics()
        await admin.close()
        return {source, sink} <= set(found)

    async def produce() -> bool:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await producer.start()
        for i in range(10):
            await producer.send_and_wait(source, b"v%d" % i, b"k%d" % i)
        await producer.stop()
        return True

    async def copy() -> bool:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=group)
        consumer = AIOKafkaConsumer(
            source, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
            enable_auto_commit=False, isolation_level="read_committed",
        )  # fmt: skip
        await producer.start()
        await consumer.start()
        await producer.begin_transaction()
        await producer.send_and_wait(sink, b"aborted")
        await producer.abort_transaction()
        tp, found = TopicPartition(source, 0), [await consumer.getone() for _ in range(10)]
        async with producer.transaction():
            for record in found:
                await producer.send(sink, record.value.upper(), key=record.key)
            await producer.send_offsets_to_transaction({tp: 10}, group)
        committed = await consumer.committed(tp)
        await consumer.stop()
        await producer.stop()
        return bool(committed == 10)

    async def groups() -> bool:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        found = await admin.list_consumer_groups()
        await admin.close()
        return group in str(found)

    for name, what in (
        ("create", create),
        ("produce", produce),
        ("transaction", copy),
        ("groups", groups),
    ):
        part(name, lambda what=what: asyncio.run(asyncio.wait_for(what(), 2 * _S)))  # type: ignore[misc]


if __name__ == "__main__":
    programs = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}
    programs[sys.argv[1]](*sys.argv[2:])
