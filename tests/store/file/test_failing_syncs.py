"""A disk that fails to sync: nothing is acknowledged that a power cut would take.

Method: a child's syncs are made to fail by a library that is preloaded (tests/chaos/disk.c); the child
is this file's `python -m`. Power cuts in numbers are in tests/chaos.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.store.file.mutex import WriterMutex
from tests.chaos import power
from tests.chaos.test_power_cuts import cut, disk
from tests.readers import committed_values
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.crash

__all__ = ["disk"]
TP = TopicPartition("t", 0)


class Child:
    """A program on a disk that fails on demand."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.path = folder / "watched" / "shop.db"
        self.path.parent.mkdir()
        self.log = folder / "log"
        self._environment = power.environment(library, self.path.parent, self.log)

    def run(self, program: str) -> None:
        """`fail(True)` and `fail(False)` turn the failing on and off; `db` is the open file."""
        text = PRELUDE.format(path=str(self.path)) + program
        done = subprocess.run(
            [sys.executable, "-c", text],
            env=self._environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def values_after_power_cuts(self, folder: Path, number: int) -> list[list[bytes | None]]:
        """What a consumer finds, on each of so many disks that may be left at the end."""
        operations, found = power.read_log(self.log), []
        for seed in range(number):
            place = folder / f"cut{seed}"
            place.mkdir()
            cut(operations, place, random.Random(seed))
            with eosdb.connect(place / "shop.db", create=False) as db:
                assert db.verify().ok
                found.append(committed_values(db, TP))
        return found


PRELUDE = """
import contextlib, errno, os, pathlib
import eosdb
from tests.chaos.failing_worker import fail_at
TP = eosdb.TopicPartition("t", 0)
def fail(on):
    fail_at(0 if on else -1, errno.EIO, for_good=True, kinds="s")
def append(db, value):
    return db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=value)]))
def refused(function, *arguments):
    try:
        function(*arguments)
    except eosdb.StorageError as error:
        return str(error)
    raise AssertionError("it was not refused")
db = eosdb.connect({path!r})
with contextlib.suppress(eosdb.TopicAlreadyExistsError):
    db.admin.create_topic("t")
def die():
    os._exit(0)
"""


@pytest.fixture
def child(tmp_path: Path, disk: Path) -> Child:
    return Child(tmp_path, disk)


def test_what_is_acknowledged_after_a_failed_sync_survives_a_power_cut(
    child: Child, tmp_path: Path
) -> None:
    """The variant that somebody is told of: a send fails, then a transaction and twenty sends succeed."""
    child.run("""
producer = db.producer(transactional_id="a")
producer.init_transactions()
producer.begin_transaction()
producer.send("t", b"unsynced", partition=0)
producer.flush()
fail(True)
assert "failed to sync" in refused(append, db, b"refused")
assert "nothing more is written" in refused(append, db, b"refused")
fail(False)
producer.commit_transaction()
for i in range(20):
    append(db, b"%d" % i)
die()
""")
    expected = [b"unsynced", *(b"%d" % i for i in range(20))]
    assert child.values_after_power_cuts(tmp_path, 10) == [expected] * 10


def test_a_sync_that_failed_in_a_checkpoint_stops_the_next_write(
    child: Child, tmp_path: Path
) -> None:
    """The silent variant: nobody waits for a checkpoint."""
    child.run("""
producer = db.producer(transactional_id="a")
producer.init_transactions()
producer.begin_transaction()
producer.send("t", b"unsynced", partition=0)
producer.flush()
fail(True)
db._store.checkpoint()
assert "nothing more is written" in refused(append, db, b"refused")
fail(False)
producer.commit_transaction()
append(db, b"last")
die()
""")
    assert child.values_after_power_cuts(tmp_path, 10) == [[b"unsynced", b"last"]] * 10


def test_another_process_does_not_acknowledge_behind_it_either(
    child: Child, tmp_path: Path
) -> None:
    child.run("""
other = eosdb.connect(db.path)
fail(True)
refused(append, other, b"refused")
assert "nothing more is written" in refused(append, db, b"refused")
with contextlib.suppress(eosdb.StorageError):
    other.close()
fail(False)
append(db, b"last")
die()
""")
    assert child.values_after_power_cuts(tmp_path, 5) == [[b"last"]] * 5


def test_a_sync_that_says_that_the_disk_is_full_is_a_failed_sync_and_every_process_learns_of_it(
    child: Child, tmp_path: Path
) -> None:
    child.run("""
other = eosdb.connect(db.path)
fail_at(0, errno.ENOSPC, for_good=True, kinds="s")
try:
    append(other, b"refused")
except eosdb.StorageError as error:
    assert error.outcome == "unknown", error
assert "nothing more is written" in refused(append, db, b"refused")
try:
    append(db, b"refused")
except eosdb.StorageError as error:
    assert error.outcome == "not written", error
with contextlib.suppress(eosdb.StorageError):
    other.close()
fail_at(-1)
append(db, b"last")
die()
""")
    assert child.values_after_power_cuts(tmp_path, 5) == [[b"last"]] * 5


def test_a_block_of_begin_whose_sync_fails_is_undone_and_stops_the_next_write(
    child: Child, tmp_path: Path
) -> None:
    child.run("""
def block():
    with db.begin() as tx:
        tx.publish("t", b"undone")
fail(True)
assert "failed to sync" in refused(block)
assert "nothing more is written" in refused(block)
fail(False)
append(db, b"last")
die()
""")
    assert child.values_after_power_cuts(tmp_path, 5) == [[b"last"]] * 5


def test_a_statement_of_the_users_own_whose_sync_fails_stops_the_next_write(child: Child) -> None:
    child.run("""
import sqlalchemy
fail(True)
with contextlib.suppress(sqlalchemy.exc.OperationalError), db.engine.begin() as connection:
    connection.exec_driver_sql("CREATE TABLE mine (x)")
assert "nothing more is written" in refused(append, db, b"refused")
fail(False)
append(db, b"last")
die()
""")


def test_closing_on_a_failing_disk_says_so_and_the_next_opening_makes_it_good(
    child: Child, tmp_path: Path
) -> None:
    child.run("""
for i in range(5):
    append(db, b"%d" % i)
fail(True)
try:
    db.close()
except eosdb.StorageError as error:
    assert "failed to sync" in str(error) and error.outcome == "written", error
else:
    raise AssertionError
assert pathlib.Path(db.path + "-wal").stat().st_size
fail(False)
""")
    child.run("""
append(db, b"last")
die()
""")
    assert (
        child.values_after_power_cuts(tmp_path, 5)
        == [[*(b"%d" % i for i in range(5)), b"last"]] * 5
    )


def test_a_new_file_on_a_failing_disk_is_refused_with_the_reason(child: Child) -> None:
    child.run("""
fail(True)
said = refused(eosdb.connect, db.path + ".new")
assert "sync" in said, said
fail(False)
eosdb.connect(db.path + ".new").close()
die()
""")


def test_what_the_system_has_dropped_is_not_written_over_it(db_path: Path) -> None:
    """Pages that were taken for clean may have been read anew from the disk: then it says what is lost."""
    db = eosdb.connect(db_path)
    db.admin.create_topic("t")
    for _ in range(3):
        db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"v")]))
    wal = Path(f"{db_path}-wal")
    with open(wal, "r+b") as file:
        file.seek(wal.stat().st_size - 3_000)
        file.write(b"\xff" * 1_000)
    mutex = WriterMutex(f"{db_path}-lock", 1_000)
    mutex.note_sync(failed=True)
    mutex.close()
    with pytest.raises(eosdb.CorruptDatabaseError, match="no longer has it"):
        db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"refused")]))
    with pytest.raises(eosdb.CorruptDatabaseError, match="no longer has it"):
        db.close()
