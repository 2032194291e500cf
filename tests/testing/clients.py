"""One small program in three clients: values in, in a transaction or without; committed values out.

`python -m tests.testing.clients CLIENT ADDRESS VALUE …` commits the values in a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import time
from collections.abc import Iterable
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka
import pytest

from eosdb.testing import KafkaDouble

TOPIC: Final = "t"
PATIENCE_S: Final = 60.0
API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""A frame with the smallest request there is."""
leaves_sockets = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""For tests with aiokafka and a cluster that is away: see `gc.collect` in `tests/testing/workers.py`."""
_ALL_METADATA: Final = struct.pack(">ihhihi", 14, 3, 1, 1, -1, -1)
_BLOCKED_S: Final = 0.5


def commit_with_confluent(cluster: str, values: Iterable[str]) -> None:
    producer = confluent_transactions(cluster)
    producer.begin_transaction()
    for value in values:
        producer.produce(TOPIC, value)
    producer.commit_transaction(PATIENCE_S)


def commit_with_kafka_python(cluster: str, values: Iterable[str]) -> None:
    producer: Any = kafka.KafkaProducer(  # type: ignore[no-untyped-call]
        bootstrap_servers=cluster, transactional_id="a"
    )
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.send(TOPIC, value.encode())
    producer.commit_transaction()
    producer.close()


def commit_with_aiokafka(cluster: str, values: Iterable[str]) -> None:
    async def run() -> None:
        async with (
            aiokafka.AIOKafkaProducer(bootstrap_servers=cluster, transactional_id="a") as producer,
            producer.transaction(),
        ):
            for value in values:
                await producer.send(TOPIC, value.encode())

    asyncio.run(run())


COMMITS: Final = {
    "confluent-kafka": commit_with_confluent,
    "kafka-python": commit_with_kafka_python,
    "aiokafka": commit_with_aiokafka,
}


QUICK: Final = {
    "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 50, "log_level": 0,
}  # fmt: skip
"""Of librdkafka, which waits for seconds after the cluster has died."""


def confluent_transactions(cluster: str, **settings: Any) -> confluent_kafka.Producer:
    """A transactional producer after its init; settings with underscores for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster,
            "transactional.id": "a",
            # It waits for ever for a coordinator that was away (librdkafka issue 5511).
            "metadata.recovery.strategy": "none",
            **QUICK,
            **named,
        }
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def confluent_consumer(cluster: str, **settings: Any) -> confluent_kafka.Consumer:
    """Of the group "g", from the beginning, committing nothing by itself."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUICK,
            **named,
        }
    )


def read(consumer: confluent_kafka.Consumer, count: int) -> list[str]:
    """The next so many values; fewer when they do not come within a minute."""
    values: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
    return values


def stored(cluster: KafkaDouble, topic: str = TOPIC) -> list[str]:
    """The committed values of a topic, as they stand in the file."""
    found = cluster.db.query(
        "SELECT CAST(value AS TEXT) FROM committed_records WHERE topic = ? ORDER BY partition, offset",
        [topic],
    )
    return [str(value) for (value,) in found.rows]


def ask_without_reading(client: socket.socket) -> None:
    """Fill all buffers between the server and a client, until the server takes no more from it."""
    client.settimeout(_BLOCKED_S)
    with contextlib.suppress(TimeoutError):
        while True:
            client.sendall(_ALL_METADATA)


if __name__ == "__main__":
    COMMITS[sys.argv[1]](sys.argv[2], sys.argv[3:])
