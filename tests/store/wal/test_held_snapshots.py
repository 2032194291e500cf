"""Who reads piece by piece holds no snapshot in between: one that is held keeps the WAL from shrinking."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition

TP = TopicPartition("t", 0)


def is_held(path: Path) -> bool:
    """Whether somebody's snapshot keeps the WAL from being begun anew."""
    with contextlib.closing(sqlite3.connect(path, timeout=0)) as file:
        busy, *_ = file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return bool(busy)


@pytest.fixture
def filled(db: eosdb.Database) -> eosdb.Database:
    db.admin.create_topic("t")
    producer = db.producer()
    for i in range(300):
        producer.send("t", b"%d" % i)
    producer.flush()
    return db


def consumed(db: eosdb.Database) -> Iterator[object]:
    consumer = db.consumer(auto_offset_reset="earliest", max_poll_records=5)
    consumer.assign([TP])
    return iter(consumer)


READERS: dict[str, Callable[[eosdb.Database], Iterator[object]]] = {
    "a consumer": consumed,
    "a scan": lambda db: db.admin.scan(TP, 0, 300, batch_size=7),
    "a dump of the log": lambda db: db.admin.dump_log(TP),
    "the journal": lambda db: db.admin.journal(),
    "a query with few rows": lambda db: db.query("SELECT value FROM records LIMIT 99").rows,
}


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_between_two_steps_nothing_is_held(
    filled: eosdb.Database, db_path: Path, reader: str
) -> None:
    found = READERS[reader](filled)
    next(found)
    filled.producer().send("t", b"while it is read").result()
    assert not is_held(db_path)
    assert len([next(found) for _ in range(30)]) == 30


@pytest.mark.slow
def test_a_query_with_many_rows_holds_its_snapshot_until_it_is_closed(
    filled: eosdb.Database, db_path: Path
) -> None:
    rows = filled.query("SELECT value FROM records ORDER BY rowid").rows
    assert next(rows) == (b"0",)
    filled.producer().send("t", b"later").result()
    assert is_held(db_path)
    assert len(list(rows)) == 299, "of the snapshot"
    assert not is_held(db_path)
