"""The system gives no more threads: what needs one says so, as an error of eosdb's, and what can do without
one does."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import product
from pathlib import Path

import pytest

import eosdb
import eosdb.aio
from eosdb import StorageError
from eosdb.aio import AsyncDatabase
from eosdb.integrations.exposition import FigureServer
from eosdb.model import threads
from tests.readers import committed_values
from tests.requests import TP

pytestmark = pytest.mark.crash


@contextmanager
def no_thread() -> Iterator[None]:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


@contextmanager
def no_memory_for_a_thread() -> Iterator[None]:
    """It is started, and ends before its first step, of which Python's own `start` learns nothing."""

    def end(_: threading.Thread) -> None:
        raise MemoryError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "_bootstrap", end)
        patch.setattr(threads, "_LOOKS", 1)
        patch.setattr(threading, "_limbo", {})  # Python would list it as starting for ever.
        yield


Without = Callable[[], AbstractContextManager[None]]


def wait_for_the_lock(db: eosdb.Database, cleanup: ExitStack, without: Without) -> None:
    other = cleanup.enter_context(eosdb.connect(db.path))
    cleanup.enter_context(other.begin())
    with without():
        db.admin.create_topic("u")


def join_a_group(db: eosdb.Database, cleanup: ExitStack, without: Without) -> None:
    consumer = db.consumer("g")
    cleanup.callback(consumer.close)
    with without():
        consumer.subscribe("t")
        consumer.poll()


def serve(db: eosdb.Database, cleanup: ExitStack, without: Without) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    try:
        with without():
            db.serve(port=port)
    finally:
        socket.create_server(("127.0.0.1", port)).close()  # Nobody listens there.


def show_figures(db: eosdb.Database, cleanup: ExitStack, without: Without) -> None:
    with without():
        cleanup.enter_context(FigureServer(0, lambda: ""))


def verify(db: eosdb.Database, cleanup: ExitStack, without: Without) -> None:
    with without():
        db.verify()


NEEDS = [wait_for_the_lock, join_a_group, serve, show_figures]


@pytest.mark.parametrize(
    ("need", "without"),
    [*product(NEEDS, (no_thread, no_memory_for_a_thread)), (verify, no_thread)],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_needs_one_says_so(
    tmp_path: Path,
    need: Callable[[eosdb.Database, ExitStack, Without], None],
    without: Without,
) -> None:
    with eosdb.connect(tmp_path / "t.db") as db:
        db.admin.create_topic("t")
        with ExitStack() as cleanup, pytest.raises(StorageError, match="no thread can be started"):
            need(db, cleanup, without)
        assert db.verify().ok
        assert db.admin.list_topics() == ["t"]


def test_what_was_refused_a_thread_is_not_done_when_it_begins_after_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory, ended = threading.Event(), threading.Event()
    begin = threading.Thread._bootstrap  # type: ignore[attr-defined]

    def late(thread: threading.Thread) -> None:
        memory.wait()
        begin(thread)
        ended.set()

    monkeypatch.setattr(threading.Thread, "_bootstrap", late)
    monkeypatch.setattr(threads, "_LOOKS", 1)
    done: list[int] = []
    with pytest.raises(StorageError, match="does not begin"):
        threads.Thread("the test", "late", done.append, 1).start()
    memory.set()
    assert ended.wait(60)
    assert not done


def test_a_producer_that_lingers_sends_with_the_next_call(tmp_path: Path) -> None:
    with eosdb.connect(tmp_path / "t.db") as db:
        db.admin.create_topic("t")
        with no_thread(), db.producer(linger_ms=60_000) as producer:
            sent = [producer.send("t", b"%d" % i) for i in range(3)]
            producer.flush()
            assert [future.result().offset for future in sent] == [0, 1, 2]
        assert committed_values(db, TP) == [b"0", b"1", b"2"]


def test_what_an_event_loop_was_refused_is_not_done_later(tmp_path: Path) -> None:
    async def main(db: AsyncDatabase) -> None:
        with no_thread():
            for call in (db.admin.create_topic("no"), db.query("SELECT 1")):
                with pytest.raises(StorageError, match="no thread can be started"):
                    await call
        await db.admin.create_topic("yes")
        assert await db.admin.list_topics() == ["yes"]

    async def opened() -> None:
        async with eosdb.aio.connect(tmp_path / "t.db") as db:
            await main(db)

    asyncio.run(opened())
