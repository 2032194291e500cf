"""A program may read the files of its own open database, which drops SQLite's POSIX locks on them.

Another SQLite client still sees that the database is open: it leaves the WAL where it is. On the portable
road the system has no lock for that (decisions/0061).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from click.testing import CliRunner

import eosdb
from eosdb.cli.main import main
from eosdb.store.file import presence
from eosdb.system.road import road
from tests.programs import ended

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(road.IS_PORTABLE, reason="macOS shows programs no such locks"),
]
OTHER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("SELECT count(*) FROM topics").fetchone())
connection.close()
"""
KILLED = """
import eosdb, os, sys
db = eosdb.connect(sys.argv[1])
db.admin.create_topic("t")
db.producer().send("t", "1").result()
os._exit(0)
"""
SENDING = """
import eosdb, shutil, sys
db = eosdb.connect(sys.argv[1])
producer = db.producer()
for number in range(1_000_000):
    producer.send("t", str(number)).result()
    print(number, flush=True)
    if number == 3:
        shutil.copytree(sys.argv[2], sys.argv[3])
    if number % 5 == 4 and sys.stdin.readline() == "close\\n":
        db.close()
        break
"""


def look(path: Path) -> None:
    done = ended([sys.executable, "-c", OTHER, str(path)])
    assert done.returncode == 0, done.stderr


def values(db: eosdb.Database) -> list[str]:
    return [value for (value,) in db.query("SELECT CAST(value AS TEXT) FROM committed_records")]


def wal(path: Path) -> Path:
    return Path(f"{path}-wal")


def copy_folder(path: Path) -> None:
    shutil.copytree(path.parent, f"{path.parent}-copy")


def describe(path: Path) -> None:
    CliRunner().invoke(main, ["topics", "describe", str(path)], env={"EOSDB_DB": "other.db"})


USES: list[Callable[[Path], object]] = [Path.read_bytes, copy_folder, describe]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("use", USES)
def test_another_client_leaves_the_wal_of_a_program_that_has_read_its_own_file(
    use: Callable[[Path], object], read_only: bool, db_path: Path
) -> None:
    assert ended([sys.executable, "-c", KILLED, str(db_path)]).returncode == 0
    identity = wal(db_path).stat().st_ino
    with eosdb.connect(db_path, read_only=read_only) as db:
        assert values(db) == ["1"]
        use(db_path)
        with open(f"{db_path}-shm", "r+b") as shared, pytest.raises(BlockingIOError):
            # Another client that got this lock would empty the shared memory.
            fcntl.lockf(shared, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)
        look(db_path)
        if not read_only:
            db.producer().send("t", "2").result()
            look(db_path)
        assert wal(db_path).stat().st_ino == identity
        assert values(db) == ["1", "2"][: 2 - read_only]
    assert wal(db_path).exists() == read_only, "the last one that may write removes it"


