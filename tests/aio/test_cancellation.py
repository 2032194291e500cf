"""Every call of `eosdb.aio` is cancelled at each of its awaits: it is as if it had not been called, or as
if it had completed, and what is called next works."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import eosdb
import eosdb.aio
from eosdb import TopicPartition
from eosdb.aio import AsyncConsumer, AsyncDatabase
from tests.aio.cancelling import ONCE, cancel_everywhere
from tests.aio.running import filled, no_thread_is_left, run_alone, values

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)


def test_a_database_that_is_opened_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    eosdb.connect(path).close()

    async def scenario(number: int) -> None:
        async with eosdb.aio.connect(path) as db:
            await db.admin.list_topics()
            await db.admin.create_topic(f"t{number}")

    async def check(number: int) -> None:
        no_thread_is_left()

    async def main() -> None:
        print("cancellations:", await cancel_everywhere(scenario, check))

    run_alone(main)


async def test_records_that_are_sent(db: AsyncDatabase) -> None:
    async def send(number: int) -> None:
        async with db.producer() as producer:
            await producer.send_and_wait("t", f"{number} a")
            await producer.send("t", f"{number} b")
            await producer.flush()
            await producer.send_many("t", [f"{number} c"])
            await producer.partitions_for("t")

    async def check(number: int) -> None:
        async with db.producer() as producer:
            await producer.send_and_wait("t", f"{number} end")
        mine = [v.split()[1] for v in await values(db) if v.startswith(f"{number} ")]
        assert mine in (["end"], ["a", "end"], ["a", "b", "end"], ["a", "b", "c", "end"])

    print("cancellations:", await cancel_everywhere(send, check))


async def test_a_transaction(db: AsyncDatabase) -> None:
    tokens: dict[int, eosdb.TransactionToken] = {}

    async def transact(number: int) -> None:
        async with (
            db.producer(transactional_id=f"p{number}") as producer,
            producer.transaction() as tokens[number],
        ):
            await producer.send_and_wait("t", f"{number} a")
            await producer.send("t", f"{number} b")
            await producer.send_offsets_to_transaction({TP: number}, "g")

    async def check(number: int) -> None:
        mine = [v.split()[1] for v in await values(db) if v.startswith(f"{number} ")]
        assert mine in ([], ["a", "b"])
        if number in tokens:
            expected = {"committed"} if mine else {"aborted", "never started"}
            assert await db.outcome(tokens[number]) in expected
        assert not await db.admin.open_transactions()

    print("cancellations:", await cancel_everywhere(transact, check))


async def test_a_transaction_that_is_begun_and_ended_by_hand(db: AsyncDatabase) -> None:
    async with db.producer(transactional_id="p") as producer:

        async def transact(number: int) -> None:
            await producer.begin_transaction()
            try:
                await producer.send_and_wait("t", f"{number} a")
                await producer.send("t", f"{number} b")
            except BaseException:
                await producer.abort_transaction()
                raise
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.abort_transaction()

        async def check(number: int) -> None:
            await producer.flush()  # Whatever is queued is done.
            assert producer.state == "READY"
            mine = [v.split()[1] for v in await values(db) if v.startswith(f"{number} ")]
            assert mine in ([], ["a", "b"])

        print("cancellations:", await cancel_everywhere(transact, check))


async def test_a_block_of_begin(db: AsyncDatabase) -> None:
    async with db.begin() as tx:
        await tx.run(lambda sql: sql.exec_driver_sql("CREATE TABLE mine (number INTEGER)"))

    async def write(number: int) -> None:
        async with db.begin() as tx:
            await tx.run(lambda sql: sql.exec_driver_sql("INSERT INTO mine VALUES (?)", (number,)))
            await tx.publish("t", str(number))
            await tx.commit_offsets("g", {TP: number})

    async def check(number: int) -> None:
        rows = (await db.query("SELECT number FROM mine WHERE number = ?", [number])).rows
        records = [v for v in await values(db) if v == str(number)]
        assert [str(n) for (n,) in rows] == records
        async with asyncio.timeout(30), db.begin() as tx:
            await tx.publish("t", "another")

    print("cancellations:", await cancel_everywhere(write, check))


async def test_records_that_are_read(db: AsyncDatabase) -> None:
    """Nothing is lost, nothing comes twice, and a commit never gets ahead of what has been delivered."""
    await filled(db, 60)
    consumers: dict[int, AsyncConsumer] = {}
    seen: dict[int, list[str]] = {}

    async def read(number: int) -> None:
        delivered = seen.setdefault(number, [])
        consumer = consumers[number] = db.consumer(
            group_id=f"g{number}", auto_offset_reset="earliest", max_poll_records=10
        )
        await consumer.start()
        await consumer.assign([TP])
        for records in (await consumer.getmany(timeout_ms=1000, max_records=7)).values():
            delivered += [r.value.decode() for r in records]
        await consumer.commit()
        delivered.append((await consumer.getone()).value.decode())
        async for record in consumer:
            delivered.append(record.value.decode())
            if len(delivered) == 13:
                break
        await consumer.commit()
        assert await consumer.position(TP) == 13
        await consumer.lag()
        await consumer.seek(TP, 13)
        await consumer.pause(TP)
        await consumer.resume(TP)
        await consumer.committed([TP])
        await consumer.end_offsets([TP])
        delivered.append((await consumer.getone(TP)).value.decode())

    async def check(number: int) -> None:
        if number not in consumers:
            return
        consumer, delivered = consumers[number], seen[number]
        await consumer.partitions_for("t")  # What went on without its task is done.
        if TP in consumer.assignment():
            committed = await consumer.committed([TP])
            assert not committed or committed[TP].offset <= len(delivered)
            assert await consumer.position(TP) == len(delivered)
            await consumer.resume(TP)
            while len(delivered) < 60:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    delivered += [r.value.decode() for r in records]
            assert delivered == [str(i) for i in range(60)]
        await consumer.stop()

    print("cancellations:", await cancel_everywhere(read, check))


async def test_a_group_that_is_joined_and_left(db: AsyncDatabase) -> None:
    """With auto-commit: each record is delivered at least once, and what is committed was delivered."""
    await filled(db, 40)
    seen: dict[int, list[int]] = {}

    async def read(number: int) -> None:
        delivered = seen.setdefault(number, [])
        async with db.consumer(
            "t", group_id=f"g{number}", auto_offset_reset="earliest",
            enable_auto_commit=True, auto_commit_interval_ms=0, max_poll_records=10,
        ) as consumer:  # fmt: skip
            async for record in consumer:
                delivered.append(record.offset)
                if len(delivered) == 13:
                    break
            for records in (await consumer.getmany(timeout_ms=1000, max_records=4)).values():
                delivered += [r.offset for r in records]

    async def check(number: int) -> None:
        delivered = seen.get(number, [])
        async with db.consumer(group_id=f"g{number}") as other:
            committed = (await other.committed([TP])).get(TP)
        assert (committed.offset if committed else 0) <= len(delivered)
        assert delivered == list(range(len(delivered)))

    print("cancellations:", await cancel_everywhere(read, check))


async def test_somebody_who_waits_in_a_queue(db: AsyncDatabase) -> None:
    """For a turn, for the lock of another process or thread, for room, or for another reader's poll."""
    async with (
        db.producer() as producer,
        db.consumer("t", auto_offset_reset="earliest") as consumer,
    ):

        async def wait(number: int) -> None:
            async with db.begin() as tx:
                waiting = [
                    asyncio.create_task(coroutine)
                    for coroutine in (
                        begin(),
                        producer.send_and_wait("t", f"{number} a"),
                        db.admin.list_topics(),
                        consumer.getone(),
                        consumer.getone(),
                    )
                ]
                try:
                    for _ in range(3):
                        await asyncio.sleep(0)
                    await tx.publish("t", f"{number} b")
                finally:
                    for task in waiting:
                        task.cancel()
                    await asyncio.wait(waiting)

        async def begin() -> None:
            async with db.begin() as tx:
                await tx.publish("t", "never")

        async def check(number: int) -> None:
            async with asyncio.timeout(30), db.begin() as tx:
                await tx.publish("t", f"{number} end")
            await producer.send_and_wait("t", f"{number} sent")
            found = [v.split()[1] for v in await values(db) if v.startswith(f"{number} ")]
            # "a" is the producer's until it is sent, which may be behind the block of "end".
            in_block = [value for value in found if value != "a"]
            assert found[-1] == "sent"
            assert found.count("a") <= 1
            assert in_block in (["end", "sent"], ["b", "end", "sent"])
            while (await consumer.getone()).value.decode() != f"{number} sent":
                pass

        print("cancellations:", await cancel_everywhere(wait, check, ONCE))
    assert "never" not in await values(db)


