"""A write lock that is held for too long: every face answers with the same error, which says that nothing
was written, who holds the lock, and what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.cli.main import main
from eosdb.cli.session import Session
from tests.readers import committed_values

pytestmark = pytest.mark.crash

TP = TopicPartition("t", 0)
HASTY = eosdb.BrokerConfig(lock_timeout_ms=20)
SQLITE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""
BLOCK = """
import sys, eosdb
with eosdb.connect(sys.argv[1]) as db, db.begin():
    print("held", flush=True)
    sys.stdin.read()
"""

Call = Callable[[], object]


def transaction(db: eosdb.Database, *, offsets: bool = False) -> Call:
    producer = db.producer(transactional_id=f"offsets-{offsets}")
    producer.init_transactions()

    def run() -> None:
        with producer.transaction():
            producer.send("t", b"v")
            if offsets:
                producer.send_offsets_to_transaction({TP: OffsetAndMetadata(1)}, "g")

    return run


def commit(db: eosdb.Database) -> Call:
    producer = db.producer(transactional_id="commit")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v")
    return producer.commit_transaction


def flushed(db: eosdb.Database) -> Call:
    producer = db.producer(linger_ms=60_000)

    def run() -> None:
        futures = [producer.send("t", b"v", partition=0) for _ in range(3)]
        producer.flush()
        assert len({id(future.exception()) for future in futures}) == 1, "one wait for all of them"
        futures[-1].result()

    return run


def block(db: eosdb.Database) -> Call:
    def run() -> None:
        with db.begin() as tx:
            tx.publish("t", b"v")

    return run


def offsets(db: eosdb.Database) -> Call:
    consumer = db.consumer("g", enable_auto_commit=False)
    consumer.assign([TP])
    return lambda: consumer.commit({TP: OffsetAndMetadata(1)})


FACES: dict[str, Callable[[eosdb.Database], Call]] = {
    "send": lambda db: lambda: db.producer().send("t", b"v").result(),
    "flush": flushed,
    "send_many": lambda db: lambda: db.producer().send_many("t", [b"v", b"w"]),
    "init_transactions": lambda db: lambda: db.producer(transactional_id="y").init_transactions(),
    "transaction": transaction,
    "commit": commit,
    "offsets in a transaction": lambda db: transaction(db, offsets=True),
    "append_once": lambda db: lambda: db.append_once("s", 1, {TP: [eosdb.Record(b"v")]}),
    "begin": block,
    "offsets": offsets,
    "topic": lambda db: lambda: db.admin.create_topic("new"),
    "compact": lambda db: db.compact,
    "rebuild": lambda db: db.rebuild,
}
COMMANDS = (("topics", "create", "new"), ("produce", "t"), ("compact",), ("housekeeping",))


@pytest.fixture
def path(db_path: Path) -> Path:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        db.admin.create_topic("other")
    return db_path


@contextmanager
def held_by(program: str, path: Path) -> Iterator[str]:
    """Hold the write lock in another process; what the error must say of it."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            yield rf"process {holder.pid} \({re.escape(sys.executable)} -c import"
        finally:
            holder.kill()


def check(told: str, path: Path, holder: str) -> None:
    """Whether the error is the one that everybody gets."""
    assert re.match(
        rf"{re.escape(str(path))}: not written, because the write lock has been held( for 20 ms)? by "
        rf"{holder}.*\. Try again when that transaction has ended, end it, or wait for longer",
        told,
    ), told


@pytest.mark.parametrize("program", [SQLITE, BLOCK], ids=["sqlite", "begin"])
def test_every_face_names_the_process_that_holds_the_lock(path: Path, program: str) -> None:
    with eosdb.connect(path, config=HASTY) as db:
        calls = {face: prepared(db) for face, prepared in FACES.items()}
        before = committed_values(db, TP)
        with held_by(program, path) as holder:
            for face, call in calls.items():
                with pytest.raises(eosdb.DatabaseLockedError) as raised:
                    call()
                check(str(raised.value), path, holder)
                assert raised.value.outcome == "not written", face
        assert (committed_values(db, TP), before, db.broker.offset_fetch("g")) == ([], [], {})
        for face in ("send", "transaction", "commit", "offsets in a transaction", "begin"):
            calls[face]()
        assert committed_values(db, TP) == [b"v"] * 5, "each goes on when the lock is free"
        assert db.verify().ok


@pytest.mark.parametrize("program", [SQLITE, BLOCK], ids=["sqlite", "begin"])
def test_commands_say_it_in_one_line(
    path: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hasty(session: Session, **_: object) -> eosdb.Database:
        return eosdb.connect(session.named_path(), config=HASTY)

    monkeypatch.setattr(Session, "open", hasty)
    with held_by(program, path) as holder:
        for command in COMMANDS:
            done = CliRunner().invoke(main, ["--db", str(path), *command], input="one\n")
            assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.output
            check(done.stderr.removeprefix("error: DatabaseLockedError: "), path, holder)


def test_a_block_of_the_same_database_is_told_with_its_thread(path: Path) -> None:
    begun, end = threading.Event(), threading.Event()
    with eosdb.connect(path, config=HASTY) as db:

        def hold() -> None:
            with db.begin():
                begun.set()
                end.wait()

        thread = threading.Thread(target=hold, name="import-job")
        thread.start()
        begun.wait()
        try:
            with pytest.raises(eosdb.DatabaseLockedError) as raised:
                db.producer().send("t", b"v").result()
        finally:
            end.set()
            thread.join()
        check(
            str(raised.value),
            path,
            r"this process: a block of db\.begin\(\).* of the thread import-job",
        )
        assert raised.value.outcome == "not written"


def test_a_connection_of_this_process_is_told_as_such(path: Path) -> None:
    """Such as that of another library, in this very thread."""
    import sqlite3

    connection = sqlite3.connect(path, isolation_level=None)
    with eosdb.connect(path, config=HASTY) as db:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(eosdb.DatabaseLockedError) as raised:
            db.admin.create_topic("new")
        check(str(raised.value), path, rf"this process {os.getpid()} \(")
        connection.execute("ROLLBACK")
        db.admin.create_topic("new")
    connection.close()


def test_a_wait_is_one_for_all_threads(path: Path) -> None:
    """Those that wait together are refused together, and who comes later waits for its own time."""
    told: list[BaseException] = []
    with (
        eosdb.connect(path, config=HASTY) as db,
        held_by(SQLITE, path) as holder,
    ):

        def write(number: int) -> None:
            try:
                db.admin.create_topic(f"new-{number}")
            except eosdb.DatabaseLockedError as error:
                told.append(error)

        threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(told) == 8
        for error in told:
            check(str(error), path, holder)
