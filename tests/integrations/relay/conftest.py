"""A file with a topic to relay, an empty file, and a Kafka cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb.testing.kafka import KafkaDouble


@pytest.fixture
def source(tmp_path: Path) -> Iterator[eosdb.Database]:
    """A file with the topic "orders" of two partitions."""
    with eosdb.connect(tmp_path / "source.db", durability="off") as db:
        db.admin.create_topic("orders", 2, {"retention.ms": "-1"})
        yield db


@pytest.fixture
def target(tmp_path: Path) -> Iterator[eosdb.Database]:
    with eosdb.connect(tmp_path / "target.db", durability="off") as db:
        yield db


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KafkaDouble]:
    with KafkaDouble(tmp_path / "cluster.db", auto_create_topics_enable=False) as made:
        yield made
