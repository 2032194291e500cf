"""A file that has lived, and a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.testing.kafka import KafkaDouble
from tests.integrations.relay.contents import fill

GROUPS = {"billing": 0, "mailing": 11, "audit": 27}
"""Where groups stand in both partitions, by name."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KafkaDouble]:
    with KafkaDouble(tmp_path / "cluster.db", auto_create_topics_enable=False) as made:
        yield made


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[eosdb.Database]:
    """Two partitions with markers, aborted records and a deleted beginning; groups at several places."""
    with eosdb.connect(tmp_path / "shop.db", durability="off") as db:
        db.admin.create_topic("orders", 2, {"retention.ms": "-1"})
        for start in range(0, 60, 20):
            fill(db, range(start, start + 20))
            abort(db)
        for partition in range(2):
            tp = TopicPartition("orders", partition)
            db.broker.delete_records(tp, 3)
            for group, offset in GROUPS.items():
                db.broker.offset_commit(group, {tp: OffsetAndMetadata(offset)})
        yield db


def abort(db: eosdb.Database) -> None:
    """A transaction in both partitions that comes to nothing."""
    with db.producer(transactional_id="failing") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for partition in range(2):
            producer.send("orders", b"aborted", partition=partition)
        producer.flush()
        producer.abort_transaction()