async def test_a_rebalance_with_callbacks(db: AsyncDatabase) -> None:
    await filled(db, 20)
    seen: dict[int, list[int]] = {}
    committed: dict[int, int] = {}

    async def read(number: int) -> None:
        delivered = seen.setdefault(number, [])

        async def revoked(partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            await consumer.commit()
            committed[number] = len(delivered)

        consumer = db.consumer(
            group_id=f"g{number}", auto_offset_reset="earliest", max_poll_records=5
        )
        async with consumer:
            await consumer.subscribe("t", on_revoke=revoked)
            for _ in range(7):
                delivered.append((await consumer.getone()).offset)
            await consumer.unsubscribe()
            await consumer.assign([TP])
            delivered.append((await consumer.getone()).offset)
            await consumer.seek_to_beginning()
            await consumer.seek_to_end(TP)
            await consumer.position_offsets()
            await consumer.paused()
            await consumer.partitions_for("t")
            await consumer.beginning_offsets([TP])
            await consumer.offsets_for_times({TP: 0})
            await consumer.group_metadata()
            await consumer.metrics()

    async def check(number: int) -> None:
        delivered = seen.get(number, [])
        assert delivered == [*range(min(len(delivered), 7)), *[7][: len(delivered) - 7]]
        async with db.consumer(group_id=f"g{number}") as other:
            found = (await other.committed([TP])).get(TP)
        assert (found.offset if found else 0) == committed.get(number, 0)
        assert committed.get(number, 0) == min(len(delivered), 7) or not delivered

    print("cancellations:", await cancel_everywhere(read, check, ONCE))


async def test_what_reads_and_what_administers(db: AsyncDatabase) -> None:
    async def use(number: int) -> None:
        await db.query("SELECT 1")
        await db.columns("committed_records")
        await db.admin.create_topic(f"t{number}")
        await db.admin.journal()
        await db.run(eosdb.Database.housekeeping)
        await db.append_once("s", number, {TP: [eosdb.Record(value=b"a")]})
        async with db.producer(transactional_id="p") as producer:
            await producer.metrics()

    async def check(number: int) -> None:
        again = await db.append_once("s", number, {TP: [eosdb.Record(value=b"a")]})
        stored = await db.query("SELECT count(*) FROM committed_records WHERE topic = 't'")
        assert again.skipped or again.offsets
        assert stored.rows == [(number + 1,)]
        await db.admin.create_topic(f"u{number}")

    print("cancellations:", await cancel_everywhere(use, check))