@pytest.mark.crash
@pytest.mark.parametrize("end", ["kill", "close"])
def test_what_such_a_program_has_acknowledged_stays(end: str, db_path: Path) -> None:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
    copy = f"{db_path.parent}-copy"
    arguments = [sys.executable, "-c", SENDING, str(db_path), str(db_path.parent), copy]
    with Popen(arguments, stdin=PIPE, stdout=PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        acknowledged = 0
        for round_ in range(4):
            for _ in range(5):
                acknowledged = int(program.stdout.readline()) + 1
            if round_ < 3:
                look(db_path)
                print("go on", file=program.stdin, flush=True)
        if end == "kill":
            program.kill()
        else:
            print("close", file=program.stdin, flush=True)
        program.wait()
    assert wal(db_path).exists() == (end == "kill")
    look(db_path)
    with eosdb.connect(db_path) as db:
        assert len(values(db)) == acknowledged == 20
        assert db.verify().ok


def test_a_forked_child_neither_keeps_nor_drops_the_lock(db: eosdb.Database, db_path: Path) -> None:
    db.admin.create_topic("t")
    ready, told = os.pipe()
    ended_, end = os.pipe()
    if (child := os.fork()) == 0:
        os.close(end)
        db_path.read_bytes()
        os.write(told, b"read")
        os.read(ended_, 1)
        os._exit(0)
    assert os.read(ready, 4) == b"read"
    db.producer().send("t", "1").result()
    db_path.read_bytes()
    look(db_path)
    assert wal(db_path).exists()
    db.close()
    assert not wal(db_path).exists()
    os.close(end)
    os.waitpid(child, 0)
    for descriptor in (ready, told, ended_):
        os.close(descriptor)


def test_a_close_leaves_the_locks_of_the_programs_own_connection(db_path: Path) -> None:
    """The descriptor for the lock is closed when no connection of the process needs POSIX locks."""
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        own = sqlite3.connect(db_path)
        own.execute("SELECT count(*) FROM topics").fetchone()
    look(db_path)
    assert wal(db_path).exists()
    own.close()
    assert not wal(db_path).exists()
    eosdb.connect(db_path).close()
    assert not presence._all


WRITING = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0.1)
with connection:
    connection.execute("INSERT INTO stock VALUES ('theirs')")
"""


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("is_disturbed", [False, True])
def test_two_commits_do_not_destroy_each_other_when_the_file_is_read_in_a_block(
    is_read: bool, is_disturbed: bool, db_path: Path
) -> None:
    with sqlite3.connect(db_path) as owner:
        owner.execute("CREATE TABLE stock (item TEXT)")
    owner.close()
    with eosdb.connect(db_path, adopt="wal") as db:
        db.admin.create_topic("t")

        def block(value: str) -> None:
            with db.begin() as tx:
                tx.publish("t", value)
                if is_read:
                    wal(db_path).read_bytes()
                    Path(f"{db_path}-shm").read_bytes()
                if is_disturbed:
                    done = ended([sys.executable, "-c", WRITING, str(db_path)])
                    assert (done.returncode == 0) == is_read, "SQLite's lock is gone"

        expected = ["1", "2"]
        if is_read and is_disturbed:
            expected = ["2"]
            with pytest.raises(eosdb.DatabaseLockedError, match="closed the file during") as caught:
                block("1")
            assert caught.value.outcome == "not written"
        else:
            block("1")
        theirs = db.query("SELECT item FROM stock").all()
        assert theirs == [("theirs",)] * (is_read and is_disturbed)
        is_disturbed = False
        block("2")
        assert values(db) == expected
        assert db.query("SELECT item FROM stock").all() == theirs
        assert db.verify().ok


MANY = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0.1)
connection.execute("PRAGMA wal_autocheckpoint=0")
with connection:
    connection.executemany("INSERT INTO stock VALUES (?)", [("theirs" * 200,)] * 6_000)
"""


def test_a_block_larger_than_sqlites_cache_destroys_no_commit_either(db_path: Path) -> None:
    """What a block writes into the WAL before its COMMIT would stand where the other commit is."""
    mine = "INSERT INTO stock SELECT hex(zeroblob(600)) FROM json_each(?)"
    rows = f"[{','.join('0' * 3_000)}]"
    with sqlite3.connect(db_path) as owner:
        owner.execute("CREATE TABLE stock (item TEXT)")
    owner.close()
    with eosdb.connect(db_path, adopt="wal") as db:
        with pytest.raises(eosdb.DatabaseLockedError) as caught, db.begin() as tx:
            tx.connection.exec_driver_sql(mine, (rows,))
            Path(f"{db_path}-shm").read_bytes()
            assert ended([sys.executable, "-c", MANY, str(db_path)]).returncode == 0
            tx.connection.exec_driver_sql(mine, (rows,))
        assert caught.value.outcome == "not written"
        assert db.query("SELECT count(*), min(item) > 't' FROM stock").all() == [(6_000, 1)]
        assert db.verify().ok
