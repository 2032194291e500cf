"""The system gives no more threads: what needs one says so, as an error of eosdb's, and what can do without
one does."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import eosdb
import eosdb.aio
from eosdb import StorageError
from eosdb.aio import AsyncDatabase
from eosdb.integrations.exposition.server import FigureServer
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


def wait_for_the_lock(db: eosdb.Database, cleanup: ExitStack) -> None:
    other = cleanup.enter_context(eosdb.connect(db.path))
    cleanup.enter_context(other.begin())
    with no_thread():
        db.admin.create_topic("u")


def join_a_group(db: eosdb.Database, cleanup: ExitStack) -> None:
    consumer = db.consumer("g")
    cleanup.callback(consumer.close)
    with no_thread():
        consumer.subscribe("t")
        consumer.poll()


def serve(db: eosdb.Database, cleanup: ExitStack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    try:
        with no_thread():
            db.serve(port=port)
    finally:
        socket.create_server(("127.0.0.1", port)).close()  # Nobody listens there.


def show_figures(db: eosdb.Database, cleanup: ExitStack) -> None:
    with no_thread():
        cleanup.enter_context(FigureServer(0, lambda: ""))


def verify(db: eosdb.Database, cleanup: ExitStack) -> None:
    with no_thread():
        db.verify()


@pytest.mark.parametrize("need", [wait_for_the_lock, join_a_group, serve, show_figures, verify])
def test_what_needs_one_says_so(
    tmp_path: Path, need: Callable[[eosdb.Database, ExitStack], None]
) -> None:
    with eosdb.connect(tmp_path / "t.db") as db:
        db.admin.create_topic("t")
        with ExitStack() as cleanup, pytest.raises(StorageError, match="no thread can be started"):
            need(db, cleanup)
        assert db.verify().ok
        assert db.admin.list_topics() == ["t"]


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
