"""Backups while others write, and copies of the file as it was."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import ManualClock, TopicPartition
from eosdb.store.file.file_system import LOCKS
from tests.readers import committed_values, dump_state

TP = TopicPartition("t", 0)


def test_a_backup_is_the_same_database(db: eosdb.Database, tmp_path: Path, db_path: Path) -> None:
    db.admin.create_topic("t")
    db.producer().send("t", b"v")
    db.backup(tmp_path / "copy.db")
    assert dump_state(tmp_path / "copy.db") == dump_state(db_path)
    assert sorted(os.listdir(tmp_path)) == sorted(
        ["copy.db", *(f"test.db{suffix}" for suffix in ("", "-shm", "-wal", *LOCKS))]
    )
    with eosdb.connect(tmp_path / "copy.db") as copy:
        assert copy.producer().send("t", b"w").result().offset == 1
        assert copy.verify().ok
    with pytest.raises(eosdb.IllegalStateError, match="exists"):
        db.backup(tmp_path / "copy.db")
    with pytest.raises(eosdb.StorageError):
        db.backup(tmp_path / "no folder" / "copy.db")


@pytest.mark.slow
def test_a_backup_beside_a_writer_is_consistent(db: eosdb.Database, tmp_path: Path) -> None:
    db.admin.create_topic("t")
    stop = threading.Event()

    def write() -> None:
        producer = db.producer(transactional_id="w")
        producer.init_transactions()
        while not stop.is_set():
            with producer.transaction():
                for _ in range(10):
                    producer.send("t", b"x" * 100)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for i in range(5):
            db.backup(tmp_path / f"copy{i}.db")
    finally:
        stop.set()
        writer.join()
    for i in range(5):
        with eosdb.connect(tmp_path / f"copy{i}.db") as copy:
            assert copy.verify().ok
            assert len(committed_values(copy, TP)) % 10 == 0


def history(db: eosdb.Database, clock: ManualClock) -> list[tuple[int, int, list[bytes | None]]]:
    """Work a little; after each step: the journal's position, the time, and what a reader saw."""
    seen = []
    db.admin.create_topic("t", config={"retention.ms": -1})
    producer = db.producer(transactional_id="a")
    producer.init_transactions()
    for i in range(6):
        producer.begin_transaction()
        producer.send("t", f"{i}")
        producer.flush()
        producer.commit_transaction() if i % 3 else producer.abort_transaction()
        position = db.info()["journal_position"]
        assert isinstance(position, int)
        seen.append((position, clock.time_ms(), committed_values(db, TP)))
        clock.advance(1_000)
    return seen


@pytest.mark.slow
def test_back_to_every_step(db: eosdb.Database, clock: ManualClock, tmp_path: Path) -> None:
    for i, (position, timestamp, values) in enumerate(history(db, clock)):
        assert db.restore_to(tmp_path / f"p{i}.db", position=position) == position
        assert db.restore_to(tmp_path / f"t{i}.db", timestamp=timestamp + 999) == position
        for name in (f"p{i}.db", f"t{i}.db"):
            with eosdb.connect(tmp_path / name, read_only=True) as then:
                assert committed_values(then, TP) == values
                assert then.info()["journal_position"] == position
                report = then.verify()
                assert report.ok, report.problems


@pytest.mark.slow
def test_back_to_every_single_event(db: eosdb.Database, clock: ManualClock, tmp_path: Path) -> None:
    last = history(db, clock)[-1][0]
    for position in range(last + 1):
        db.restore_to(tmp_path / f"{position}.db", position=position)
        with eosdb.connect(tmp_path / f"{position}.db", clock=clock) as then:
            assert then.verify().ok


@pytest.mark.slow
def test_a_restored_file_goes_on(db: eosdb.Database, clock: ManualClock, tmp_path: Path) -> None:
    position, _, values = history(db, clock)[2]
    db.restore_to(tmp_path / "then.db", position=position)
    with eosdb.connect(tmp_path / "then.db", clock=clock) as then:
        producer = then.producer(transactional_id="a")
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"another future")
        assert committed_values(then, TP) == [*values, b"another future"]
        assert then.verify().ok


def test_what_retention_and_compaction_took_is_admitted(
    db: eosdb.Database, clock: ManualClock, tmp_path: Path
) -> None:
    db.admin.create_topic("t")
    db.admin.create_topic("c", config={"cleanup.policy": "compact"})
    producer = db.producer()
    for i in range(6):
        producer.send("t", f"{i}")
        producer.send("c", f"{i}", key="k")
    position = db.info()["journal_position"]
    assert isinstance(position, int)
    db.broker.delete_records(TP, 4)
    producer.send("c", "newest", key="k")
    db.housekeeping()
    db.restore_to(tmp_path / "then.db", position=position)
    with eosdb.connect(tmp_path / "then.db", clock=clock) as then:
        assert then.broker.offsets(TP).log_start_offset == 4
        assert committed_values(then, TP) == [b"4", b"5"]
        report = then.verify()
        assert report.ok, report.problems


@pytest.mark.parametrize("wrong", [{}, {"position": 1, "timestamp": 1}, {"position": 999},
                                   {"position": -1}, {"position": "1"}, {"timestamp": "x"}])  # fmt: skip
def test_where_there_is_nothing_to_go_back_to(
    db: eosdb.Database, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises(eosdb.InvalidRequestError):
        db.restore_to(tmp_path / "then.db", **wrong)
    assert not (tmp_path / "then.db").exists()
