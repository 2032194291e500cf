"""Copies for readers on other hosts: whole, replaced at once, readable without shared memory."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable
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
    live.publish_copy(target)
    with eosdb.connect(target, read_only=True) as before:
        assert committed_values(before, TP) == [b"first"]
        live.broker.append(TP, RecordBatch([Record(value=b"second")]))
        live.publish_copy(target)
        assert committed_values(before, TP) == [b"first"], "who reads the old one goes on"
    with eosdb.connect(target, read_only=True) as now:
        assert committed_values(now, TP) == [b"first", b"second"]
        assert now.verify().ok
    assert sorted(p.name for p in tmp_path.iterdir() if "share" in p.name) == ["share.db"]


def test_a_copy_needs_nothing_beside_it(live: eosdb.Database, tmp_path: Path) -> None:
    folder = tmp_path / "share"
    folder.mkdir()
    live.publish_copy(folder / "copy.db")
    assert (folder / "copy.db").read_bytes()[18:20] == b"\x01\x01", "no write-ahead log"
    os.chmod(folder, 0o555)
    try:
        with eosdb.connect(folder / "copy.db", read_only=True) as copy:
            assert committed_values(copy, TP) == [b"first"]
    finally:
        os.chmod(folder, 0o755)
    assert [p.name for p in folder.iterdir()] == ["copy.db"]


@pytest.mark.slow
def test_a_copy_is_one_instant_while_others_write(live: eosdb.Database, tmp_path: Path) -> None:
    """The writer waits when it is far ahead: on a busy machine each check would take longer."""
    live.admin.create_topic("u")
    stop = threading.Event()
    wanted = threading.Semaphore(0)

    def write() -> None:
        with eosdb.connect(live.path, clock=live.clock, durability="off") as db:
            producer = db.producer(transactional_id="x")
            producer.init_transactions()
            number = 0
            while wanted.acquire() and not stop.is_set():
                with producer.transaction():
                    producer.send("t", b"%d" % number)
                    producer.send("u", b"%d" % number)
                number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(10):
            wanted.release(200)
            live.publish_copy(tmp_path / "copy.db")
            with eosdb.connect(tmp_path / "copy.db", read_only=True) as copy:
                assert committed_values(copy, TP)[1:] == committed_values(
                    copy, TopicPartition("u", 0)
                )
                assert copy.verify().ok
    finally:
        stop.set()
        wanted.release()
        writer.join()


def test_a_folder_that_is_not_there_is_said(live: eosdb.Database, tmp_path: Path) -> None:
    with pytest.raises(eosdb.EosdbError):
        live.publish_copy(tmp_path / "no/such/copy.db")
    live.close()
    with pytest.raises(eosdb.DatabaseClosedError):
        live.publish_copy(tmp_path / "copy.db")


def by_an_earlier_version(source: eosdb.Database, target: Path) -> None:
    with contextlib.closing(sqlite3.connect(source.path)) as connection:
        connection.execute("VACUUM INTO ?", (str(target),))


@pytest.mark.parametrize("publish", [eosdb.Database.publish_copy, by_an_earlier_version])
def test_nobody_writes_into_a_copy(
    live: eosdb.Database, tmp_path: Path, publish: Callable[[eosdb.Database, Path], None]
) -> None:
    folder = tmp_path / "share"
    folder.mkdir()
    target = folder / "copy.db"
    publish(live, target)
    content = target.read_bytes()
    for create in (True, False):
        with pytest.raises(eosdb.ReadOnlyDatabaseError, match=r"published copy.*the original file"):
            eosdb.connect(target, create=create)
    assert not live.is_published
    with eosdb.connect(target, read_only=True) as copy:
        assert copy.is_published
        with pytest.raises(eosdb.ReadOnlyDatabaseError):
            copy.append_once("sink", 0, [])
    assert target.read_bytes() == content
    assert [p.name for p in folder.iterdir()] == ["copy.db"], "nothing was put beside it"


def test_a_copy_that_was_written_to_by_an_earlier_version_is_refused_too(
    live: eosdb.Database, tmp_path: Path
) -> None:
    live.publish_copy(tmp_path / "copy.db")
    (tmp_path / "copy.db-lock").touch()
    with pytest.raises(eosdb.ReadOnlyDatabaseError, match="published copy"):
        eosdb.connect(tmp_path / "copy.db")


@pytest.mark.slow
def test_a_copy_becomes_an_ordinary_file_by_backup_or_restore(
    live: eosdb.Database, tmp_path: Path
) -> None:
    live.publish_copy(tmp_path / "copy.db")
    with eosdb.connect(tmp_path / "copy.db", read_only=True) as copy:
        copy.backup(tmp_path / "same.db")
        copy.restore_to(tmp_path / "other.db", position=int(str(copy.info()["journal_position"])))
    ids = []
    for name in ("same.db", "other.db"):
        assert (tmp_path / name).read_bytes()[18:20] == b"\x02\x02", "with a write-ahead log"
        with eosdb.connect(tmp_path / name) as made:
            made.broker.append(TP, RecordBatch([Record(value=b"more")]))
            assert committed_values(made, TP) == [b"first", b"more"]
            assert made.verify().ok
            ids.append(made.info()["file_id"])
    assert ids[0] == live.info()["file_id"] != ids[1]


def test_publishing_replaces_no_file_that_is_written(live: eosdb.Database, tmp_path: Path) -> None:
    with eosdb.connect(tmp_path / "other.db") as other:
        other.admin.create_topic("precious")
    for target in (Path(live.path), tmp_path / "other.db"):
        with pytest.raises(eosdb.IllegalStateError, match="not a published copy"):
            live.publish_copy(target)
    with eosdb.connect(tmp_path / "other.db", read_only=True) as other:
        assert other.admin.partition_offsets()
    assert committed_values(live, TP) == [b"first"]


def test_a_copy_of_an_older_schema_is_to_be_published_again(
    live: eosdb.Database, tmp_path: Path
) -> None:
    target = tmp_path / "copy.db"
    live.publish_copy(target)
    with contextlib.closing(sqlite3.connect(target)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version={version - 1}")
    with pytest.raises(eosdb.SchemaOutOfDateError, match="publish it again"):
        eosdb.connect(target, read_only=True)
    with pytest.raises(eosdb.ReadOnlyDatabaseError, match="published copy"):
        eosdb.connect(target)
