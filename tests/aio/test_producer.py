"""The producer for asyncio: what shares a commit, what keeps its order, and whose error an error is."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import eosdb
from eosdb import ConfigError, IllegalStateError, TopicPartition
from eosdb.aio import AsyncDatabase, AsyncProducer
from tests.aio.running import values

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)


async def test_a_misspelt_keyword_is_refused_before_anything_is_queued(db: AsyncDatabase) -> None:
    async with db.producer() as producer, db.begin() as tx:
        calls: list[Any] = [producer.send, producer.send_and_wait, tx.publish]
        for call in calls:
            with pytest.raises(TypeError, match="deliver"):
                await call("t", "a", deliver=5)


@pytest.mark.parametrize("producers", [1, 50])
async def test_fifty_tasks_share_commits(db: AsyncDatabase, producers: int) -> None:
    made = [db.producer() for _ in range(producers)]
    for producer in made:
        await producer.start()
    before = (await db.run(eosdb.Database.metrics))["commit-total"]

    async def send(number: int) -> None:
        for place in range(10):
            found = await made[number % producers].send_and_wait("t", f"{number} {place}")
            assert found.topic == "t"

    await asyncio.gather(*(send(number) for number in range(50)))
    commits = (await db.run(eosdb.Database.metrics))["commit-total"] - before
    assert commits <= 250
    assert len(await values(db)) == 500


async def test_transactions_of_several_producers_share_a_commit(db: AsyncDatabase) -> None:
    """While another write has the lead, their commits wait for the next round."""

    def hold(_: object) -> None:
        entered.set()
        assert go.wait(60)

    entered, go = threading.Event(), threading.Event()
    producers = [db.producer(transactional_id=f"p{i}") for i in range(8)]
    for i, producer in enumerate(producers):
        await producer.start()
        await producer.begin_transaction()
        await producer.send("t", f"{i}")
        await producer.flush()
    before = (await db.run(eosdb.Database.metrics))["commit-total"]
    held = asyncio.create_task(db.run(lambda inner: inner._store.write(hold, sync=False)))
    await asyncio.to_thread(entered.wait)
    commits = [asyncio.create_task(producer.commit_transaction()) for producer in producers]
    while len(db._of._store._group._queue) < 9:
        await asyncio.sleep(0)
    go.set()
    await asyncio.gather(held, *commits)
    assert (await db.run(eosdb.Database.metrics))["commit-total"] - before == 2
    assert sorted(await values(db)) == [f"{i}" for i in range(8)]


async def test_records_keep_the_order_of_their_task_and_wait_for_room(db: AsyncDatabase) -> None:
    async with db.producer() as producer:
        futures = [await producer.send("t", str(i)) for i in range(2_500)]
        assert futures[0].done(), "2,500 records were queued without waiting for room"
        await producer.flush()
        assert all(future.done() for future in futures)
        assert [future.result().offset for future in futures] == list(range(2_500))
    assert await values(db) == [str(i) for i in range(2_500)]


async def test_a_record_without_its_task_is_stored_when_the_producer_stops(
    db: AsyncDatabase,
) -> None:
    async with db.producer() as producer:
        (await producer.send("t", "a")).cancel()
    assert await values(db) == ["a"]


async def test_an_error_of_a_record_is_the_error_of_who_waits_for_it(db: AsyncDatabase) -> None:
    async with db.producer() as producer:
        good, bad = await producer.send("t", "a"), await producer.send("t", object())
        with pytest.raises(TypeError, match="value_serializer"):
            await bad
        with pytest.raises(eosdb.errors.UnknownTopicOrPartitionError):
            await producer.send_and_wait("t", "b", partition=7)
        assert (await good).offset == 0
        sent = await producer.send_many("t", ["c", ("key", "d")])
        assert sent.stored == 2
        assert await producer.partitions_for("t") == 1
        assert (await producer.metrics())["record-send-total"] == 3


async def test_a_transaction_that_lacks_a_record_is_not_committed(db: AsyncDatabase) -> None:
    async with db.producer(transactional_id="p") as producer:
        with pytest.raises(TypeError, match="value_serializer"):
            async with producer.transaction() as token:
                await producer.send("t", "a")
                await producer.send("t", object())  # Nobody looks at the future.
        assert await db.outcome(token) != "committed"
        await producer.begin_transaction()
        await producer.send("t", object())
        for _ in range(2):
            with pytest.raises(TypeError):
                await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction() as token:
            await producer.send("t", "b")
        assert await db.outcome(token) == "committed"
    assert await values(db) == ["b"]


async def test_what_is_read_and_what_is_written_go_together(db: AsyncDatabase) -> None:
    await db.admin.create_topic("out")
    async with db.producer() as producer:
        await producer.send_many("t", map(str, range(20)))
    async with (
        db.producer(transactional_id="p") as producer,
        db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer,
    ):
        async for record in consumer:
            async with producer.transaction():
                await producer.send("out", record.value)
                await producer.send_offsets_to_transaction(
                    await consumer.position_offsets(), await consumer.group_metadata()
                )
            if record.offset == 9:
                break
        assert (await consumer.committed([TP]))[TP].offset == 10
    assert await values(db, "out") == [str(i) for i in range(10)]


async def test_calls_out_of_order_are_refused(db: AsyncDatabase) -> None:
    producer: AsyncProducer = db.producer()
    with pytest.raises(IllegalStateError, match="has not been started"):
        await producer.send("t", "a")
    await producer.start()
    with pytest.raises(IllegalStateError, match="started once"):
        await producer.start()
    with pytest.raises(IllegalStateError, match="transactional_id"):
        await producer.begin_transaction()
    await producer.stop()
    await producer.stop()
    with pytest.raises(IllegalStateError, match="stopped"):
        await producer.send("t", "a")
    with pytest.raises(ConfigError, match="retries"):
        db.producer(retries=0)
    with pytest.raises(ConfigError, match="unknown"):
        db.producer(bootstrap_servers="x")  # type: ignore[call-arg]
