"""kafka-python's admin client, which asks for more, and in newer versions, than librdkafka's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kafka
import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.wire.server import Server

TP = kafka.TopicPartition("made", 0)


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    made = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
    yield made
    made.close()


def test_it_administers_topics_and_their_settings(db: eosdb.Database, client: Any) -> None:
    config = {"segment.bytes": "2097152"}
    client.create_topics({"made": {"num_partitions": 2, "configs": config}})
    assert db.admin.describe_topic("made").config == config
    topic = ConfigResource(ConfigResourceType.TOPIC, "made", configs={"retention.ms": "7"})
    client.alter_configs([topic])
    (found,) = client.describe_configs([topic], config_filter="all")["topic"].values()
    assert found["retention.ms"]["value"] == "7"
    client.reset_configs([topic])
    assert db.admin.describe_topic("made").config == config
    client.create_partitions({"made": 4})
    (described,) = client.describe_topics(["made"])
    assert len(described["partitions"]) == 4
    assert client.list_config_resources() == {"topic": ["made", "t"], "broker": ["1"]}
    client.delete_topics(["made"])
    assert client.list_topics() == ["t"]


def test_it_inspects_and_empties_partitions(db: eosdb.Database, client: Any) -> None:
    db.admin.create_topic("made")
    batch = RecordBatch([Record(value=b"1"), Record(value=b"2")])
    db.broker.append(TopicPartition(*TP), batch)
    assert client.delete_records({TP: 1})[TP]["low_watermark"] == 1
    assert client.describe_producers([TP])[TP].active_producers == []
    assert client.list_transactions() == {1: []}
    assert client.list_partition_reassignments() == {}
    ((directory,),) = [broker["log_dirs"] for broker in client.describe_log_dirs()]
    assert [topic["name"] for topic in directory["topics"]] == ["made", "t"]
    assert client.describe_cluster()["cluster_id"] == db.broker.cluster_id()
