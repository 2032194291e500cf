"""A file with something in every table, and ways to damage it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.model.requests import ConsumerGroupHeartbeat
from eosdb.store.schema import file_id
from eosdb.system import birth

TP = TopicPartition("t", 0)
COMPACTED = TopicPartition("c", 0)
VALUES = 40
"""Transactions of two records in the first partition, every third of them aborted."""


def fill(path: Path, clock: ManualClock, values: int = VALUES) -> None:
    """It is left as a process that dies leaves it, with a member in a group and a transaction open."""
    db = eosdb.connect(path, clock=clock, durability="off")
    db.admin.create_topic("t", partitions=2)
    db.admin.create_topic("c", config={"cleanup.policy": "compact", "delete.retention.ms": 100_000})
    producer = db.producer(transactional_id="a")
    producer.init_transactions()
    for i in range(values):
        producer.begin_transaction()
        producer.send("t", b"value %d" % i, partition=0, headers=[("h", b"%d" % i)])
        producer.send("t", b"second %d" % i, key=b"key %d" % i, partition=0)
        producer.send("c", b"%d" % i, key="k")
        producer.send_offsets_to_transaction({TP: OffsetAndMetadata(i)}, "g")
        producer.flush()
        producer.commit_transaction() if i % 3 else producer.abort_transaction()
        clock.advance(10)
    # More than the time index leaves between two of its entries.
    db.broker.append(TP, RecordBatch([Record(value=bytes(40_000), timestamp=clock.time_ms())]))
    for i in range(3):
        who = db.broker.init_producer_id()
        records = [Record(value=bytes(15_000), timestamp=clock.time_ms() + i)]
        db.broker.append(TopicPartition("t", 1), RecordBatch(records * 4, *who, 0))
    db.producer().send("c", None, key="gone").result()
    db.housekeeping()

    db.admin.create_view("typed", "t", {"carrier": "TEXT"})
    db.append_once("sink", 3, {TP: [Record(value=b"of a sink")]})
    with db.begin() as tx:
        tx.publish("t", b"once", partition=1, idempotency_key="key")
    consumer = db.consumer("members", group_instance_id="stays")
    consumer.subscribe("t")
    consumer.poll()
    still_open = db.producer(transactional_id="open")
    still_open.init_transactions()
    still_open.begin_transaction()
    still_open.send("t", b"not yet", partition=0)
    still_open.send_offsets_to_transaction({TP: OffsetAndMetadata(9)}, "g")
    still_open.flush()
    for days in (0, 11, 12):
        due = clock.time_ms() + (days * 86_400_000 or 1)
        db.producer().send("t", b"later", key="k", deliver_at=due).result()
    db.admin.set_password("alice", "secret")
    first = ConsumerGroupHeartbeat(
        "assigned",
        member_id="m",
        rebalance_timeout_ms=1,
        subscribed_topic_names=["t"],
        topic_partitions={},
    )
    db.broker.ask(first)
    db.admin.alter_group_config("assigned", {"consumer.session.timeout.ms": 50_000})
    db.admin.set_password("bob", "secret")
    db.admin.remove_user("bob", "SCRAM-SHA-256")
    kinds = ("topic", "group", "transactional_id")
    db.admin.create_acls([eosdb.Acl("User:*", "all", kind, "*") for kind in kinds])
    assert db.verify().ok
    db.abandon()


def begin_a_life(path: Path, clock: ManualClock) -> None:
    """Make a file in its second life, as if it had been copied once."""
    for _ in range(2):
        eosdb.connect(path, clock=clock, durability="off").close()
        move(path, file_id.COPIED)
    move(path, birth.identity(str(path)))


def move(path: Path, place: str) -> None:
    """Have the file say that its life began at this place."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        file_id.settle(connection, place)


class Raw(sqlite3.Connection):
    """A connection that may change events: without triggers, which are there again at the end."""

    dropped: tuple[str, ...] = ()

    def drop_triggers(self) -> None:
        rows = self.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in rows:
            self.execute(f"DROP TRIGGER {name}")
        self.dropped = tuple(sql for _, sql in rows)

    def close(self) -> None:
        present = {sql for (sql,) in self.execute("SELECT sql FROM sqlite_master")}
        for sql in self.dropped:
            if sql not in present:
                self.execute(sql)
        self.dropped = ()
        super().close()


@contextlib.contextmanager
def changing(path: Path) -> Iterator[Raw]:
    """A `Raw` connection during the block."""
    with contextlib.closing(raw(path)) as connection:
        yield connection


def raw(path: Path) -> Raw:
    connection = sqlite3.connect(path, isolation_level=None, factory=Raw)
    connection.execute("PRAGMA synchronous=OFF")
    connection.drop_triggers()
    return connection
