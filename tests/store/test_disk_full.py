"""A disk that fills up: the named error, nothing lost, and on it goes when there is room again."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.model.failpoints import Failpoint, watched
from eosdb.store.file.failures import translate
from eosdb.store.file.locks import WriterMutex
from tests.concurrency.worker import threads
from tests.programs import ended
from tests.readers import committed_values, dump_state
from tests.store.schema.later import UPGRADED, Old, make_package

pytestmark = pytest.mark.process

TP = TopicPartition("t", 0)
SIZE = 3 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB. Where it cannot be mounted, the limited-file tests stand in for it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, SIZE):
        yield folder


@contextlib.contextmanager
def mounted(folder: Path, size: int, more: str = "") -> Iterator[None]:
    """A file system of so many bytes at the folder."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}{more}", "tmpfs", str(folder)]
    done = ended(mount)
    if done.returncode != 0:
        pytest.skip(f"NOT TESTED: no file system can be mounted here ({done.stderr.strip()})")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(db: eosdb.Database, producer: eosdb.Producer) -> list[bytes]:
    """Send until the disk is full; what was acknowledged."""
    acknowledged: list[bytes] = []
    for i in range(20_000):
        value = b"%06d" % i + b"x" * 1_000
        future = producer.send("t", value)
        if future.exception() is not None:
            assert isinstance(future.exception(), eosdb.DatabaseFullError)
            return acknowledged
        acknowledged.append(value)
    raise AssertionError("the disk never filled up")


def test_a_full_disk_loses_nothing_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * (SIZE // 3))
    path = small_disk / "full.db"
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
        producer = db.producer()
        acknowledged = fill(db, producer)
        assert acknowledged
        assert committed_values(db, TP) == acknowledged
        with pytest.raises(eosdb.DatabaseFullError, match="make room"):
            db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"y" * 100_000)]))
        ballast.unlink()
        assert producer.send("t", b"again").result().offset == len(acknowledged)
        assert db.verify().ok
    with eosdb.connect(path) as db:
        assert committed_values(db, TP) == [*acknowledged, b"again"]


def test_a_transaction_cut_off_by_a_full_disk_can_be_ended(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * (SIZE // 3))
    with eosdb.connect(small_disk / "full.db") as db:
        db.admin.create_topic("t")
        producer = db.producer(transactional_id="a")
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(eosdb.DatabaseFullError):
            for _ in range(20_000):
                producer.send("t", b"x" * 1_000)
        ballast.unlink()
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"kept")
        assert committed_values(db, TP) == [b"kept"]
        assert db.verify().ok


@pytest.mark.parametrize(
    ("committed", "flushed"),
    [(True, False), (True, True), (False, True)],
    ids=["commit in one turn with the records", "commit", "abort"],
)
def test_a_transaction_that_is_decided_when_the_disk_is_full_is_answered_with_the_decision(
    small_disk: Path, committed: bool, flushed: bool
) -> None:
    """There is room for the decision and none for the markers; whoever writes next completes it."""
    path = small_disk / "full.db"
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
        producer = db.producer(transactional_id="a")
        producer.init_transactions()
        token = producer.begin_transaction()
        producer.send("t", b"v" * 30_000)
        if flushed:
            producer.flush()

        def fill_up(point: Failpoint) -> None:
            if point is Failpoint.END_TXN_DECIDED:
                take_all(small_disk)

        with watched(fill_up):
            (producer.commit_transaction if committed else producer.abort_transaction)()
        assert db.outcome(token) == ("committed" if committed else "aborted")
        assert committed_values(db, TP) == [], "no marker is written yet"
        with pytest.raises(eosdb.DatabaseFullError, match="nothing was written"):
            db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"y" * 9_000)]))
        (small_disk / "ballast").unlink()
        with producer.transaction():
            producer.send("t", b"next")
        assert committed_values(db, TP) == [b"v" * 30_000] * committed + [b"next"]
        assert db.verify().ok


def test_housekeeping_that_finds_no_room_does_not_fail_the_request_that_came_by(
    small_disk: Path,
) -> None:
    clock = eosdb.ManualClock(1_000_000)
    with eosdb.connect(small_disk / "full.db", clock=clock) as db:
        db.admin.create_topic("t")
        clock.advance(10_000_000)

        def fill_up(point: Failpoint) -> None:
            if point is Failpoint.UNIT_COMMITTED:
                take_all(small_disk)

        with watched(fill_up):
            assert db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"v")])).error is None
        (small_disk / "ballast").unlink()
        assert committed_values(db, TP) == [b"v"]


