"""An open file of an event loop: to whom it belongs, and what is left when it is gone."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import eosdb
import eosdb.aio
from eosdb import ConfigError, DatabaseClosedError, IllegalStateError, ManualClock
from eosdb.admin.admin import Admin
from eosdb.aio import AsyncAdmin, AsyncDatabase
from eosdb.errors import InvalidRequestError
from tests.aio.running import Complaints, filled, no_thread_is_left, run_alone, threads

pytestmark = [pytest.mark.process, pytest.mark.slow]

_WITHOUT_COROUTINE = {"read_blocks"}
"""For readers that make something else of what `scan` reads."""


def test_connect_has_the_arguments_and_errors_of_the_other(tmp_path: Path) -> None:
    assert inspect.signature(eosdb.aio.connect) == inspect.signature(eosdb.connect)

    async def main() -> None:
        with pytest.raises(eosdb.errors.DatabaseNotFoundError):
            await eosdb.aio.connect(tmp_path / "none.db", create=False)
        with pytest.raises(ConfigError, match="durability"):
            await eosdb.aio.connect(tmp_path / "none.db", durability="some")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="clock"):
            await eosdb.aio.connect(tmp_path / "t.db", clock=ManualClock())
        db = await eosdb.aio.connect(tmp_path / "t.db")
        assert "open" in repr(db)
        await db.close()
        await db.close()
        assert "closed" in repr(db)

    run_alone(main)


async def test_what_reads_and_what_administers(db: AsyncDatabase) -> None:
    await filled(db, 3)
    found = await db.query("SELECT offset FROM committed_records WHERE offset > ?", [0])
    assert (found.columns, found.rows) == (("offset",), [(1,), (2,)])
    assert "offset" in await db.columns("committed_records")
    assert await db.views()
    assert (await db.info())["path"] == db.path
    assert await db.why() == []
    assert (await db.admin.describe_topic("t")).name == "t"
    assert [entry.kind for entry in await db.admin.journal()]
    rows = await db.admin.scan(eosdb.TopicPartition("t", 0), 0, 3, columns=("value",))
    assert rows == [[(b"0",), (b"1",), (b"2",)]]
    assert (await db.run(eosdb.Database.verify)).ok
    appended = await db.append_once(
        "s", 1, {eosdb.TopicPartition("t", 0): [eosdb.Record(value=b"3")]}
    )
    assert not appended.skipped
    with pytest.raises(eosdb.errors.InvalidRequestError):
        await db.query("DELETE FROM records")


async def test_rows_are_read_as_of_a_query_of_the_library_and_again(db: AsyncDatabase) -> None:
    found = await db.query("SELECT 1 AS a, 'x' AS b UNION SELECT 2, 'y'")
    for _ in range(2):
        assert [row.as_dict() for row in found.all()] == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
        first = found.first()
        assert first is not None
        assert first.b == "x"
        assert found.df().b.tolist() == found.arrow()["b"].to_pylist() == ["x", "y"]
    with pytest.raises(InvalidRequestError, match="more than one row"):
        found.one()
    assert (await db.query("SELECT 7 AS n")).one().n == 7
    with pytest.raises(eosdb.errors.TopicAlreadyExistsError):
        await db.admin.create_topic("t")


def test_every_method_of_the_administration_is_a_coroutine() -> None:
    theirs = {n for n, f in inspect.getmembers(Admin, inspect.isfunction) if n[0] != "_"}
    ours = {n for n in theirs if inspect.iscoroutinefunction(getattr(AsyncAdmin, n, None))}
    assert theirs - ours == _WITHOUT_COROUTINE
    for name in ours:
        assert inspect.signature(getattr(AsyncAdmin, name)) == inspect.signature(
            getattr(Admin, name)
        )


def test_a_closed_database_refuses_everything(tmp_path: Path) -> None:
    async def main() -> None:
        async with eosdb.aio.connect(tmp_path / "t.db") as db:
            await db.admin.create_topic("t")
            producer, consumer = db.producer(), db.consumer("t")
            await producer.start()
            await consumer.start()
            waiting = asyncio.create_task(consumer.getone())
            stored = await producer.send("t", "a")
            await asyncio.sleep(0)
        assert stored.done()
        with pytest.raises(IllegalStateError, match="stopped"):
            await waiting
        for call in (db.admin.list_topics(), db.query("SELECT 1"), producer.send("t", "a")):
            with pytest.raises(DatabaseClosedError):
                await call
        for make in (db.producer, db.consumer, db.begin):
            with pytest.raises(DatabaseClosedError):
                make()
        await producer.stop()
        await consumer.stop()

    run_alone(main)


async def test_a_database_belongs_to_its_loop(db: AsyncDatabase) -> None:
    async def elsewhere(db: AsyncDatabase) -> None:
        with pytest.raises(IllegalStateError, match="another event loop"):
            await db.admin.list_topics()
        with pytest.raises(IllegalStateError, match="another event loop"):
            db.producer()

    await asyncio.to_thread(lambda: asyncio.run(elsewhere(db)))


async def test_a_database_belongs_to_its_process(db: AsyncDatabase) -> None:
    async def in_the_child(db: AsyncDatabase) -> None:
        with pytest.raises(IllegalStateError, match="was forked"):
            await db.admin.list_topics()

    child = os.fork()
    if not child:
        failed = 1
        try:
            asyncio.run(in_the_child(db))
            failed = 0
        finally:
            os._exit(failed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    await db.admin.create_topic("u")


def in_a_loop_that_ends_early(main: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Runs it, and closes the loop whatever is open. Its threads end although nobody collects anything."""
    complaints = Complaints()
    logging.getLogger("asyncio").addHandler(complaints)
    others = threads()
    loop = asyncio.new_event_loop()
    gc.disable()
    try:
        kept = loop.run_until_complete(main())
        loop.close()
        no_thread_is_left(others)
        del kept
    finally:
        gc.enable()
        loop.close()
        gc.collect()
        logging.getLogger("asyncio").removeHandler(complaints)
    assert not complaints.found


