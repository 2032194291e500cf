"""Makes the small file of the current schema that later versions must be able to open.

    python -m scripts.make_schema_file tests/data/schema_0003.db

Run once per released schema, before it is released; the file is never made again.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition


def main(path: Path) -> None:
    clock = eosdb.ManualClock(start_ms=1_700_000_000_000)
    with eosdb.connect(path, clock=clock) as db:
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
        db.admin.set_password("alice", "secret")
        first = eosdb.MemberHeartbeat(
            member_id="m",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["orders"],
            topic_partitions={},
        )
        db.broker.consumer_group_heartbeat("shipping", first)
        db.admin.alter_group_config("shipping", {"consumer.session.timeout.ms": 50_000})
    connection = sqlite3.connect(path)
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    Path(f"{path}-lock").unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
