"""A reader that stands still keeps the WAL from being begun anew: nothing waits for it, it is named, and
the WAL shrinks when it is done. The readers are programs with plain sqlite3."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import eosdb
from eosdb import TopicPartition
from eosdb.cli.main import main
from eosdb.model.notices.notice import Untold
from eosdb.store.wal import Checkpoint, WalGrowth
from eosdb.system.road import road

pytestmark = [pytest.mark.process, pytest.mark.slow]

TP = TopicPartition("t", 0)
MIB = 1024 * 1024
BATCH = eosdb.RecordBatch([eosdb.Record(value=b"x" * MIB)])
READ = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("BEGIN")
print(*connection.execute("SELECT count(*) FROM records").fetchone(), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def reader(path: str) -> Iterator[int]:
    """A process that has begun to read; its number."""
    child = subprocess.Popen(
        [sys.executable, "-c", READ, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline()
    try:
        yield child.pid
    finally:
        os.kill(child.pid, signal.SIGCONT)
        child.communicate()


CONFIG = eosdb.BrokerConfig(slow_commit_ms=-1)
"""A busy machine is not what these tests are about."""


@pytest.fixture
def db(db_path: Path) -> Iterator[eosdb.Database]:
    with eosdb.connect(db_path, durability="off", config=CONFIG) as opened:
        opened.admin.create_topic("t")
        yield opened


def write(db: eosdb.Database, mib: int) -> None:
    for _ in range(mib):
        db.broker.append(TP, BATCH)


def wal_mib(db: eosdb.Database) -> int:
    return os.path.getsize(f"{db.path}-wal") // MIB


@pytest.mark.real_start
def test_who_keeps_the_wal_growing_is_named_at_its_limit_and_at_each_doubling(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    with reader(db.path) as pid:
        write(db, 60)
        assert caplog.records == []
        for expected in (1, 1, 2):
            write(db, 30)
            assert len(caplog.records) == expected
    for record in caplog.records:
        assert record.name == "eosdb.store"
        assert record.levelno == logging.WARNING
        assert f"process {pid} (" in record.message
        assert READ.splitlines()[1] in record.message, "its command"
        assert "this process" not in record.message


def test_the_wal_shrinks_when_the_reader_is_done_and_the_next_one_is_named_again(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    with reader(db.path):
        write(db, 80)
    write(db, 20)
    assert wal_mib(db) <= 64
    caplog.clear()
    with reader(db.path) as pid:
        write(db, 80)
    (warning,) = caplog.messages
    assert f"process {pid} (" in warning


def test_only_the_oldest_snapshot_is_blamed(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    with reader(db.path) as old:
        write(db, 10)
        with reader(db.path) as young:
            write(db, 70)
    (warning,) = caplog.messages
    assert f"process {old} (" in warning
    assert f"process {young} (" not in warning


def test_a_reader_in_the_writing_process_is_named_as_such(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    with db.engine.connect() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM records").fetchone()
        write(db, 80)
    (warning,) = caplog.messages
    assert f"this process {os.getpid()} (" in warning


def test_a_stopped_reader_is_said_to_be_stopped(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    with reader(db.path) as pid:
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        write(db, 80)
    (warning,) = caplog.messages
    assert "which is stopped: let it go on (kill -CONT) or end it" in warning


def test_a_large_wal_that_nobody_holds_is_no_reason_to_warn(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    with db.begin() as tx:
        for _ in range(80):
            tx.publish("t", b"x" * MIB)
    write(db, 10)
    assert caplog.messages == []


def test_a_reader_that_ends_soon_is_no_reason_to_warn(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    db.close()  # The first checkpoint of a file that is opened copies nothing, either.
    with (
        eosdb.connect(db.path, durability="off", config=CONFIG) as db,
        contextlib.closing(sqlite3.connect(db.path)) as short,
    ):
        writer = db._store._writer
        assert writer is not None
        short.execute("BEGIN")
        short.execute("SELECT count(*) FROM records").fetchone()
        writer.connection.set_trace_callback(
            lambda said: short.rollback() if "RESTART" in said else None
        )
        with db.begin() as tx:
            for _ in range(80):
                tx.publish("t", b"x" * MIB)
        write(db, 1)
        assert not short.in_transaction, "it was waited for"
        writer.connection.set_trace_callback(None)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("copied", "warnings"), [pytest.param(80, 0, id="ended"), pytest.param(10, 1, id="unseen")]
)
def test_a_reader_that_is_not_found_has_ended_or_cannot_be_seen(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture, copied: int, warnings: int
) -> None:
    untold = Untold()
    WalGrowth(db.path, untold).look(
        Checkpoint(80 * MIB, 10 * MIB), lambda: Checkpoint(80 * MIB, copied * MIB)
    )
    untold.tell()
    assert len(caplog.messages) == warnings
    assert all("a process that the system does not show" in said for said in caplog.messages)


def test_nobody_waits_for_a_reader_that_stands_still(db: eosdb.Database) -> None:
    """A checkpoint that waits for readers stalls every writer."""
    writer = db._store._writer
    assert writer is not None
    with reader(db.path):
        write(db, 40)
        waited: list[str] = []
        writer.connection.set_trace_callback(waited.append)
        write(db, 40)
        writer.connection.set_trace_callback(None)
    checkpoints = [statement for statement in waited if "wal_checkpoint" in statement]
    assert 5 <= len(checkpoints) <= 15, "one for each 4 MiB that are new, or so"
    assert not [statement for statement in checkpoints if "PASSIVE" not in statement]


@pytest.mark.parametrize(
    ("before", "found", "added"),
    [
        pytest.param((100, 20), (150, 20), 50, id="held"),
        pytest.param((100, 100), (150, 150), 150, id="begun anew behind a whole copy"),
        pytest.param((100, 20), (30, 30), 30, id="begun anew by somebody else"),
        pytest.param((0, 0), (30, 10), 30, id="the first"),
    ],
)
def test_what_a_wal_has_got_since_the_last_checkpoint(
    before: tuple[int, int], found: tuple[int, int], added: int
) -> None:
    assert Checkpoint(*found).added_since(Checkpoint(*before)) == added


def test_who_is_reading_is_a_fact_about_the_file(db: eosdb.Database) -> None:
    write(db, 1)
    assert db.info()["wal_held_by"] == ""
    with reader(db.path) as one, reader(db.path) as two:
        for written in (0, 1):
            write(db, written)
            held_by = str(db.info()["wal_held_by"])
            # The portable road is told of one among those who share a lock.
            named = [f"process {pid} (" in held_by for pid in (one, two)]
            assert any(named) if road.IS_PORTABLE else all(named)
            assert (" and " in held_by) == all(named)
        told = CliRunner().invoke(main, ["--db", db.path, "info", "--format", "json"])
        assert "process " in json.loads(told.stdout)[0]["wal_held_by"]
        with eosdb.connect(db.path, read_only=True) as other:
            assert str(os.getpid()) not in str(other.info()["wal_held_by"])
    assert db.info()["wal_held_by"] == ""


COPY = """
import sqlite3, sys
print(*sqlite3.connect(sys.argv[1]).execute("PRAGMA wal_checkpoint").fetchone())
"""


def test_asking_who_reads_drops_no_lock(db: eosdb.Database) -> None:
    """As opening and closing SQLite's shared memory would: a foreign process would copy the WAL, then."""
    with contextlib.closing(sqlite3.connect(db.path)) as own:
        own.execute("BEGIN")
        own.execute("SELECT count(*) FROM records").fetchone()
        db.info()
        write(db, 1)
        copied = subprocess.run(
            [sys.executable, "-c", COPY, db.path], capture_output=True, check=True
        )
    _, frames, done = map(int, copied.stdout.split())
    assert done < frames
