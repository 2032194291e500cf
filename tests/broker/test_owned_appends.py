"""A large `append_once` lives as long as its process: it may take longer than any transaction, and what a
killed process leaves open is aborted by whoever opens or writes next, at once.

The appends run in processes of their own (`owner`), and the clock of the others stands still, so that no
time-out can have helped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import ManualClock, Record, TopicPartition
from tests.conftest import START_MS
from tests.inside import mutex
from tests.readers import committed_values, dump_state
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
CHUNK = 50
MINUTE_MS = 60_000
OWNER = """
import os, sys
from eosdb.broker import sink
import eosdb
from eosdb import Record, TopicPartition

sink._UNIT_RECORDS = sink._STEP_RECORDS = 100

def chunks(words):
    for i in range(8):
        yield TopicPartition("orders", 0), [Record(value=b"%d" % n) for n in range(50 * i, 50 * i + 50)]
    yield from words()

def said():
    if "fork" not in sys.argv or not os.fork():
        print("open", flush=True)
    sys.stdin.readline()
    return ()

clock = eosdb.ManualClock(start_ms=int(sys.argv[2]))
with eosdb.connect(sys.argv[1], clock=clock) as db:
    print(db.append_once("large", 0, chunks(said)).skipped, flush=True)
"""


@pytest.fixture
def path(db_path: Path) -> Path:
    with connect(db_path) as db:
        db.admin.create_topic("orders", partitions=2)
    return db_path


def connect(path: Path, clock: ManualClock | None = None) -> eosdb.Database:
    return eosdb.connect(path, clock=clock or ManualClock(start_ms=START_MS), durability="normal")


@contextlib.contextmanager
def owner(path: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of a large append: its transaction is open, and it waits for a word."""
    command = [sys.executable, "-c", OWNER, str(path), str(START_MS), *words]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "open\n"
            yield child
        finally:
            child.kill()


def goes_on(child: subprocess.Popen[str]) -> str:
    return child.communicate("go\n")[0]


