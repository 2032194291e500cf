"""A file system without an inode left, and one that has become read-only: the errors say so, nothing hangs
or stays open, and it goes on as soon as it can."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from tests.chaos import power
from tests.chaos.test_power_cuts import disk
from tests.programs import ended
from tests.readers import committed_values
from tests.store.test_disk_full import mounted
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

__all__ = ["disk"]
TP = TopicPartition("t", 0)
INODES = 12


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A file system for a few files."""
    found = tmp_path / "few"
    found.mkdir()
    with mounted(found, 20 * 1024 * 1024, f",nr_inodes={INODES}"):
        yield found


class Inodes:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def leave(self, free: int) -> None:
        """All others are taken by empty files."""
        self.free()
        for number in range(os.statvfs(self._folder).f_ffree - free):
            (self._folder / f"taken{number}").touch()

    def free(self) -> None:
        for found in self._folder.glob("taken*"):
            found.unlink()


def open_below(folder: Path) -> list[str]:
    """The files that this process has open there."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if target.startswith(f"{folder}/"):
            found.append(target)
    return found


def test_whatever_inodes_there_are_a_file_is_opened_or_refused(folder: Path) -> None:
    """The file itself, its lock, its WAL and its shared memory: each of them may be the one too many."""
    inodes, path = Inodes(folder), folder / "shop.db"
    refused = 0
    for round_ in range(2):  # A new file, and one that is there.
        for free in range(5):
            inodes.leave(free)
            try:
                eosdb.connect(path).close()
            except eosdb.DatabaseFullError as error:
                refused += 1
                assert "no inode left" in str(error), free
                assert "nothing was written" in str(error)
            assert open_below(folder) == [], (round_, free)
    assert refused >= 4
    inodes.free()
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
        assert db.producer().send("t", b"v").result().offset == 0
        assert db.verify().ok


COPIES: dict[str, Callable[[eosdb.Database, Path], object]] = {
    "compact": lambda db, folder: db.compact(),
    "backup": lambda db, folder: db.backup(folder / "copy.db"),
    "restore_to": lambda db, folder: db.restore_to(folder / "copy.db", position=2),
    "publish": lambda db, folder: db.publish_copy(folder / "published.db"),
}


def test_a_file_that_is_open_needs_no_more_inodes(folder: Path) -> None:
    inodes = Inodes(folder)
    with eosdb.connect(folder / "shop.db") as db:
        db.admin.create_topic("t")
        inodes.leave(0)
        producer = db.producer(transactional_id="a")
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"one")
        with db.begin() as tx:
            tx.publish("t", b"two")
        consumer = db.consumer(group_id="g", auto_offset_reset="earliest")
        consumer.subscribe(["t"])
        while len(committed_values(db, TP)) > 2 or not consumer.poll(1_000):
            pass
        consumer.close()
        db.housekeeping()
        db.rebuild()
        for name, copy in COPIES.items():
            with pytest.raises(eosdb.DatabaseFullError, match="no inode left"):
                copy(db, folder)
            assert not list(folder.glob("*unfinished*")), name
        eosdb.connect(folder / "shop.db").close()
        inodes.free()
        db.compact()
        assert committed_values(db, TP) == [b"one", b"two"]
        assert db.verify().ok


def test_a_file_system_that_is_mounted_read_only(folder: Path) -> None:
    path = folder / "shop.db"
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
        db.producer().send("t", b"v").result()
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    for name in ("shop.db", "new.db"):
        with pytest.raises(eosdb.ReadOnlyDatabaseError, match="read_only=True"):
            eosdb.connect(folder / name)
    with eosdb.connect(path, read_only=True) as db:
        assert committed_values(db, TP) == [b"v"]
    assert open_below(folder) == []
    subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
    with eosdb.connect(path) as db:
        assert db.producer().send("t", b"w").result().offset == 1


BECOMES_READ_ONLY = """
import ctypes, errno, sys
import eosdb
from eosdb.errors import is_refused_by_file
path, disk = sys.argv[1], ctypes.CDLL(None)
TP = eosdb.TopicPartition("t", 0)
db = eosdb.connect(path)
db.admin.create_topic("t")
def append(value):
    assert db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=value)])).error is None
def block():
    with db.begin() as tx:
        tx.publish("t", b"never")
append(b"before")
producer = db.producer(transactional_id="a")
producer.init_transactions()
producer.begin_transaction()
producer.send("t", b"in a transaction")
producer.flush()
disk.disk_fail_at(0, errno.EROFS, 1, b"wtar")
for write in (
    lambda: append(b"never"),
    block,
    lambda: db.broker.offset_commit("g", {TP: eosdb.OffsetAndMetadata(1)}),
    lambda: db.admin.create_topic("u"),
    db.rebuild,
    db.housekeeping,
):
    try:
        write()
    except eosdb.ReadOnlyDatabaseError as error:
        assert "read-only" in str(error).lower() and "nothing was written" in str(error), error
        assert is_refused_by_file(error), "what was sent behind it is not carried out before it"
    else:
        raise AssertionError("it was not refused")
assert db.query("SELECT value FROM committed_records").all() == [(b"before",)], "reading goes on"
with eosdb.connect(path, read_only=True) as reader:
    assert reader.info()["records"] == 2
disk.disk_fail_at(-1, 0, 0, b"")
producer.commit_transaction()
append(b"after")
db.close()
"""


def test_a_file_system_that_becomes_read_only_under_a_writer(tmp_path: Path, disk: Path) -> None:
    """As ext4 does after an error of the disk; nobody has to open the file again when it is over."""
    watched = tmp_path / "watched"
    watched.mkdir()
    path = watched / "shop.db"
    environment = power.environment(disk, watched, tmp_path / "log")
    done = ended([sys.executable, "-c", BECOMES_READ_ONLY, str(path)], env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    with eosdb.connect(path) as db:
        assert committed_values(db, TP) == [b"before", b"in a transaction", b"after"]
        assert db.verify().ok
