"""A client that asks for every topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest

import eosdb

pytestmark = pytest.mark.slow


def test_clients_list_all_topics(tmp_path: Path) -> None:
    """librdkafka's request has bytes behind its end, which Kafka does not look at."""
    with eosdb.connect(tmp_path / "a.db") as db, db.serve() as server:
        db.admin.create_topic("a")
        db.admin.create_topic("b", partitions=2)
        confluent = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap_servers})
        found = confluent.list_topics(timeout=60).topics
        assert {name: len(topic.partitions) for name, topic in found.items()} == {"a": 1, "b": 2}
        python: Any = kafka.KafkaConsumer(bootstrap_servers=server.bootstrap_servers)
        assert python.topics() == {"a", "b"}
        python.close()
