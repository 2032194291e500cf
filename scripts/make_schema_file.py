"""Makes the small file of the current schema that later versions must be able to open.

    python -m scripts.make_schema_file tests/data/schema_0001.db

Run once per released schema, before it is released; the file is never made again. It has an event of every
kind, and a history that begins at a baseline; tests/store/schema asks for both.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.model.requests import ConsumerGroupHeartbeat
from eosdb.store.schema import file_id

DAY_MS = 86_400_000


def past(db: eosdb.Database) -> None:
    """What has expired since, or is known to the baseline alone."""
    db.admin.create_topic("past", config={"cleanup.policy": "compact", "retention.ms": -1})
    tp = TopicPartition("past", 0)
    producer = db.producer(transactional_id="past")
    producer.init_transactions()
    with producer.transaction():
        for number in range(9):
            producer.send("past", f"{number}", key=f"k{number % 3}")
        producer.send("past", None, key="k0")
    with db.begin() as tx:
        tx.publish("past", key="k1", value="keyed", idempotency_key="request 1")
    db.append_once("sink", 1, {tp: [eosdb.Record(b"k2", b"of a sink")]}, held=["a part"])
    db.broker.init_producer_id("idle")
    db.broker.offset_commit("past", {tp: OffsetAndMetadata(3, "m")})


def recent(db: eosdb.Database, clock: eosdb.ManualClock) -> None:
    """The kinds of events that seldom happen."""
    for _ in range(3):
        clock.advance(600_000)
        db.housekeeping()
    db.admin.create_topic("gone")
    db.admin.delete_topic("gone")
    db.admin.create_partitions("past", 2)
    db.admin.alter_topic_config("past", {"cleanup.policy": "compact,delete"})
    plain = TopicPartition("past", 1)
    db.producer().send("past", '{"a": 1}', key="k", partition=1).result()
    for number in range(3):  # The time index has an entry for every 64 KiB.
        clock.advance(1)
        db.producer().send("past", "x" * 70_000, key=f"large {number}", partition=1).result()
    shopping = {plain: OffsetAndMetadata(0), TopicPartition("past", 0): OffsetAndMetadata(1)}
    db.broker.offset_commit("shopping", shopping)
    db.broker.offset_delete("shopping", [plain])
    db.broker.delete_records(plain, 1)
    db.admin.create_view("typed", "past", {"a": "INTEGER"})
    db.admin.create_view("short", "past", {"a": "TEXT"})
    db.admin.drop_view("short")
    with db.begin() as tx:
        tx.publish("past", key="k", value="keyed", idempotency_key="request 2")
    db.append_once("sink", 2, {plain: [eosdb.Record(b"k", b"of a sink")]}, held=["a part"])
    acl = eosdb.Acl("User:*", "read", "topic", "orders")
    db.admin.create_acls([acl])
    db.admin.delete_acls(lambda given: given == acl)
    db.admin.set_password("bob", "secret")
    db.admin.remove_user("bob")
    with db.consumer("readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["past"])
        while not consumer.poll(timeout_ms=100):
            pass
        consumer.commit()


def main(path: Path) -> None:
    clock = eosdb.ManualClock(start_ms=1_700_000_000_000 - 9 * DAY_MS)
    config = eosdb.BrokerConfig(super_users="User:ANONYMOUS")
    before = path.with_suffix(".before")
    with eosdb.connect(before, clock=clock, config=config) as db:
        past(db)
        db.backup(path)
    for suffix in ("", "-lock"):
        Path(f"{before}{suffix}").unlink()
    clock.advance(9 * DAY_MS - 7_200_000)
    with eosdb.connect(path, clock=clock, config=config) as db:
        recent(db, clock)
        clock.advance(1_700_000_000_000 - clock.time_ms())
        db.admin.create_topic("orders", config={"retention.ms": -1})
        tp = TopicPartition("orders", 0)
        for name, value in (("ended", "committed"), ("aborted", "aborted")):
            producer = db.producer(transactional_id=name)
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("orders", value, key="k", headers=[("h", b"\x00")])
            producer.send_offsets_to_transaction({tp: OffsetAndMetadata(1, "m")}, "billing")
            producer.commit_transaction() if name == "ended" else producer.abort_transaction()
        db.producer().send("orders", "plain")
        db.take_snapshot()
        me = db.broker.init_producer_id("open", 900_000)
        db.broker.add_partitions_to_txn("open", *me, [tp])
        batch = eosdb.RecordBatch([eosdb.Record(value=b"open")], *me, 0, True)
        db.broker.append(tp, batch, transactional_id="open")
        db.broker.add_offsets_to_txn("open", *me, "billing")
        db.broker.txn_offset_commit("open", "billing", *me, {tp: OffsetAndMetadata(2)})
        db.admin.set_password("alice", "secret")
        first = ConsumerGroupHeartbeat(
            "shipping",
            member_id="m",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["orders"],
            topic_partitions={},
        )
        db.broker.ask(first)
        db.admin.alter_group_config("shipping", {"consumer.session.timeout.ms": 50_000})
        for value in ("delivered", "waits", "cancelled"):
            due = clock.time_ms() + (9 * DAY_MS if value != "delivered" else 0)
            db.producer().send("past", value, key="k", partition=1, deliver_at=due).result()
        db.admin.cancel_scheduled([db.admin.list_scheduled()[-1].id])
    connection = sqlite3.connect(path)
    file_id.settle(connection, None)  # The tests copy it, and expect an open transaction.
    connection.commit()
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    Path(f"{path}-lock").unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
