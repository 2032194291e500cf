"""Beside a program that copies the WAL itself, as Litestream does, eosdb leaves the WAL as it is.

The program here stands in for Litestream: it holds a read transaction, and for a checkpoint it takes the
write lock, lets go of its snapshot, copies, takes a new one, and writes to its own table.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import BrokerConfig, TopicPartition
from eosdb.errors import InvalidConfigError
from eosdb.model.notices.notice import Untold
from eosdb.store.wal import WalGrowth, WalIndex

TP = TopicPartition("t", 0)
MIB = 1024 * 1024
BATCH = eosdb.RecordBatch([eosdb.Record(value=b"x" * MIB)])
EXTERNAL = BrokerConfig(external_checkpoints=True)
COPIER = """
import sqlite3, sys

def opened():
    found = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
    found.execute("PRAGMA wal_autocheckpoint=0")
    return found

locking, copying, reading = opened(), opened(), opened()
copying.execute("CREATE TABLE IF NOT EXISTS _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)")
copying.execute("CREATE TABLE IF NOT EXISTS _litestream_lock (id INTEGER)")

def hold():
    reading.execute("BEGIN")
    reading.execute("SELECT count(1) FROM _litestream_seq").fetchone()

hold()
print("holds", flush=True)
for _ in sys.stdin:
    locking.execute("BEGIN")
    locking.execute("INSERT INTO _litestream_lock VALUES (1)")
    reading.rollback()
    busy, frames, copied = copying.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    hold()
    locking.rollback()
    copying.execute(
        "INSERT INTO _litestream_seq VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET seq = seq + 1"
    )
    print(busy, frames - copied, flush=True)
"""


@contextlib.contextmanager
def copier(path: Path) -> Iterator[Callable[[], str]]:
    """A process that holds the WAL; the call makes its checkpoint: was it busy, and how much is left."""
    child = subprocess.Popen(
        [sys.executable, "-c", COPIER, path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "holds\n"

    def checkpoint() -> str:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        return child.stdout.readline()

    try:
        yield checkpoint
    finally:
        child.communicate()


def opened(path: Path, config: BrokerConfig = EXTERNAL) -> eosdb.Database:
    found = eosdb.connect(path, durability="off", config=config)
    if "t" not in found.admin.list_topics():
        found.admin.create_topic("t")
    return found


def write(db: eosdb.Database, mib: int) -> None:
    for _ in range(mib):
        db.broker.append(TP, BATCH)


def generation(path: Path) -> bytes:
    """The WAL's header, which changes when the WAL begins anew."""
    with open(f"{path}-wal", "rb") as wal:
        return wal.read(32)


def wal_mib(path: Path) -> float:
    wal = Path(f"{path}-wal")
    return wal.stat().st_size / MIB if wal.exists() else 0.0


@pytest.mark.process
def test_the_wal_begins_anew_only_when_the_other_program_has_copied_it(db_path: Path) -> None:
    with opened(db_path) as db:
        with copier(db_path) as checkpoint:
            at_first, size = generation(db_path), db_path.stat().st_size
            write(db, 40)
            assert generation(db_path) == at_first
            assert wal_mib(db_path) > 40
            assert db_path.stat().st_size == size
            assert checkpoint() == "0 0\n"
            assert generation(db_path) != at_first
            write(db, 5)
            assert checkpoint() == "0 0\n"
        assert db.verify().ok
        assert db.query("SELECT seq FROM _litestream_seq").rows.__next__() == (2,)


@pytest.mark.slow
def test_what_the_other_program_has_not_read_survives_that_everybody_closes_the_file(
    db_path: Path,
) -> None:
    opened(db_path, BrokerConfig()).close()
    with opened(db_path) as db:
        write(db, 5)
    at_first = generation(db_path)
    assert wal_mib(db_path) > 5
    with opened(db_path) as db:
        write(db, 1)
        db.compact()
    assert generation(db_path) == at_first
    with opened(db_path, BrokerConfig()) as db:
        assert db.verify().ok
        assert db.broker.offsets(TP).log_end_offset == 6
    assert wal_mib(db_path) == 0


@pytest.mark.slow
def test_who_has_left_checkpoints_to_a_program_that_is_not_there_is_told(
    db_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(db_path) as db:
        write(db, 60)
        assert caplog.records == []
        write(db, 20)
        (told,) = caplog.records
        assert told.levelno == logging.WARNING
        assert "external_checkpoints leaves that to another program" in told.message


def test_a_wal_that_is_not_copied_is_told_at_its_limit_at_each_doubling_and_anew_once_it_was_copied(
    db: eosdb.Database,
) -> None:
    untold = Untold()
    growth = WalGrowth(db.path, untold)
    told = []
    for frames, copied in ((70, 0), (70, 0), (139, 0), (141, 0), (200, 0), (200, 150), (220, 150)):
        growth.look_at_others(WalIndex(frames, (0, 0), b"", copied, (), MIB))
        told.append(len(untold.waiting))
    assert told == [1, 1, 1, 2, 2, 2, 3]


@pytest.mark.process
@pytest.mark.parametrize("config", [BrokerConfig(), EXTERNAL])
def test_the_hold_of_the_other_program_stops_no_writer(db_path: Path, config: BrokerConfig) -> None:
    with opened(db_path, config) as db, copier(db_path) as checkpoint:
        for _ in range(4):
            write(db, 10)
            assert checkpoint() == "0 0\n"
        assert db.broker.offsets(TP).log_end_offset == 40
        assert wal_mib(db_path) < 40


def test_the_setting_is_a_truth_value() -> None:
    with pytest.raises(InvalidConfigError, match="external_checkpoints: got 1, expected True"):
        BrokerConfig(external_checkpoints=1)  # type: ignore[arg-type]
