"""Files to read and to write, what becomes of them, and what is in them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from tests.readers import committed_values

TP0, TP1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def fill(path: Path, count: int = 60, topic: str = "orders") -> list[bytes | None]:
    """Committed, aborted and plain records over two partitions, one transaction left open. Returns the
    values that a read_committed reader may see."""
    values: list[bytes | None] = []
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic(topic, partitions=2)
        producer = db.producer(transactional_id=f"maker-{topic}")
        producer.init_transactions()
        for i in range(count // 10):
            producer.begin_transaction()
            made = [f"{topic} {i} {j}" for j in range(9)]
            for j, value in enumerate(made):
                headers = [("h", b"\x00"), ("n", None)] if j == 0 else []
                producer.send(topic, value, key=f"k{j}", headers=headers)
            if i % 4 == 3:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                values += [value.encode() for value in made]
            plain = RecordBatch([Record(value=b"plain %d" % i)])
            db.broker.append(TopicPartition(topic, i % 2), plain)
            values.append(b"plain %d" % i)
        tp = TopicPartition(topic, 0)
        me = db.broker.init_producer_id(f"open-{topic}", 900_000)
        open_batch = RecordBatch([Record(value=b"open")], *me, 0, True)
        db.broker.append(tp, open_batch, transactional_id=f"open-{topic}")
        db.broker.append(tp, RecordBatch([Record(value=b"waits")]))
    return sorted(values, key=lambda value: value or b"")


def make(path: Path, values: range = range(0), topic: str = "orders") -> Path:
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic(topic)
    append(path, values)
    return path


def append(path: Path, values: range) -> None:
    if values:
        with eosdb.connect(path, durability="off") as db:
            db.broker.append(TP0, RecordBatch([Record(value=b"%d" % i) for i in values]))


def remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def new_file(path: Path, values: range) -> None:
    remove(path)
    make(path, values)


def backup_put_back(path: Path, values: range) -> None:
    """`backup.db` lies beside the file."""
    remove(path)
    shutil.copy(path.with_name("backup.db"), path)
    append(path, values)


def restored(path: Path, values: range) -> None:
    with eosdb.connect(path) as db:
        position = db.info()["journal_position"]
        assert isinstance(position, int)
        db.restore_to(path.with_name("then.db"), position=position - 1)
    remove(path)
    os.rename(path.with_name("then.db"), path)
    append(path, values)


def topic_anew(path: Path, values: range = range(0), topic: str = "orders") -> None:
    with eosdb.connect(path, durability="off") as db:
        db.admin.delete_topic(topic)
        db.admin.create_topic(topic)
    append(path, values)


def out(path: Path, topic: str = "out") -> list[bytes]:
    """The values in a topic, sorted."""
    with eosdb.connect(path) as db:
        count = db.broker.partitions_for(topic)
        found = [v for p in range(count) for v in committed_values(db, TopicPartition(topic, p))]
        assert db.verify().ok
    return sorted(value or b"" for value in found)


def numbers_in(path: Path, topic: str) -> list[int]:
    return sorted(int(value) for value in out(path, topic))


def expected(count: int) -> list[bytes]:
    return sorted(b"%d" % n for n in range(count))
