"""What most tests need of a foreign client: records in, records out. librdkafka's, as the commonest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

PATIENCE_S: Final = 120
"""For whatever a busy machine takes its time for."""


def produce(
    where: str, topic: str, values: Iterable[bytes], partition: int = -1, **settings: Any
) -> None:
    """Send, and see every record acknowledged; raises AssertionError with the errors of others."""
    producer = Producer({"bootstrap.servers": where, "linger.ms": 0, **settings})
    errors: list[KafkaError | None] = []
    for value in values:
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(PATIENCE_S) == 0
    assert not any(errors), errors


def consume(where: str, topic: str, count: int, **settings: Any) -> list[bytes]:
    """The first records of partition 0, as a consumer without a group reads them."""
    defaults = {"group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": where, **defaults, **settings})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), PATIENCE_S)
            assert messages, f"only {len(found)} of {count} came"
            for message in messages:
                assert message.error() is None, message.error()
                found.append(message.value() or b"")
        return found
    finally:
        consumer.close()
