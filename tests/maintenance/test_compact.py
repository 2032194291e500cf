"""A file is written anew while others have it open, and whatever happens on the way it is whole."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.model.failpoints import Failpoint, watched
from tests.crash.children import environment
from tests.readers import committed_values, dump_state
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)
COUNT = 400


def fill(db: eosdb.Database) -> list[bytes]:
    """A file half of which is free; what is in the other half."""
    db.admin.create_topic("t")
    db.admin.create_topic("gone")
    values = [b"%d " % i + b"v" * 3_000 for i in range(COUNT)]
    for i in range(0, COUNT, 100):
        for topic in ("t", "gone"):
            records = [Record(value=value) for value in values[i : i + 100]]
            db.broker.append(TopicPartition(topic, 0), RecordBatch(records))
    db.admin.delete_topic("gone")
    db._store.checkpoint()
    return values


def enlarge(db: eosdb.Database) -> None:
    """More than SQLite keeps in memory, so that something can be seen of the file that it writes."""
    for _ in range(10):
        db.broker.append(TP, RecordBatch([Record(value=b"v" * 3_000)] * 200))
    db._store.checkpoint()


def pragma(path: Path, name: str) -> object:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]


def leftovers(path: Path) -> list[str]:
    return [name for name in os.listdir(path.parent) if "unfinished" in name]


def test_a_file_shrinks_and_holds_what_it_held(db_path: Path, clock: eosdb.ManualClock) -> None:
    with eosdb.connect(db_path, clock=clock) as db:
        values = fill(db)
        before, size = dump_state(db_path), db_path.stat().st_size
        done = db.compact()
        assert (done.bytes_before, done.held_by) == (size, "")
        assert done.bytes_after == db_path.stat().st_size < 0.6 * size
        assert dump_state(db_path) == before
        assert committed_values(db, TP) == values
        assert db.producer().send("t", b"next").result().offset == COUNT
        assert db.verify().ok
    assert pragma(db_path, "auto_vacuum") == 2
    assert pragma(db_path, "journal_mode") == "wal"
    assert pragma(db_path, "freelist_count") == 0
    assert leftovers(db_path) == []


WRITES = """
import sys, eosdb
db = eosdb.connect(sys.argv[1])
producer = db.producer(transactional_id="other")
producer.init_transactions()
consumer = db.consumer("g", auto_offset_reset="earliest")
consumer.assign([eosdb.TopicPartition("t", 0)])
seen = 0
for line in sys.stdin:
    with producer.transaction():
        future = producer.send("t", line.strip())
    while batch := consumer.poll():
        seen += len(batch)
    print(future.result().offset, seen, flush=True)
