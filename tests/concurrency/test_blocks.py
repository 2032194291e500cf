"""A block of `db.begin()` belongs to nobody but itself: it is entered in one thread, left in another, or
never, and other work in the same threads is none of its business (decisions/0042)."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from anyio import CancelScope, CapacityLimiter, create_task_group, lowlevel, to_thread
from sqlalchemy import text

import eosdb
from eosdb import IllegalStateError, TopicPartition
from eosdb.broker.outbox import UserTransaction
from tests.concurrency.worker import threads
from tests.readers import committed_values

pytestmark = pytest.mark.crash

T = TypeVar("T")
TP = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    with db.begin() as tx:
        tx.connection.execute(text("CREATE TABLE notes (what)"))


class Pool(ThreadPoolExecutor):
    """A thread that runs each call in a copy of the caller's context, as `asyncio.to_thread` and the pools
    of web frameworks do."""

    def __init__(self) -> None:
        super().__init__(1)

    def begin(self, function: Callable[[], T]) -> Future[T]:
        return self.submit(contextvars.copy_context().run, function)

    def run(self, function: Callable[[], T]) -> T:
        return self.begin(function).result()


def leave(block: AbstractContextManager[object], error: BaseException | None = None) -> bool:
    kind = None if error is None else type(error)
    return bool(block.__exit__(kind, error, None))


def note(tx: UserTransaction, what: str) -> None:
    tx.connection.execute(text("INSERT INTO notes VALUES (:what)"), {"what": what})
    tx.publish("t", what)


def check_stored(db: eosdb.Database, *values: str) -> None:
    assert [what for (what,) in db.query("SELECT what FROM notes").rows] == [*values]
    assert committed_values(db, TP) == [value.encode() for value in values]


def test_a_block_is_entered_used_and_left_in_three_threads(db: eosdb.Database) -> None:
    with Pool() as first, Pool() as second, Pool() as third:
        for fails in (False, True):
            block = db.begin()
            tx = first.run(block.__enter__)
            second.run(lambda tx=tx: note(tx, "stored"))  # type: ignore[misc]
            error = ZeroDivisionError() if fails else None
            assert not third.run(lambda block=block, error=error: leave(block, error))  # type: ignore[misc]
    check_stored(db, "stored")


def test_another_request_in_a_thread_that_entered_a_block_waits_its_turn(
    db: eosdb.Database,
) -> None:
    """It got an IllegalStateError that belonged to the other."""
    with Pool() as first, Pool() as second:
        block = db.begin()
        note(first.run(block.__enter__), "block")
        producer = db.producer()
        writes = first.begin(lambda: producer.send("t", "next").result())
        while len(db._store._group._queue) < 2:
            assert not writes.done()
        second.run(lambda: leave(block))
        assert writes.result().offset == 1
    assert committed_values(db, TP) == [b"block", b"next"]


def test_many_blocks_in_a_pool_of_threads(db: eosdb.Database) -> None:
    """Each is entered, used and left in whichever threads are free."""
    entering, others = [Pool() for _ in range(6)], [Pool() for _ in range(3)]

    def work(number: int) -> None:
        for i in range(10):
            block = db.begin()
            tx = entering[(number + i) % 6].run(block.__enter__)
            others[i % 3].run(lambda tx=tx, i=i: note(tx, f"{number} {i}"))  # type: ignore[misc]
            error = KeyError() if i % 5 == 4 else None
            others[(number + i) % 3].run(lambda block=block, error=error: leave(block, error))  # type: ignore[misc]

    threads(6, work)
    for pool in (*entering, *others):
        pool.shutdown()
    values = [value.decode() for value in committed_values(db, TP) if value]
    check_stored(db, *values)
    assert sorted(values) == sorted(f"{n} {i}" for n in range(6) for i in range(10) if i % 5 < 4)
    assert db.verify().ok


def test_code_inside_a_block_is_told_at_once_in_whichever_thread_it_runs(
    db: eosdb.Database,
) -> None:
    producer = db.producer()

    async def inside() -> None:
        await asyncio.to_thread(lambda: producer.send("t", "never").result())

    with db.begin() as tx:
        for write in (lambda: db.admin.create_topic("u"), lambda: asyncio.run(inside()), db.close):
            with pytest.raises(IllegalStateError, match="inside a block of"):
                write()
        note(tx, "stored")
    check_stored(db, "stored")


def test_a_block_that_is_over_concerns_nobody(db: eosdb.Database) -> None:
    """It was entered here, in the thread's own context, and left elsewhere."""
    with Pool() as pool:
        for i in range(50):
            block = db.begin()
            note(block.__enter__(), f"block {i}")
            with pytest.raises(IllegalStateError, match="inside a block of"):
                db.admin.create_topic("u")
            pool.run(lambda block=block: leave(block))  # type: ignore[misc]
    db.admin.create_topic("u")
    assert len(committed_values(db, TP)) == 50