@pytest.mark.parametrize("way", ["append", "send", "append_once"])
def test_what_is_stored_is_answered_so_although_there_is_no_room_for_notes(
    small_disk: Path, way: str
) -> None:
    """When housekeeping last began is noted in the lock file, behind the commit: an OSError came of it, and
    a program that repeats has doubled."""
    clock = eosdb.ManualClock(1_000_000)
    path = small_disk / "full.db"
    eosdb.connect(path, clock=clock).close()
    os.truncate(f"{path}-lock", 0)  # As an earlier version has left it.
    take_all(small_disk).unlink()
    with eosdb.connect(path, clock=clock) as db:
        db.admin.create_topic("t")
        producer = db.producer()
        producer.send("t", b"first").result()

        def fill_up(point: Failpoint) -> None:
            if point is Failpoint.UNIT_COMMITTED:
                take_all(small_disk)

        for number in (1, 2):
            clock.advance(10_000_000)
            os.truncate(f"{path}-lock", 0)
            with watched(fill_up):
                if way == "append":
                    db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"v")]))
                elif way == "send":
                    assert producer.send("t", b"v").result().offset == number
                else:
                    db.append_once("s", number, {TP: [eosdb.Record(value=b"v")]})
            (small_disk / "ballast").unlink()
        assert committed_values(db, TP) == [b"first", b"v", b"v"]
        assert db.verify().ok


def test_the_lock_file_has_its_room_before_it_is_needed(small_disk: Path) -> None:
    """So that every process learns of a failed sync also where nothing is left."""
    path = small_disk / "full.db"
    with eosdb.connect(path):
        mine, others = (WriterMutex(f"{path}-lock", 1_000) for _ in range(2))
        take_all(small_disk)
        mine.note_sync(failed=True)
        assert others.has_sync_failed()
        others.note_sync(failed=False)
        for mutex in (mine, others):
            mutex.close()
        (small_disk / "ballast").unlink()


def test_there_is_no_room_even_for_a_new_file(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"\0" * (SIZE - 8192))
    with pytest.raises(eosdb.DatabaseFullError):
        eosdb.connect(small_disk / "new.db")
    (small_disk / "ballast").unlink()
    with eosdb.connect(small_disk / "new.db") as db:
        assert db.verify().ok


def test_whatever_sqlite_calls_a_full_disk_where_it_makes_the_index_of_the_wal(
    small_disk: Path,
) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMOPEN
    told = translate(error, str(small_disk / "full.db"))
    assert (type(told), "make room" in str(told)) == (eosdb.StorageError, True)
    take_all(small_disk)
    told = translate(error, str(small_disk / "full.db"))
    assert (type(told), "make room" in str(told)) == (eosdb.DatabaseFullError, True)


@pytest.mark.parametrize("room", range(0, 504_000, 42_000))
def test_a_file_is_made_whole_or_not_at_all_whatever_room_there_is(
    small_disk: Path, room: int
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * (SIZE - room))
    try:
        eosdb.connect(small_disk / "new.db").close()
    except eosdb.DatabaseFullError:
        assert room < 462_000
    ballast.unlink()
    with eosdb.connect(small_disk / "new.db") as db:
        db.admin.create_topic("t")
        assert db.verify().ok


def take_all(disk: Path) -> Path:
    """A file that takes whatever room is left, to the last byte."""
    ballast = disk / "ballast"
    with open(ballast, "ab", buffering=0) as file, contextlib.suppress(OSError):
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    return ballast


def store_some(path: Path) -> eosdb.Database:
    db = eosdb.connect(path)
    db.admin.create_topic("t")
    for i in range(60):
        db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"%03d" % i + b"x" * 1_000)]))
    return db


def test_the_wal_cannot_be_copied_into_the_file(small_disk: Path) -> None:
    """Neither on demand nor on close; all of it stays in the WAL, and is copied when there is room."""
    path = small_disk / "full.db"
    db = store_some(path)
    ballast = take_all(small_disk)
    size = path.stat().st_size
    db._store.checkpoint()
    assert path.stat().st_size == size, "the file could not grow"
    assert len(committed_values(db, TP)) == 60
    assert db.verify().ok
    db.close()
    assert path.stat().st_size == size
    with eosdb.connect(path) as db:
        assert len(committed_values(db, TP)) == 60, (
            "there is no room, but it can be opened and read"
        )
        with pytest.raises(eosdb.DatabaseFullError):
            db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"y" * 1_000_000)]))
    ballast.unlink()
    with eosdb.connect(path) as db:
        assert db.producer().send("t", b"again").result().offset == 60
    assert path.stat().st_size > size
    assert not Path(f"{path}-wal").exists()
    with eosdb.connect(path, read_only=True) as db:
        assert len(committed_values(db, TP)) == 61
        assert db.verify().ok