db.close()
"""


@pytest.mark.process
def test_other_programs_that_have_the_file_open_go_on(db: eosdb.Database, db_path: Path) -> None:
    """With what they remember of it and the statements that they have prepared."""
    fill(db)
    with subprocess.Popen(
        [sys.executable, "-c", WRITES, str(db_path)],
        cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        assert other.stdin is not None
        assert other.stdout is not None
        for number in range(3):
            other.stdin.write(f"value {number}\n")
            other.stdin.flush()
            # A marker follows each value.
            assert other.stdout.readline() == f"{COUNT + 2 * number} {COUNT + number + 1}\n"
            db.compact()
        other.stdin.close()
        assert other.wait() == 0
    assert committed_values(db, TP)[COUNT:] == [b"value 0", b"value 1", b"value 2"]
    assert db.verify().ok


def test_a_reader_keeps_its_snapshot_and_is_named(db: eosdb.Database, db_path: Path) -> None:
    values = fill(db)
    size = db_path.stat().st_size
    with contextlib.closing(sqlite3.connect(db_path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        query = "SELECT count(*), sum(length(value)) FROM records"
        before = reader.execute(query).fetchone()
        done = db.compact()
        assert str(os.getpid()) in done.held_by
        assert done.bytes_after == db_path.stat().st_size >= 0.9 * size
        assert reader.execute(query).fetchone() == before
        reader.execute("COMMIT")
        assert reader.execute(query).fetchone() == before
    db._store.checkpoint()
    assert db_path.stat().st_size < 0.6 * size
    assert committed_values(db, TP) == values


def test_progress_moves_through_both_steps(db: eosdb.Database) -> None:
    fill(db)
    enlarge(db)
    seen: list[tuple[int, int]] = []
    db.compact(on_progress=lambda done, total: seen.append((done, total)))
    shares = [done / total for done, total in seen]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == 1
    assert sum(0 < share < 0.5 for share in shares) >= 2
    assert sum(0.5 <= share < 1 for share in shares) >= 1


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, ZeroDivisionError])
def test_whoever_interrupts_it_finds_everything_as_it_was(
    db: eosdb.Database, db_path: Path, share: float, raised: type[BaseException]
) -> None:
    fill(db)
    enlarge(db)
    values = committed_values(db, TP)
    before, size = dump_state(db_path), db_path.stat().st_size

    def stop(done: int, total: int) -> None:
        if done >= share * total:
            raise raised

    with pytest.raises(raised):
        db.compact(on_progress=stop)
    assert dump_state(db_path) == before
    assert db_path.stat().st_size == size
    assert leftovers(db_path) == []
    assert committed_values(db, TP) == values
    assert db.producer().send("t", b"next").result().offset == len(values)
    assert db.verify().ok


POINTS = [Failpoint.COMPACT_WRITTEN, Failpoint.COMPACT_COPYING, Failpoint.COMPACT_COMMITTED]
COMPACT = "import sys, eosdb; eosdb.connect(sys.argv[1]).compact()"


@pytest.mark.process
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.value)
def test_a_kill_leaves_the_old_file_or_the_new_one(
    db_path: Path, clock: eosdb.ManualClock, point: Failpoint
) -> None:
    with eosdb.connect(db_path, clock=clock) as db:
        values = fill(db)
        before, size = dump_state(db_path), db_path.stat().st_size
        killed = subprocess.run(
            [sys.executable, "-c", COMPACT, str(db_path)],
            cwd=ROOT, env=environment(EOSDB_FAILPOINT=point.value), check=False,
        )  # fmt: skip
        assert killed.returncode == -signal.SIGKILL
        assert bool(leftovers(db_path)) is (point is not Failpoint.COMPACT_COMMITTED)
        assert dump_state(db_path) == before, "who has it open goes on"
        assert db.verify().ok
    with eosdb.connect(db_path, clock=clock) as db:
        assert leftovers(db_path) == []
        assert committed_values(db, TP) == values
        is_new = db_path.stat().st_size < 0.6 * size
        assert is_new is (point is Failpoint.COMPACT_COMMITTED)
        assert db.compact().bytes_after < 0.6 * size


def test_a_foreign_writer_between_the_two_steps_is_not_overwritten(
    db: eosdb.Database, db_path: Path
) -> None:
    fill(db)

    def write(point: Failpoint) -> None:
        if point is Failpoint.COMPACT_WRITTEN:
            with contextlib.closing(sqlite3.connect(db_path, isolation_level=None)) as foreign:
                foreign.execute("CREATE TABLE mine (x)")

    with watched(write), pytest.raises(eosdb.DatabaseLockedError, match="another program"):
        db.compact()
    assert list(db.query("SELECT * FROM mine").rows) == []
    assert db.verify().ok


def test_row_numbers_of_the_users_own_tables_stay(db: eosdb.Database, db_path: Path) -> None:
    fill(db)
    with contextlib.closing(sqlite3.connect(db_path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE mine (x)")
        connection.execute("INSERT INTO mine VALUES ('a'), ('b'), ('c')")
        connection.execute("DELETE FROM mine WHERE x = 'b'")
    db.compact()
    assert list(db.query("SELECT rowid, x FROM mine").rows) == [(1, "a"), (3, "c")]
