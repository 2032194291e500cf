"""A disk that fails to sync: nothing is acknowledged that a power cut would take.

Method: a child's syncs are made to fail by a library that is preloaded (tests/chaos/disk.c); the child
is this file's `python -m`. Power cuts in numbers are in tests/chaos.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.store.file.locks import WriterMutex
from eosdb.store.wal import renew
from eosdb.system.road import road
from tests.chaos import power
from tests.chaos.test_power_cuts import cut, disk
from tests.programs import ended
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
        done = ended([sys.executable, "-c", text], env=self._environment, cwd=ROOT, timeout=120)
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


BEGUN = """
producer = db.producer(transactional_id="a")
producer.init_transactions()
producer.begin_transaction()
producer.send("t", b"unsynced", partition=0)
producer.flush()
"""
PROGRAMS = {
    # Somebody is told of it: a send fails, then a transaction and twenty sends succeed.
    "what is acknowledged after a failed sync survives a power cut": (
        BEGUN
        + """
fail(True)
assert "failed to sync" in refused(append, db, b"refused")
assert "no more is written" in refused(append, db, b"refused")
fail(False)
producer.commit_transaction()
for i in range(20):
    append(db, b"%d" % i)
""",
        [b"unsynced", *(b"%d" % i for i in range(20))],
    ),
    # Nobody waits for a checkpoint.
    "a sync that failed in a checkpoint stops the next write": (
        BEGUN
        + """
fail(True)
db._store.checkpoint()
assert "no more is written" in refused(append, db, b"refused")
fail(False)
producer.commit_transaction()
append(db, b"last")
""",
        [b"unsynced", b"last"],
    ),
    "another process does not acknowledge behind it either": (
        """
other = eosdb.connect(db.path)
fail(True)
refused(append, other, b"refused")
assert "no more is written" in refused(append, db, b"refused")
with contextlib.suppress(eosdb.StorageError):
    other.close()
fail(False)
append(db, b"last")
""",
        [b"last"],
    ),
    "a sync that says that the disk is full is a failed sync and every process learns of it": (
        """
other = eosdb.connect(db.path)
fail_at(0, errno.ENOSPC, for_good=True, kinds="s")
def outcome(database):
    try:
        append(database, b"refused")
    except eosdb.StorageError as error:
        return error.outcome
assert outcome(other) == "unknown"
assert "no more is written" in refused(append, db, b"refused")
assert outcome(db) == "not written"
with contextlib.suppress(eosdb.StorageError):
    other.close()
fail_at(-1)
append(db, b"last")
""",
        [b"last"],
    ),
    "a block of begin whose sync fails is undone and stops the next write": (
        """
def block():
    with db.begin() as tx:
        tx.publish("t", b"undone")
fail(True)
assert "failed to sync" in refused(block)
assert "no more is written" in refused(block)
fail(False)
append(db, b"last")
""",
        [b"last"],
    ),
    "a statement of the users own whose sync fails stops the next write": (
        """
import sqlalchemy
fail(True)
with contextlib.suppress(sqlalchemy.exc.OperationalError), db.engine.begin() as connection:
    connection.exec_driver_sql("CREATE TABLE mine (x)")
assert "no more is written" in refused(append, db, b"refused")
fail(False)
append(db, b"last")
""",
        [b"last"],
    ),
}
"""Each with what a consumer finds after the power was cut."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_is_acknowledged_that_a_power_cut_would_take(
    child: Child, tmp_path: Path, program: str
) -> None:
    code, expected = PROGRAMS[program]
    child.run(code + "die()\n")
    assert child.values_after_power_cuts(tmp_path, 5) == [expected] * 5


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
    with pytest.raises(eosdb.CorruptDatabaseError, match="and they are lost"):
        db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"refused")]))
    with pytest.raises(eosdb.CorruptDatabaseError, match="and they are lost"):
        db.close()


def test_a_renewed_wal_is_compared_with_what_the_disk_has(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page cache has what was written, so it is dropped before it is read again."""

    def drop_cached(descriptor: int) -> None:
        """The disk has lost the last bytes of the WAL."""
        os.pwrite(descriptor, b"\xff" * 8, os.fstat(descriptor).st_size - 8)

    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        whole = Path(f"{db_path}-wal").read_bytes()
        monkeypatch.setattr(road, "drop_cached", drop_cached)
        with pytest.raises(eosdb.StorageError, match="disk failed to sync"):
            renew(str(db_path))
        Path(f"{db_path}-wal").write_bytes(whole)
