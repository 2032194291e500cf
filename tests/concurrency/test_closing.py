"""Closing while others work: other threads, a forked child, a foreign program, another name of the file."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.store.writing.group_commit import GroupCommit, UnitRequest
from tests.concurrency.worker import threads
from tests.programs import ended
from tests.readers import committed_values
from tests.store.locked import start

pytestmark = [
    pytest.mark.crash,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
TP = TopicPartition("t", 0)
BATCH = RecordBatch([Record(value=b"v" * 500)] * 20)


def in_a_forked_child(work: Callable[[], None]) -> None:
    """Run `work` in a child that ends as a Python program does; its error is the caller's."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            os.write(write_end, repr(error).encode())
        finally:
            os._exit(status)
    os.close(write_end)
    said = os.read(read_end, 10_000).decode()
    os.close(read_end)
    os.waitpid(child, 0)
    assert said == ""


def test_threads_that_read_and_write_when_the_database_is_closed(
    db_path: Path, clock: eosdb.ManualClock
) -> None:
    with eosdb.connect(db_path, clock=clock) as db:
        db.admin.create_topic("t")
    stored = 0
    for _ in range(15):
        db = eosdb.connect(db_path, clock=clock, durability="off")
        at_work = threading.Barrier(7)
        acknowledged: list[int] = []

        def work(
            number: int,
            db: eosdb.Database = db,
            at_work: threading.Barrier = at_work,
            acknowledged: list[int] = acknowledged,
        ) -> None:
            first = True
            with pytest.raises(eosdb.DatabaseClosedError):
                while True:
                    if number < 3:
                        db.broker.append(TP, BATCH)
                        acknowledged.append(number)
                    else:
                        db.broker.fetch(TP, 0)
                    if first:
                        at_work.wait()
                        first = False

        def close(db: eosdb.Database = db, at_work: threading.Barrier = at_work) -> None:
            at_work.wait()
            db.close()

        parts: list[Callable[[], None]] = [*(partial(work, number) for number in range(6)), close]

        def part(number: int, parts: list[Callable[[], None]] = parts) -> None:
            parts[number]()

        threads(7, part)
        stored += len(acknowledged)
    with eosdb.connect(db_path, clock=clock) as db:
        assert db.broker.offsets(TP).log_end_offset == stored * len(BATCH.records)
        assert db.verify().ok


def test_closing_waits_for_who_reads(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    closing = threading.Thread(target=db.close)
    with db._store.read() as connection:
        closing.start()
        while closing.is_alive() and not db._store._closed:
            pass
        assert closing.is_alive(), "the last connection, whose closing is a checkpoint, is its own"
        assert connection.execute("SELECT topic FROM topics").fetchall() == [("t",)]
    closing.join()


def test_an_interrupted_request_is_not_run_later_and_keeps_nobody_from_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C reaches one thread alone, which may be one that waits for the leader."""
    entered, go = threading.Event(), threading.Event()

    def run_round(batch: list[UnitRequest]) -> None:
        entered.set()
        go.wait()
        for request in batch:
            request.result, request.done = request.function(None), True  # type: ignore[arg-type]

    group = GroupCommit(run_round)
    ran: list[str] = []
    leader = threading.Thread(target=group.submit, args=(lambda _: ran.append("leader"), True))
    leader.start()
    entered.wait()
    monkeypatch.setattr(UnitRequest, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        group.submit(lambda _: ran.append("interrupted"), True)
    monkeypatch.undo()
    go.set()
    group.end(RuntimeError)
    leader.join()
    assert ran == ["leader"]
    with pytest.raises(RuntimeError):
        group.submit(lambda _: ran.append("late"), True)


def interrupted(request: UnitRequest, seconds: float) -> bool:
    raise KeyboardInterrupt


def test_closing_one_database_takes_no_lock_from_another(
    db: eosdb.Database, db_path: Path, clock: eosdb.ManualClock
) -> None:
    """POSIX locks of a process go when it closes any descriptor of the file; a foreign program would
    then believe it were alone, and remove the WAL of the database that is still open."""
    db.admin.create_topic("t")
    db.broker.append(TP, BATCH)
    for read_only in (False, True):
        eosdb.connect(db_path, clock=clock, read_only=read_only).close()
    db.backup(db_path.with_name("copy.db"))
    wal = Path(f"{db_path}-wal")
    inode = wal.stat().st_ino
    output, errors = start(db_path, "bystander").communicate()
    assert output == "20\n", errors
    assert wal.stat().st_ino == inode
    db.broker.append(TP, BATCH)
    output, errors = start(db_path, "bystander").communicate()
    assert output == "40\n", errors
    assert db.verify().ok


def test_a_file_has_one_lock_whatever_it_is_called(
    db: eosdb.Database, db_path: Path, clock: eosdb.ManualClock
) -> None:
    db.admin.create_topic("t")
    for _ in range(20):
        db.broker.append(TP, BATCH)
    (db_path.parent / "elsewhere").mkdir()
    link = db_path.parent / "elsewhere" / "link.db"
    link.symlink_to(db_path)
    with eosdb.connect(link, clock=clock) as linked:
        assert linked.broker.append(TP, BATCH).base_offset == 400
        assert linked.path == str(link)
        assert linked.verify().ok
    assert os.listdir(link.parent) == ["link.db"]


def test_a_forked_child_is_told_to_open_the_file_anew(
    db: eosdb.Database, db_path: Path, clock: eosdb.ManualClock
) -> None:
    db.admin.create_topic("t")
    db.broker.append(TP, BATCH)

    def work() -> None:
        for call in (
            lambda: db.broker.offsets(TP),
            lambda: db.broker.append(TP, BATCH),
            lambda: db.producer(),
            lambda: db.verify(),
            lambda: db.query("SELECT 1"),
        ):
            with pytest.raises(eosdb.IllegalStateError, match="open it itself"):
                call()
        db.close()
        with eosdb.connect(db_path, clock=clock) as anew:
            anew.broker.append(TP, BATCH)

    in_a_forked_child(work)
    assert db.broker.append(TP, BATCH).base_offset == 40
    assert db.verify().ok


def test_a_forked_child_that_ends_takes_nothing_of_the_parents_along() -> None:
    """It runs out of its `with` block, and its interpreter drops every connection."""
    with eosdb.connect(":memory:") as db:
        db.admin.create_topic("t")
        db.broker.append(TP, BATCH)
        child = os.fork()
        if child == 0:
            db.__exit__(None, None, None)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.execv(sys.executable, [sys.executable, "-c", ""])
        os.waitpid(child, 0)
        assert os.path.exists(db._store.path)
        assert db.broker.append(TP, BATCH).base_offset == 20
        assert len(committed_values(db, TP)) == 40
        assert db.verify().ok


UNCLOSED = """
import os, sys
import eosdb
db = eosdb.connect(":memory:")
print(os.path.dirname(db._store.path), flush=True)
if child := os.fork():
    os.waitpid(child, 0)
    print(os.path.exists(db._store.path))
"""


def test_a_database_in_memory_goes_with_its_process_and_not_with_a_fork_of_it() -> None:
    done = ended([sys.executable, "-c", UNCLOSED])
    folder, still_there = done.stdout.splitlines()
    assert still_there == "True", done.stderr
    assert not os.path.exists(folder)


def test_a_fork_in_the_middle_of_other_threads_writes(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    ended = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            for _ in range(5):
                in_a_forked_child(db.close)
            ended.set()
        while not ended.is_set():
            db.broker.append(TP, BATCH)

    threads(4, work)
    assert db.verify().ok