def test_a_loop_that_is_closed_with_everything_open_leaves_no_thread(tmp_path: Path) -> None:
    async def main() -> object:
        db = await eosdb.aio.connect(tmp_path / "t.db")
        await db.admin.create_topic("t")
        producer, consumer = db.producer(transactional_id="p"), db.consumer("t")
        await producer.start()
        await consumer.start()
        await producer.begin_transaction()
        await producer.send_and_wait("t", "a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await consumer.getone()
        block = db.begin()
        await block.__aenter__()
        return db, producer, consumer, block

    in_a_loop_that_ends_early(main)
    with eosdb.connect(tmp_path / "t.db") as again:
        again.admin.create_topic("u")
        assert again.verify().ok


def test_a_coroutine_that_nobody_goes_on_with_closes_what_it_has_open(tmp_path: Path) -> None:
    path, tokens = tmp_path / "t.db", []

    async def use() -> None:
        async with (
            eosdb.aio.connect(path) as db,
            db.producer(transactional_id="p") as producer,
            db.consumer("t", group_id="g") as consumer,
            producer.transaction() as token,
        ):
            await producer.send_and_wait("t", "a")
            await consumer.getmany()
            async with db.begin() as tx:
                await tx.publish("t", "b")
                tokens.append(token)
                await asyncio.Event().wait()

    using = use()

    async def main() -> None:
        while True:
            waits_for = using.send(None)
            if tokens:
                return
            await asyncio.sleep(0) if waits_for is None else await asyncio.wait({waits_for})

    others = threads()
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    using.close()
    no_thread_is_left(others)
    with eosdb.connect(path) as db:
        assert db.outcome(tokens[0]) == "aborted"
        assert not list(db.query("SELECT * FROM committed_records").rows)
        assert not db.admin.describe_group_offsets("g").members