WORKS = {
    "rebuild": lambda db, disk: db.rebuild(),
    "take_snapshot": lambda db, disk: db.take_snapshot(),
    "backup": lambda db, disk: db.backup(disk / "copy.db"),
    "restore_to": lambda db, disk: db.restore_to(disk / "copy.db", position=3),
    "create_topic": lambda db, disk: db.admin.create_topic("u", partitions=50),
    "init_producer_id": lambda db, disk: db.broker.init_producer_id("a"),
}


@pytest.mark.parametrize("work", WORKS)
def test_work_that_finds_no_room_leaves_everything_as_it_was(small_disk: Path, work: str) -> None:
    path = small_disk / "full.db"
    with store_some(path) as db:
        ballast = take_all(small_disk)
        before, files = dump_state(path), sorted(os.listdir(small_disk))
        with pytest.raises(eosdb.DatabaseFullError, match="make room"):
            WORKS[work](db, small_disk)
        assert dump_state(path) == before
        assert sorted(os.listdir(small_disk)) == files, "nothing unfinished is left behind"
        ballast.unlink()
        WORKS[work](db, small_disk)
        assert db.verify().ok


@pytest.mark.parametrize("room", [0, 150_000, 400_000])
def test_a_compaction_says_how_much_room_it_needs(small_disk: Path, room: int) -> None:
    """Before it begins, and when the room that was there is taken meanwhile."""
    path = small_disk / "full.db"
    with store_some(path) as db:
        before = dump_state(path)
        if room == 0:
            ballast = take_all(small_disk)
            with pytest.raises(eosdb.DatabaseFullError, match=r"needs \d+ bytes .* found 0"):
                db.compact()
        else:
            ballast = small_disk / "ballast"

            def fill_up(done: int, total: int) -> None:
                if done == 0 and not ballast.exists():
                    os.truncate(take_all(small_disk), ballast.stat().st_size - room)

            with pytest.raises(eosdb.DatabaseFullError, match=r"disk is full.*needs \d+ bytes"):
                db.compact(on_progress=fill_up)
        assert dump_state(path) == before
        assert sorted(name for name in os.listdir(small_disk) if "unfinished" in name) == []
        ballast.unlink()
        db.compact()
        assert dump_state(path) == before
        assert db.verify().ok


def test_threads_that_share_a_commit_for_which_there_is_no_room(small_disk: Path) -> None:
    """What one of them had acknowledged is there; each of them is told of its own failure."""
    with eosdb.connect(small_disk / "full.db") as db:
        db.admin.create_topic("t")
        acknowledged: list[bytes] = []

        def work(number: int) -> None:
            who = db.broker.init_producer_id()
            for i in range(20_000):
                value = b"%d %d " % (number, i) + b"x" * 3_000
                try:
                    db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=value)], *who, i))
                except eosdb.DatabaseFullError:
                    return
                acknowledged.append(value)

        threads(4, work)
        assert sorted(committed_values(db, TP)) == sorted(acknowledged)  # type: ignore[type-var]
        assert db.verify().ok


@pytest.mark.parametrize("room", [0, 45_000])
def test_an_upgrade_for_which_there_is_no_room(small_disk: Path, tmp_path: Path, room: int) -> None:
    old = Old(tmp_path, make_package(tmp_path / "later"))
    old.path = Path(shutil.copy(old.path, small_disk))
    ballast = take_all(small_disk)
    os.truncate(ballast, ballast.stat().st_size - room)
    _, (said,), _ = old.upgrade()
    assert said.startswith("DatabaseFullError: ")
    ballast.unlink()
    old.check_unchanged()
    assert old.upgrade() == (0, [UPGRADED], "")


LIMITED = """
import resource, signal, sys
import eosdb
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
db = eosdb.connect(sys.argv[1])
db.admin.create_topic("t")
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
stored = 0
try:
    while True:
        db.broker.append(eosdb.TopicPartition("t", 0), eosdb.RecordBatch([eosdb.Record(value=b"x" * 999)]))
        stored += 1
except eosdb.DatabaseFullError:
    pass
assert db.broker.offsets(eosdb.TopicPartition("t", 0)).log_end_offset == stored
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert db.producer().send("t", b"again").result().offset == stored > 5
assert db.verify().ok
db.close()
"""


def test_a_file_that_may_not_grow_is_a_full_disk(db_path: Path) -> None:
    done = ended([sys.executable, "-c", LIMITED, str(db_path)])
    assert done.returncode == 0, done.stderr
