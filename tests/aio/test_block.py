"""Blocks of `db.begin()` across awaits: who waits for whom, and who must not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

import eosdb
import eosdb.aio
from eosdb import BrokerConfig, DatabaseLockedError, IllegalStateError, TopicPartition
from eosdb.aio import AsyncDatabase
from tests.aio.running import run_alone, values

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)


def insert(sql: Connection, number: int) -> int:
    sql.execute(text("INSERT INTO mine VALUES (:number)"), {"number": number})
    return number


def create(sql: Connection) -> None:
    sql.execute(text("CREATE TABLE mine (number INTEGER)"))


async def rows(db: AsyncDatabase) -> list[int]:
    return [number for (number,) in (await db.query("SELECT number FROM mine")).rows]


async def test_a_block_is_all_or_nothing(db: AsyncDatabase) -> None:
    async with db.begin() as tx:
        await tx.run(create)
        assert await tx.run(insert, number=1) == 1
        found = await tx.publish("t", "1", idempotency_key="one")
        assert (found.offset, found.duplicate) == (0, False)
        await tx.commit_offsets("g", {TP: 1})
    with pytest.raises(eosdb.errors.InvalidRequestError, match="is over"):
        await tx.publish("t", "late")
    with pytest.raises(ZeroDivisionError):
        async with db.begin() as tx:
            await tx.run(insert, 2)
            await tx.publish("t", "2")
            raise ZeroDivisionError
    assert (await rows(db), await values(db)) == ([1], ["1"])


async def test_blocks_take_turns_in_the_order_of_asking(db: AsyncDatabase) -> None:
    async with db.begin() as tx:
        await tx.run(create)

    async def write(number: int) -> None:
        async with db.begin() as tx:
            await tx.run(insert, number)
            await asyncio.sleep(0)
            await tx.publish("t", str(number))

    await asyncio.gather(*(write(number) for number in range(20)))
    assert await rows(db) == list(range(20))
    assert await values(db) == [str(number) for number in range(20)]


async def test_others_write_when_the_block_is_over_and_read_all_the_time(db: AsyncDatabase) -> None:
    async with db.producer() as producer:
        async with db.begin() as tx:
            writing = [
                asyncio.create_task(coroutine)
                for coroutine in (
                    *(producer.send_and_wait("t", f"other {n}") for n in range(20)),
                    *(db.admin.create_topic(f"t{n}") for n in range(20)),
                )
            ]
            for _ in range(10):
                assert await values(db) == []
                assert await db.admin.list_topics() == ["t"]
            await tx.publish("t", "mine")
            assert not any(task.done() for task in writing)
        await asyncio.gather(*writing)
    assert (await values(db))[0] == "mine"
    assert len(await values(db)) == 21


async def test_a_task_that_would_wait_for_itself_is_told(db: AsyncDatabase) -> None:
    async with db.producer() as producer, db.consumer("t", group_id="g") as consumer:
        async with db.begin() as tx:
            for call in (
                producer.send("t", "a"),
                db.admin.create_topic("u"),
                consumer.commit(),
                db.run(eosdb.Database.verify),
                db.close(),
            ):
                with pytest.raises(IllegalStateError, match=r"inside a block of db\.begin"):
                    await call
            with pytest.raises(IllegalStateError, match=r"inside a block of db\.begin"):
                async with db.begin():
                    pass
            await tx.publish("t", "b")
        await producer.send_and_wait("t", "c")
    assert await values(db) == ["b", "c"]


def test_nobody_waits_for_ever_for_a_turn(tmp_path: Path) -> None:
    async def main() -> None:
        config = BrokerConfig(lock_timeout_ms=50)
        async with eosdb.aio.connect(tmp_path / "t.db", config=config) as db:

            async def another() -> None:
                with pytest.raises(DatabaseLockedError, match="50 ms"):
                    async with db.begin():
                        pass

            async with db.begin():
                await asyncio.create_task(another())
            async with db.begin():
                pass

    run_alone(main)