def kill(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait()


def is_open(db: eosdb.Database) -> bool:
    offsets = db.broker.offsets(TP)
    return offsets.last_stable_offset < offsets.log_end_offset


def test_a_killed_append_is_aborted_by_whoever_opens_the_file(path: Path) -> None:
    with owner(path) as child:
        with eosdb.connect(path, read_only=True) as reader:
            assert is_open(reader), "it is in the middle of it"
        kill(child)
    with connect(path) as db:
        assert not is_open(db)
        assert committed_values(db, TP) == []
        assert not db.append_once("large", 0, [(TP, [Record(value=b"again")])]).skipped
        assert db.verify().ok


@pytest.mark.parametrize("write", ["records", "another sink", "what is due"])
def test_a_killed_append_is_aborted_by_the_next_write(path: Path, write: str) -> None:
    with connect(path) as db, owner(path) as child:
        kill(child)
        assert is_open(db)
        if write == "records":
            db.producer().send("orders", b"v", partition=1).result()
        elif write == "another sink":
            db.append_once("another", 0, {OTHER: [Record(value=b"v")]})
        else:
            assert db._coordinator.next_due() <= START_MS
            db._coordinator.do_what_is_due()
        assert not is_open(db)
        assert committed_values(db, TP) == []


@pytest.mark.parametrize("stopped", [False, True])
def test_a_living_append_is_left_alone(path: Path, stopped: bool) -> None:
    with owner(path) as child:
        if stopped:
            child.send_signal(signal.SIGSTOP)
        for i in range(2):
            with connect(path) as db:
                db.append_once("another", i, {OTHER: [Record(value=b"v")]})
                db.housekeeping()
                assert is_open(db)
        child.send_signal(signal.SIGCONT)
        assert goes_on(child) == "False\n"
    with connect(path) as db:
        assert committed_values(db, TP) == [b"%d" % n for n in range(400)]
        assert db.verify().ok


def test_a_killed_append_is_aborted_though_an_earlier_attempt_of_its_sink_lives(path: Path) -> None:
    with connect(path) as db, owner(path) as earlier:
        earlier.send_signal(signal.SIGSTOP)
        with owner(path) as child:
            kill(child)
        assert is_open(db)
        db.append_once("another", 0, {OTHER: [Record(value=b"v")]})
        assert not is_open(db)


def test_children_do_not_keep_the_append_of_a_killed_process_alive(path: Path) -> None:
    """A forked child inherits descriptors, but it is not the owner."""
    with owner(path, "fork") as child:
        kill(child)
        with connect(path) as db:
            assert not is_open(db)


def test_an_append_may_take_longer_than_any_transaction(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eosdb.broker.sink._UNIT_RECORDS", 60)
    monkeypatch.setattr("eosdb.broker.sink._STEP_RECORDS", 60)
    clock = ManualClock(start_ms=START_MS)
    with connect(path, clock) as db, connect(path, clock) as another:

        def chunks() -> Iterator[tuple[TopicPartition, list[Record]]]:
            for i in range(20):
                clock.advance(5 * MINUTE_MS)
                another.append_once("other", i, {OTHER: [Record(value=b"v")]})
                yield TP, [Record(value=b"%d" % n) for n in range(CHUNK * i, CHUNK * (i + 1))]

        assert not db.append_once("large", 0, chunks()).skipped
        assert committed_values(db, TP) == [b"%d" % n for n in range(20 * CHUNK)]
        prolonged = db.query(
            "SELECT count(*) FROM journal WHERE kind = 'TransactionStateChanged' "
            "AND json_extract(detail, '$.timeout_ms') > 900000"
        )
        assert 5 < next(iter(prolonged.rows))[0] < 20, "not with every step"
        assert db.verify().ok
        before = dump_state(path)
        db.rebuild()
        assert dump_state(path) == before
        assert not db.append_once("large", 1, {TP: [Record(value=b"v")]}).skipped
        assert db.admin.fence_producer("__eosdb.sink:large").producer_epoch > 0


def test_an_append_that_stands_still_times_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eosdb.broker.sink._UNIT_RECORDS", 60)
    clock = ManualClock(start_ms=START_MS)
    with connect(path, clock) as db, connect(path, clock) as another:

        def chunks() -> Iterator[tuple[TopicPartition, list[Record]]]:
            for i in range(8):
                yield TP, [Record(value=b"%d" % n) for n in range(CHUNK)]
                if i == 6:
                    assert is_open(db)
                    clock.advance(16 * MINUTE_MS)
                    another.append_once("other", i, {OTHER: [Record(value=b"v")]})

        monkeypatch.setattr("eosdb.broker.sink._STEP_RECORDS", 60)
        with pytest.raises(eosdb.ApiError):
            db.append_once("large", 0, chunks())
        assert not is_open(db)
        assert committed_values(db, TP) == []


def test_several_appends_of_one_process_do_not_disturb_each_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eosdb.broker.sink._UNIT_RECORDS", 60)
    monkeypatch.setattr("eosdb.broker.sink._STEP_RECORDS", 60)
    together = threading.Barrier(3, timeout=60)
    failures: list[BaseException] = []
    with connect(path) as db:

        def chunks(number: int) -> Iterator[tuple[TopicPartition, list[Record]]]:
            for i in range(6):
                yield TP, [Record(value=b"%d-%d-%d" % (number, i, n)) for n in range(CHUNK)]
                together.wait()

        def append(number: int) -> None:
            try:
                assert not db.append_once(f"sink {number}", 0, chunks(number)).skipped
            except BaseException as error:
                failures.append(error)
                together.abort()

        threads = [threading.Thread(target=append, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(6):
            together.wait()
            with connect(path) as another:
                another.append_once("other", 0, {OTHER: [Record(value=b"v")]})
        for thread in threads:
            thread.join()
        assert failures == []
        values = committed_values(db, TP)
        assert len(values) == len(set(values)) == 12 * CHUNK


def test_the_locks_of_an_owner_are_seen_by_everybody_until_they_are_released(path: Path) -> None:
    with connect(path) as db, connect(path) as another:
        before = os.path.getsize(mutex(db).path)
        mine, others = mutex(db).owner_locks, mutex(another).owner_locks
        for number, count in ((0, 1), (1, 3), (2**60, 2**15)):
            mine.hold(number, count)
            for each in (number, number + count - 1):
                assert mutex(db).is_owned(each)
                assert mutex(another).is_owned(each)
                with pytest.raises(eosdb.DatabaseLockedError):
                    others.hold(each)
            assert not mutex(db).is_owned(number + count)
            mine.release(number, count)
            assert not mutex(another).is_owned(number)
        assert os.path.getsize(mutex(db).path) == before
