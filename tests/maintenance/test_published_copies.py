"""Copies for readers on other hosts: whole, replaced at once, readable without shared memory."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from tests.readers import committed_values

TP = TopicPartition("t", 0)


@pytest.fixture
def live(db: eosdb.Database) -> eosdb.Database:
    db.admin.create_topic("t")
    db.broker.append(TP, RecordBatch([Record(value=b"first")]))
    return db


def test_a_copy_is_what_the_file_was_and_is_replaced_at_once(
    live: eosdb.Database, tmp_path: Path
) -> None:
    target = tmp_path / "share.db"
    live.publish(target)
    with eosdb.connect(target, read_only=True) as before:
        assert committed_values(before, TP) == [b"first"]
        live.broker.append(TP, RecordBatch([Record(value=b"second")]))
        live.publish(target)
        assert committed_values(before, TP) == [b"first"], "who reads the old one goes on"
    with eosdb.connect(target, read_only=True) as now:
        assert committed_values(now, TP) == [b"first", b"second"]
        assert now.verify().ok
    assert sorted(p.name for p in tmp_path.iterdir() if "share" in p.name) == ["share.db"]


def test_a_copy_needs_nothing_beside_it(live: eosdb.Database, tmp_path: Path) -> None:
    folder = tmp_path / "share"
    folder.mkdir()
    live.publish(folder / "copy.db")
    assert (folder / "copy.db").read_bytes()[18:20] == b"\x01\x01", "no write-ahead log"
    os.chmod(folder, 0o555)
    try:
        with eosdb.connect(folder / "copy.db", read_only=True) as copy:
            assert committed_values(copy, TP) == [b"first"]
    finally:
        os.chmod(folder, 0o755)
    assert [p.name for p in folder.iterdir()] == ["copy.db"]


def test_a_copy_is_one_instant_while_others_write(live: eosdb.Database, tmp_path: Path) -> None:
    live.admin.create_topic("u")
    stop = threading.Event()

    def write() -> None:
        with eosdb.connect(live.path, clock=live.clock, durability="off") as db:
            producer = db.producer(transactional_id="x")
            producer.init_transactions()
            number = 0
            while not stop.is_set():
                with producer.transaction():
                    producer.send("t", b"%d" % number)
                    producer.send("u", b"%d" % number)
                number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(10):
            live.publish(tmp_path / "copy.db")
            with eosdb.connect(tmp_path / "copy.db", read_only=True) as copy:
                assert committed_values(copy, TP)[1:] == committed_values(
                    copy, TopicPartition("u", 0)
                )
                assert copy.verify().ok
    finally:
        stop.set()
        writer.join()


def test_a_folder_that_is_not_there_is_said(live: eosdb.Database, tmp_path: Path) -> None:
    with pytest.raises(eosdb.EosdbError):
        live.publish(tmp_path / "no/such/copy.db")
    live.close()
    with pytest.raises(eosdb.DatabaseClosedError):
        live.publish(tmp_path / "copy.db")
