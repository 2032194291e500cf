"""Input for a processor, its output, and handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import eosdb
from eosdb import ConsumerRecord

Run = Callable[..., eosdb.ProcessReport]


def feed(db: eosdb.Database, *values: bytes, topic: str = "in", partition: int = 0) -> None:
    producer = db.producer(linger_ms=10_000)
    for value in values:
        producer.send(topic, value, key=b"k" + value, partition=partition)
    producer.close()


def read(db: eosdb.Database, topic: str = "out") -> list[ConsumerRecord]:
    consumer = db.consumer(auto_offset_reset="earliest")
    consumer.subscribe(topic)
    return [record for _ in range(20) for record in consumer.poll()]


def values(db: eosdb.Database, topic: str = "out") -> list[object]:
    return sorted(record.value for record in read(db, topic))


def upper(record: ConsumerRecord) -> bytes:
    assert isinstance(record.value, bytes)
    return record.value.upper()


def fails_for(*bad: bytes) -> Callable[[ConsumerRecord], bytes]:
    def handle(record: ConsumerRecord) -> bytes:
        if record.value in bad:
            raise ValueError(f"cannot do {record.value!r}")
        return upper(record)

    return handle


def bury(
    db: eosdb.Database, topic: str = "in", dead_letter_topic: str = "dlq", **config: Any
) -> None:
    """Make a dead letter of every record."""

    def refuse(record: ConsumerRecord) -> None:
        raise ValueError(f"cannot read {record.value!r}")

    settings = {"group_id": "g", "until_idle_ms": 10, "max_attempts": 1, **config}
    eosdb.process(db, topic, refuse, dead_letter_topic=dead_letter_topic, **settings)
