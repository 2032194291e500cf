"""`close()` that is interrupted, by Ctrl-C or for want of memory, is repeated until it is done: then every
descriptor, thread and lock is given back.

Method: closing is interrupted at places spread over all where CPython looks for signals (interrupting.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import eosdb
import eosdb.aio
from eosdb import TopicPartition
from eosdb.model.closing import Closing
from tests.chaos.interrupting import Interrupt

pytestmark = pytest.mark.crash

TP = TopicPartition("t", 0)
PLACES = 8
"""At how many places each thing is interrupted, times the seeds; the seed says where they begin."""
NEVER = 10**9
Closable = Callable[[Path], contextlib.AbstractContextManager[Callable[[], object]]]


def stored(path: Path) -> eosdb.Database:
    db = eosdb.connect(path)
    db.admin.create_topic("t", exist_ok=True)
    db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"v")]))
    return db


@contextlib.contextmanager
def database(path: Path) -> Iterator[Callable[[], object]]:
    """With everything that it may have open."""
    db = stored(path)
    with db.begin() as tx:
        tx.publish("t", "begun")
    with db.engine.connect():
        db.consumer("g", auto_offset_reset="earliest").partitions_for("t")
    db.broker.fetch(TP, 0)
    db._store.data_version()
    yield db.close


@contextlib.contextmanager
def memory(path: Path) -> Iterator[Callable[[], object]]:
    db = stored(Path(":memory:"))
    folder = os.path.dirname(db._store.path)
    yield db.close
    assert not os.path.exists(folder)


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[Callable[[], object]]:
    stored(path).close()
    db = eosdb.connect(path, read_only=True)
    db.broker.fetch(TP, 0)
    yield db.close


@contextlib.contextmanager
def producer(path: Path) -> Iterator[Callable[[], object]]:
    """With a thread, records that wait, and a transaction that is open."""
    with stored(path) as db:
        lingering = db.producer(linger_ms=60_000)
        waiting = lingering.send("t", b"waits")
        transactional = db.producer(transactional_id="a")
        transactional.init_transactions()
        transactional.begin_transaction()
        transactional.send("t", b"open")

        def close() -> None:
            lingering.close()
            transactional.close()

        yield close
        found = db.query("SELECT CAST(value AS TEXT) FROM committed_records").all()
        refused = waiting.exception(0)
        # The store without memory has refused it, and its future says so.
        assert refused is None or getattr(refused, "outcome", None) == "not written"
        assert [value for (value,) in found].count("waits") == (refused is None)


@contextlib.contextmanager
def consumer(path: Path) -> Iterator[Callable[[], object]]:
    with stored(path) as db:
        member = db.consumer("g", auto_offset_reset="earliest", session_timeout_ms=6_000)
        member.subscribe(["t"])
        for _ in range(3):
            member.poll()
        yield member.close
        if db.broker.describe_group("g").members:
            # The store without memory has refused to let it leave: the next member finds it dead.
            with db.consumer("g", session_timeout_ms=6_000) as following:
                following.subscribe(["t"])
                while TP not in following.assignment():
                    following.poll(100)


@contextlib.contextmanager
def server(path: Path) -> Iterator[Callable[[], object]]:
    with stored(path) as db:
        yield db.serve().close


THINGS: list[Closable] = [database, memory, read_only, producer, consumer, server]


def interrupted(thing: Closable, path: Path, interrupt: Interrupt) -> None:
    with thing(path) as close:
        try:
            interrupt.run(close)
        except (KeyboardInterrupt, MemoryError):
            assert interrupt.reached
        close()  # Which finishes it, and may be called once more.
        close()


def left_open(folder: Path) -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith(str(folder)) or "inotify" in target:
                found.append(target)
    return found


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("eosdb")]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("thing", THINGS)
def test_closing_is_repeated_until_it_is_done(
    tmp_path: Path, thing: Closable, error: type[BaseException], seeds: list[int]
) -> None:
    # `threading`, `weakref` and `shutil` are not safe from signals, nor is SQLAlchemy called by one.
    spared = (
        "threading.py", "weakref.py", "_weakrefset.py", "socket.py", "shutil.py", "event/registry.py",
    )  # fmt: skip
    all_of_it = Interrupt(NEVER, error, spared)
    interrupted(thing, tmp_path / "test.db", all_of_it)
    before = left_open(tmp_path)
    assert (before, threads()) == ([], [])
    step = max(all_of_it.passed // (PLACES * len(seeds)), 1)
    for at in range(seeds[0] % step, all_of_it.passed, step):
        path = tmp_path / f"{at}.db"
        interrupted(thing, path, Interrupt(at, error, spared))
        assert (left_open(tmp_path), threads()) == ([], []), at
        with eosdb.connect(path) as db:
            db.admin.create_topic("after")
            assert db.verify().ok


def test_a_step_that_fails_is_done_and_those_behind_it_are_done_too() -> None:
    done = list[str]()

    def fail() -> None:
        done.append("failing")
        raise eosdb.StorageError("said so")

    closing = Closing(lambda: done.append("first"), fail, lambda: done.append("last"))
    with pytest.raises(eosdb.StorageError, match="said so"):
        closing.run()
    closing.run()
    assert done == ["first", "failing", "last"]


def test_a_thread_that_closes_what_another_is_closing_goes_its_way() -> None:
    entered, leave = threading.Event(), threading.Event()
    closing = Closing(entered.set, leave.wait)
    thread = threading.Thread(target=closing.run)
    thread.start()
    entered.wait()
    closing.run()
    leave.set()
    thread.join()


def test_an_event_loops_database_is_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its threads last until it is done."""
    close, tried = eosdb.Database.close, list[int]()

    def without_memory(database: eosdb.Database) -> None:
        tried.append(1)
        if len(tried) == 1:
            raise MemoryError
        close(database)

    monkeypatch.setattr(eosdb.Database, "close", without_memory)

    async def scenario() -> None:
        db = await eosdb.aio.connect(tmp_path / "test.db")
        with pytest.raises(MemoryError):
            await db.close()
        await db.close()
        await db.close()

    asyncio.run(scenario())
    assert (len(tried), left_open(tmp_path)) == (2, [])