def test_two_blocks_of_two_databases_in_one_another(db: eosdb.Database) -> None:
    with eosdb.connect(":memory:") as other:
        other.admin.create_topic("t")
        with db.begin() as tx, other.begin() as beside:
            note(tx, "here")
            beside.publish("t", "there")
            for each in (db, other):
                with pytest.raises(IllegalStateError, match="inside a block of"):
                    each.admin.create_topic("u")
        with db.begin():
            other.admin.create_topic("u")
        assert committed_values(other, TP) == [b"there"]
    check_stored(db, "here")


@pytest.mark.parametrize("is_cycle", [False, True])
def test_a_block_that_is_never_left_is_undone_when_it_is_dropped(
    db: eosdb.Database, is_cycle: bool
) -> None:
    """The request died between the two: whoever drops the block, or the collector, undoes it."""
    with Pool() as first, Pool() as second:
        held: list[object] = [db.begin()]
        tx = first.run(held[0].__enter__)  # type: ignore[attr-defined]
        note(tx, "never")
        if is_cycle:
            held.append(held)
        waiting = first.begin(lambda: db.producer().send("t", "next").result())
        while len(db._store._group._queue) < 2:
            assert not waiting.done()
        del held, tx
        second.run(gc.collect)
        waiting.result()
    assert list(db.query("SELECT what FROM notes").rows) == []
    assert committed_values(db, TP) == [b"next"]
    with eosdb.connect(db.path) as beside:
        beside.producer().send("t", "nobody holds a lock").result()
    assert db.verify().ok


@pytest.mark.parametrize("does", ["fork", "close"])
def test_a_fork_and_closing_wait_for_a_block_in_another_thread(
    db: eosdb.Database, does: str
) -> None:
    with Pool() as first, Pool() as second:
        block, go = db.begin(), threading.Event()
        note(first.run(block.__enter__), "block")
        leaving = second.begin(lambda: go.wait() and leave(block))
        function = db.close if does == "close" else partial(_fork_and_write, db)
        ending = first.begin(function)
        while len(db._store._group._queue) < 2:
            assert not ending.done()
        go.set()
        leaving.result()
        ending.result()
    with eosdb.connect(db.path) as again:
        expected = [b"block"] if does == "close" else [b"block", b"child"]
        assert committed_values(again, TP) == expected


def _fork_and_write(db: eosdb.Database) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with eosdb.connect(db.path) as anew:
                anew.producer().send("t", "child").result()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_a_block_in_another_task_of_the_same_loop_is_an_error_and_no_deadlock(
    db: eosdb.Database,
) -> None:
    async def main() -> None:
        entered, go = asyncio.Event(), asyncio.Event()

        async def holds() -> None:
            with db.begin() as tx:
                entered.set()
                await go.wait()
                note(tx, "stored")

        holding = asyncio.create_task(holds())
        await entered.wait()
        for write in (lambda: db.admin.create_topic("u"), lambda: db.begin().__enter__(), db.close):
            with pytest.raises(IllegalStateError, match="another task of this event loop"):
                write()
        writes = asyncio.create_task(asyncio.to_thread(db.admin.create_topic, "u"))
        while len(db._store._group._queue) < 2:
            await asyncio.sleep(0)
        go.set()
        await asyncio.gather(holding, writes)

    asyncio.run(main())
    check_stored(db, "stored")


def test_a_pool_in_which_every_thread_waits_gets_one_for_the_block(db_path: Path) -> None:
    """As FastAPI runs a plain dependency with `yield` and a plain endpoint: each step in a thread of the
    pool, of which there are two."""
    config = eosdb.BrokerConfig(lock_timeout_ms=60_000)

    def write(tx: UserTransaction, number: int) -> None:
        tx.connection.execute(text("INSERT INTO notes VALUES (:what)"), {"what": number})
        tx.publish("t", str(number))

    async def request(db: eosdb.Database, number: int) -> None:
        block = db.begin()
        tx = await to_thread.run_sync(block.__enter__)
        try:
            await to_thread.run_sync(write, tx, number)
        finally:
            with CancelScope(shield=True):
                no_limit = CapacityLimiter(1)
                await to_thread.run_sync(block.__exit__, None, None, None, limiter=no_limit)

    def send(db: eosdb.Database, number: int) -> None:
        db.append_once(f"sink {number}", 0, {TP: [eosdb.Record(value=b"%d" % number)]})

    async def main(db: eosdb.Database) -> float:
        limiter = to_thread.current_default_thread_limiter()
        limiter.total_tokens = 2
        async with create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(request, db, number)
                tasks.start_soon(to_thread.run_sync, send, db, 20 + number)
        await lowlevel.checkpoint()
        return limiter.total_tokens

    with eosdb.connect(db_path, config=config) as db:
        assert anyio.run(main, db) == 2
        assert {int(value or b"") for value in committed_values(db, TP)} == set(range(40))
