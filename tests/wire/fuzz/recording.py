"""What real clients send: a producer, a consumer and an admin client of each library, through a relay."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka

import eosdb
from tests.wire.fuzz.relay import Relay

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_PATIENCE_S = 60.0


def record(folder: Path) -> list[bytes]:
    """Every request that they made, each once."""
    with eosdb.connect(folder / "recorded.db", durability="normal") as db:
        db.admin.create_topic("t", partitions=2)
        with db.serve(host="127.0.0.1") as server, Relay(server) as relay:
            for codec in CODECS:
                _confluent(relay.bootstrap_servers, codec)
            _confluent_group(relay.bootstrap_servers)
            asyncio.run(_aiokafka(relay.bootstrap_servers))
            _kafka_python(relay.bootstrap_servers)
    return list(dict.fromkeys(relay.frames))


def _confluent(bootstrap: str, codec: str) -> None:
    producer = confluent_kafka.Producer({
        "bootstrap.servers": bootstrap, "transactional.id": "x", "compression.type": codec,
    })  # fmt: skip
    producer.init_transactions(_PATIENCE_S)
    producer.begin_transaction()
    for number in range(20):
        producer.produce("t", b"value" * 20, key=str(number), headers={"h": b"1"})
    producer.commit_transaction(_PATIENCE_S)


def _confluent_group(bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["t"])
    assert consumer.consume(1, _PATIENCE_S)
    consumer.commit(asynchronous=False)
    consumer.close()
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.list_consumer_groups().result(_PATIENCE_S)
    for found in admin.describe_consumer_groups(["g"]).values():
        found.result(_PATIENCE_S)
    for done in admin.delete_consumer_groups(["g"]).values():
        done.result(_PATIENCE_S)


async def _aiokafka(bootstrap: str) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip")
    async with producer:
        await producer.send_and_wait("t", b"value", key=b"k", headers=[("h", b"v")])
    consumer = aiokafka.AIOKafkaConsumer(
        "t", bootstrap_servers=bootstrap, group_id="a", auto_offset_reset="earliest"
    )
    async with consumer:
        assert await asyncio.wait_for(consumer.getone(), _PATIENCE_S)


def _kafka_python(bootstrap: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip")
    producer.send("t", b"value", key=b"k").get(timeout=_PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    partition = kafka.TopicPartition("t", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    assert next(consumer)
    consumer.close()
    names: Any = kafka.admin
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([names.NewTopic("made", 2, 1, topic_configs={"retention.ms": "1000"})])
    resource = names.ConfigResource("topic", "made", {"retention.ms": "2000"})
    admin.describe_configs([resource])
    admin.alter_configs([resource])
    admin.create_partitions({"made": names.NewPartitions(3)})
    admin.delete_topics(["made"])
    admin.close()
