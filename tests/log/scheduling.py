"""Ways to schedule a record, what waits, and what has entered."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable

import eosdb
from eosdb import ProducerRecord

SECOND, DAY = 1_000, 86_400_000
PAST = 978_307_200_000
"""The year 2001: the earliest due time that is a number."""
Send = Callable[[eosdb.Database, str, int], object]


def values(db: eosdb.Database, topic: str = "t") -> list[str]:
    """The values in the topic, in the order in which they have entered it, without a poll."""
    rows = db.query(
        "SELECT CAST(c.value AS TEXT) FROM committed_records c "
        "JOIN partitions p ON p.topic = c.topic AND p.partition = c.partition "
        "JOIN records r ON r.partition_id = p.partition_id AND r.offset = c.offset "
        f"WHERE c.topic = '{topic}' ORDER BY r.position, c.offset"
    )
    return [value for (value,) in rows]


def waiting(db: eosdb.Database, topic: str | None = None) -> list[str]:
    return [(one.value or b"").decode() for one in db.admin.list_scheduled(topic)]


def by_send(db: eosdb.Database, value: str, due: int) -> object:
    return db.producer().send("t", value, key="k", deliver_at=due).result()


def by_send_many(db: eosdb.Database, value: str, due: int) -> object:
    return (
        db.producer().send_many("t", [ProducerRecord(value=value, key="k", deliver_at=due)]).offsets
    )


def by_transaction(db: eosdb.Database, value: str, due: int) -> object:
    with contextlib.closing(db.producer(transactional_id=value)) as producer:
        producer.init_transactions()
        with producer.transaction():
            return producer.send("t", value, key="k", deliver_at=due)


def by_publish(db: eosdb.Database, value: str, due: int) -> object:
    with db.begin() as tx:
        return tx.publish("t", value, key="k", deliver_at=due)


def by_join(db: eosdb.Database, value: str, due: int) -> object:
    with contextlib.closing(sqlite3.connect(db.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        metadata = eosdb.join(connection, clock=db.clock).publish(
            "t", value, key="k", deliver_at=due
        )
        connection.execute("COMMIT")
        return metadata


WAYS = [by_send, by_send_many, by_transaction, by_publish, by_join]
