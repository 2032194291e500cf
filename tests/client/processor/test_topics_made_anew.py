"""A processor whose topic is deleted and made anew while it works processes all of the new one."""

from __future__ import annotations

from typing import Any

import pytest

import eosdb
from eosdb import ConsumerRecord, OffsetAndMetadata, TopicPartition
from tests.readers import committed_values

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)
NEW = [b"new %d" % i for i in range(40)]


class Program:
    """Its 30th record makes the topic anew; then it goes on as if nothing had happened."""

    def __init__(self, db: eosdb.Database) -> None:
        self._db = db
        self._count = 0

    def __call__(self, record: ConsumerRecord[bytes, bytes]) -> bytes:
        self._count += 1
        if self._count == 30:
            self._db.admin.delete_topic("t")
            self._db.admin.create_topic("t")
            with self._db.producer() as producer:
                producer.send_many("t", NEW)
        return record.value


def run(db: eosdb.Database, handler: Program, **settings: Any) -> list[bytes | None]:
    eosdb.process(db, "t", handler, "out", group_id="g", until_idle_ms=50, **settings)
    return [value for value in committed_values(db, TopicPartition("out", 0)) if value in NEW]


@pytest.mark.parametrize("transaction_size", [1, 20, 1_000])
def test_all_of_the_new_topic_is_processed_once(db: eosdb.Database, transaction_size: int) -> None:
    db.admin.create_topic("t")
    db.admin.create_topic("out")
    with db.producer() as producer:
        producer.send_many("t", [f"old {i}" for i in range(100)])
    found = run(db, Program(db), transaction_size=transaction_size)
    assert found == NEW
    assert db.broker.offset_fetch("g") == {TP: OffsetAndMetadata(40)}
