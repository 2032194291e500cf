"""`await db.process(…)`: handlers that are awaited, exactly once, also when the task is cancelled."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

import eosdb
import eosdb.aio
from eosdb import ConsumerRecord
from eosdb.aio import AsyncDatabase, AsyncUserTransaction
from tests.aio.running import filled, no_thread_is_left, run, values

pytestmark = pytest.mark.slow

Record = ConsumerRecord[bytes, bytes]
IDLE: Any = {"group_id": "g", "until_idle_ms": 50}


def note(sql: Connection, what: str) -> None:
    sql.execute(text("INSERT INTO notes VALUES (:what)"), {"what": what})


async def with_notes(db: AsyncDatabase) -> None:
    async with db.begin() as tx:
        await tx.run(lambda sql: sql.execute(text("CREATE TABLE notes (what TEXT)")).close())


async def notes(db: AsyncDatabase) -> list[str]:
    return [what for (what,) in (await db.query("SELECT what FROM notes ORDER BY rowid")).rows]


def test_handlers_are_awaited_in_the_loop_and_their_results_are_stored(tmp_path: Path) -> None:
    async def double(record: Record) -> bytes:
        await asyncio.sleep(0)
        assert threading.current_thread() is threading.main_thread()
        return record.value * 2

    async def twice(record: Record) -> AsyncIterator[bytes]:
        yield record.value
        await asyncio.sleep(0)
        yield record.value

    async def scenario(db: AsyncDatabase) -> None:
        await filled(db, 5)
        await db.admin.create_topic("out")
        found = await db.process("t", double, "out", **IDLE)
        assert (found.processed, found.produced) == (5, 5)
        assert await values(db, "out") == ["00", "11", "22", "33", "44"]
        await db.process("out", twice, "again", group_id="h", until_idle_ms=50)

    async def prepared(db: AsyncDatabase) -> None:
        await db.admin.create_topic("again")
        await scenario(db)
        assert await values(db, "again") == [w for n in range(5) for w in [f"{n}{n}"] * 2]

    run(tmp_path, prepared)


async def test_a_second_parameter_is_the_transaction_of_the_record(db: AsyncDatabase) -> None:
    """Its rows, records and offset are one commit; what it leaves behind is refused."""
    kept: list[AsyncUserTransaction] = []

    async def handle(record: Record, tx: AsyncUserTransaction) -> None:
        kept.append(tx)
        await tx.run(note, record.value.decode())
        await tx.publish("out", record.value)
        if record.value == b"2" and len(kept) < 4:
            raise ValueError("once")

    await with_notes(db)
    await db.admin.create_topic("out")
    await filled(db, 4)
    await db.process("t", handle, retry_backoff_ms=0, **IDLE)
    assert await notes(db) == await values(db, "out") == ["0", "1", "2", "3"]
    assert len(kept) == 5
    with pytest.raises(eosdb.errors.InvalidRequestError, match="is over"):
        await kept[0].publish("out", "late")


async def test_a_handler_of_batches_is_awaited_with_a_list(db: AsyncDatabase) -> None:
    lists: list[list[bytes]] = []

    async def handle(records: list[Record], tx: AsyncUserTransaction) -> list[bytes]:
        lists.append([record.value for record in records])
        for index, record in enumerate(records):
            await tx.run(note, record.value.decode())
            if record.value == b"2":
                raise eosdb.BatchFailed(index, ValueError("no 2"))
        return [record.value for record in records]

    await with_notes(db)
    await db.admin.create_topic("out")
    await filled(db, 5)
    settings: Any = {"max_attempts": 1, "dead_letter_topic": "dead", **IDLE}
    await db.process("t", handle, "out", batch=True, **settings)
    assert lists == [[b"0", b"1", b"2", b"3", b"4"], [b"0", b"1"], [b"3", b"4"]]
    assert await notes(db) == await values(db, "out") == ["0", "1", "3", "4"]
    assert await values(db, "dead") == ["2"]


async def test_several_records_are_awaited_at_once_and_each_key_in_order(
    db: AsyncDatabase,
) -> None:
    """All but those of one key are there before the first is let go."""
    begun, gate = list[bytes](), asyncio.Event()

    async def handle(record: Record) -> bytes:
        begun.append(record.value)
        await gate.wait()
        return record.value

    for topic in ("many", "out"):
        await db.admin.create_topic(topic)
    async with db.producer() as producer:
        for value in ("a1", "a2", "b1", "c1", "d1"):
            await producer.send_and_wait("many", value, key=value[0])
    running = asyncio.create_task(db.process("many", handle, "out", concurrency=4, **IDLE))
    while len(begun) < 4:
        await asyncio.sleep(0)
    assert sorted(begun) == [b"a1", b"b1", b"c1", b"d1"]
    gate.set()
    assert (await running).processed == 5
    assert begun[4] == b"a2"
    assert sorted(await values(db, "out")) == ["a1", "a2", "b1", "c1", "d1"]


async def test_its_name_here_is_concurrency(db: AsyncDatabase) -> None:
    with pytest.raises(eosdb.ConfigError, match="workers: got 2; here it is called concurrency"):
        await db.process("t", coroutine, workers=2, **IDLE)


@pytest.mark.parametrize("batch", [False, True])
async def test_a_handler_that_is_awaited_postpones_a_record(db: AsyncDatabase, batch: bool) -> None:
    """Its rows are undone; a list goes as a whole, or the one that it names."""
    due = eosdb.SystemClock().time_ms() + 3_600_000

    async def one(record: Record, tx: AsyncUserTransaction) -> bytes:
        await tx.run(note, record.value.decode())
        if record.value == b"1":
            raise eosdb.RetryAt(due)
        return record.value

    async def several(records: list[Record], tx: AsyncUserTransaction) -> list[bytes]:
        for index, record in enumerate(records):
            await tx.run(note, record.value.decode())
            if record.value == b"1":
                raise eosdb.BatchFailed(index, eosdb.RetryAt(due))
        return [record.value for record in records]

    await with_notes(db)
    await db.admin.create_topic("out")
    await filled(db, 3)
    report = await db.process("t", several if batch else one, "out", batch=batch, **IDLE)
    assert (report.processed, report.postponed, report.failed) == (2, 1, 0)
    assert await notes(db) == await values(db, "out") == ["0", "2"]
    (waiting,) = await db.admin.list_scheduled()
    assert (waiting.value, waiting.deliver_at) == (b"1", due)


async def test_other_writes_of_a_handler_with_a_transaction_are_refused_at_once(
    db: AsyncDatabase,
) -> None:
    await filled(db, 1)
    async with db.producer() as producer:

        async def handle(record: Record, tx: AsyncUserTransaction) -> None:
            with pytest.raises(eosdb.IllegalStateError, match="handler with a transaction"):
                await producer.send_and_wait("t", "x")
            with pytest.raises(eosdb.IllegalStateError):
                db.begin()

        await db.process("t", handle, **IDLE)


async def test_a_plain_handler_is_called_in_another_thread(db: AsyncDatabase) -> None:
    def handle(record: Record) -> bytes:
        assert threading.current_thread() is not threading.main_thread()
        return record.value

    await filled(db, 2)
    await db.admin.create_topic("out")
    await db.process("t", handle, "out", **IDLE)
    assert await values(db, "out") == ["0", "1"]


async def test_records_that_fail_for_good_go_where_they_go(db: AsyncDatabase) -> None:
    async def fail(record: Record) -> None:
        await asyncio.sleep(0)
        raise ValueError("always")

    await filled(db, 2)
    await db.process("t", fail, dead_letter_topic="dead", retry_backoff_ms=0, **IDLE)
    assert await values(db, "dead") == ["0", "1"]
    with pytest.raises(eosdb.errors.HandlerFailedError):
        await db.process("dead", fail, retry_backoff_ms=0, group_id="h", until_idle_ms=50)


@pytest.mark.parametrize(("parameters", "concurrency"), [(1, 1), (1, 3), (2, 1)])
async def test_a_cancelled_run_loses_and_doubles_nothing(
    db: AsyncDatabase, parameters: int, concurrency: int
) -> None:
    """Cancelled at each step of a handler, in turn: before, between and behind its awaits."""
    steps = Counter[str]()

    async def step(task: asyncio.Task[Any], at: int) -> None:
        steps["taken"] += 1
        if steps["taken"] == at:
            task.cancel()
        await asyncio.sleep(0)

    await with_notes(db)
    await db.admin.create_topic("out")
    await filled(db, 12)
    runs = 0

    async def one(task: asyncio.Task[Any], at: int, record: Record) -> bytes:
        await step(task, at)
        await step(task, at)
        return record.value

    async def two(
        task: asyncio.Task[Any], at: int, record: Record, tx: AsyncUserTransaction
    ) -> bytes:
        await step(task, at)
        await tx.run(note, record.value.decode())
        await step(task, at)
        return record.value

    async def attempt(at: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        handler = partial(one if parameters == 1 else two, task, at)
        settings = {"concurrency": concurrency, "transaction_size": 2, "max_attempts": 1, **IDLE}
        await db.process("t", handler, "out", **settings)

    for runs in range(1, 100):
        steps.clear()
        try:
            await asyncio.create_task(attempt(runs % 7))
        except asyncio.CancelledError:
            continue
        break
    assert runs > 1
    numbers = sorted(range(12), key=str)
    assert sorted(await values(db, "out")) == [str(number) for number in numbers]
    if parameters == 2:
        assert sorted(await notes(db)) == [str(number) for number in numbers]


async def test_a_cancelled_handler_has_its_transaction_until_it_has_ended(
    db: AsyncDatabase,
) -> None:
    """What it does about the cancellation is part of it, and undone with it, or kept if it goes on."""
    await with_notes(db)
    await filled(db, 1)
    begun = asyncio.Event()

    async def handle(goes_on: bool, record: Record, tx: AsyncUserTransaction) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await tx.run(note, "cancelled")
            if not goes_on:
                raise

    for goes_on in (False, True):
        begun.clear()
        running = asyncio.create_task(db.process("t", partial(handle, goes_on), group_id="g"))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await notes(db) == ["cancelled"] * goes_on


async def test_a_cancelled_run_waits_for_all_of_its_handlers(db: AsyncDatabase) -> None:
    begun, ended = set[bytes](), set[bytes]()

    async def handle(record: Record) -> None:
        begun.add(record.value)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1 * int(record.value))
            ended.add(record.value)

    async with db.producer() as producer:
        await db.admin.create_topic("t", exist_ok=True)
        for value in (b"0", b"1", b"2"):
            await producer.send_and_wait("t", value)
    running = asyncio.create_task(db.process("t", handle, group_id="g", concurrency=3))
    while len(begun) < 3:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == begun


async def test_a_run_that_waits_for_records_is_cancelled_at_once(db: AsyncDatabase) -> None:
    done = asyncio.Event()

    async def handle(record: Record) -> None:
        done.set()

    await filled(db, 1)
    running = asyncio.create_task(db.process("t", handle, group_id="g"))
    await done.wait()
    while not (await db.query("SELECT 1 FROM consumer_offsets")).rows:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_sigterm_finishes_what_is_in_hand_in_all_runs_of_the_loop(db: AsyncDatabase) -> None:
    await filled(db, 2)
    begun, goes_on = set[str](), asyncio.Event()

    async def handle(group: str, record: Record) -> bytes:
        begun.add(group)
        await goes_on.wait()
        return record.value

    await db.admin.create_topic("out")
    runs = [
        asyncio.create_task(db.process("t", partial(handle, group), "out", group_id=group))
        for group in "ab"
    ]
    while len(begun) < 2:
        await asyncio.sleep(0.01)
    signal.raise_signal(signal.SIGTERM)
    for _ in range(10):  # The loop reads the signal, and calls its handler.
        await asyncio.sleep(0)
    goes_on.set()
    reports = await asyncio.gather(*runs)
    assert [(report.processed, report.aborts) for report in reports] == [(1, 0), (1, 0)]
    assert await values(db, "out") == ["0", "0"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_sigterm_is_left_to_a_program_that_handles_it(db: AsyncDatabase) -> None:
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, heard.set)
    try:
        running = asyncio.create_task(db.process("t", lambda _: None, group_id="g"))
        await asyncio.sleep(0)
        signal.raise_signal(signal.SIGTERM)
        await heard.wait()
        assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_closing_the_database_ends_a_run(db: AsyncDatabase, tmp_path: Path) -> None:
    """The record in hand has not failed: the next run has it."""
    await filled(db, 1)
    begun = asyncio.Event()

    async def handle(record: Record) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with eosdb.aio.connect(tmp_path / "t.db") as other:
        running = asyncio.create_task(other.process("t", handle, group_id="g"))
        await begun.wait()
    with pytest.raises(eosdb.DatabaseClosedError):
        await running
    found = await db.process("t", lambda _: None, **IDLE)
    assert found.processed == 1


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_loop_that_is_closed_leaves_no_thread(tmp_path: Path, concurrency: int) -> None:
    async def begin() -> None:
        db = await eosdb.aio.connect(tmp_path / "t.db")
        await db.admin.create_topic("t")
        await filled(db, 1)
        begun = asyncio.Event()

        async def handle(record: Record) -> None:
            begun.set()
            await asyncio.Event().wait()

        running = db.process("t", handle, group_id="g", concurrency=concurrency)
        asyncio.ensure_future(running)  # noqa: RUF006
        await begun.wait()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    no_thread_is_left()
    gc.collect()  # asyncio complains of the tasks that were left, and no other test may hear it.


async def coroutine(record: Record) -> None: ...


async def generator(record: Record) -> AsyncIterator[bytes]:
    yield b""


class Object:
    async def __call__(self, record: Record) -> None: ...


@pytest.mark.parametrize("handler", [coroutine, generator, Object(), partial(coroutine)])
def test_an_asynchronous_handler_is_refused_where_nobody_awaits_it(
    handler: Any, db_path: Path
) -> None:
    """At the call, and not as a record that fails three times."""
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        with pytest.raises(eosdb.ConfigError, match=r"asynchronous.*eosdb\.aio"):
            eosdb.process(db, "t", handler, **IDLE)
