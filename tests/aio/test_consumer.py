"""The consumer for asyncio: what has been polled and not delivered counts nowhere, and is never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from eosdb import ConsumerRecord, IllegalStateError, OffsetAndMetadata, TopicPartition
from eosdb.aio import AsyncConsumer, AsyncDatabase
from eosdb.errors import InvalidRequestError
from tests.aio.running import filled, run

pytestmark = pytest.mark.slow

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def numbers(records: Iterable[ConsumerRecord]) -> list[int]:
    return [int(record.value) for record in records]


def reading(db: AsyncDatabase, group_id: str | None = "g", records: int = 10) -> AsyncConsumer:
    return db.consumer(
        "t", group_id=group_id, auto_offset_reset="earliest", max_poll_records=records
    )


async def test_positions_are_those_of_delivery(db: AsyncDatabase) -> None:
    await filled(db, 20)
    async with reading(db) as consumer:
        assert numbers([await consumer.getone(), await consumer.getone()]) == [0, 1]
        assert await consumer.position(TP) == 2
        assert await consumer.position_offsets() == {TP: OffsetAndMetadata(2)}
        assert int((await consumer.lag())[TP]) == 18
        await consumer.commit()
        assert (await consumer.committed([TP]))[TP].offset == 2
        await consumer.commit({TP: 1})
        assert (await consumer.committed([TP]))[TP].offset == 1
        assert numbers((await consumer.getmany(max_records=3))[TP]) == [2, 3, 4]
        assert await consumer.position(TP) == 5


async def test_what_is_polled_again_comes_in_order(db: AsyncDatabase) -> None:
    await filled(db, 30)
    async with reading(db) as consumer:
        await consumer.getone()
        with pytest.raises(InvalidRequestError, match="offset"):
            await consumer.seek(TP, -1)
        assert numbers([await consumer.getone()]) == [1]
        await consumer.pause(TP)
        assert await consumer.paused() == {TP}
        assert await consumer.getmany(timeout_ms=10) == {}
        await consumer.resume(TP)
        assert numbers([await consumer.getone()]) == [2]
        await consumer.seek(TP, 25)
        assert numbers([await consumer.getone()]) == [25]
        await consumer.seek_to_beginning()
        assert numbers([await consumer.getone()]) == [0]
        await consumer.assign([TP])
        assert numbers([await consumer.getone()]) == [0]
        await consumer.seek_to_end(TP)
        assert await consumer.position(TP) == 30
        await consumer.unsubscribe()
        assert consumer.assignment() == set()
        with pytest.raises(IllegalStateError, match="subscribe"):
            await consumer.getone()


async def test_a_seek_while_a_poll_is_on_its_way_discards_what_that_finds(
    db: AsyncDatabase,
) -> None:
    await filled(db, 30)
    async with reading(db) as consumer:
        first = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0)  # It polls now.
        await consumer.seek(TP, 20)
        assert numbers([await first, await consumer.getone()]) == [20, 21]


def test_partitions_that_are_not_asked_for_lose_nothing(tmp_path: Path) -> None:
    async def scenario(db: AsyncDatabase) -> None:
        for partition in (0, 1):
            await filled(db, 30, partition)
        async with reading(db) as consumer:
            found: dict[TopicPartition, list[int]] = {TP: [], OTHER: []}
            found[TP] += numbers([await consumer.getone(TP)])
            while sum(map(len, found.values())) < 60:
                for wanted in ((OTHER,), (TP,), ()):
                    got = await consumer.getmany(*wanted, timeout_ms=10, max_records=4)
                    assert set(got) <= (set(wanted) or found.keys())
                    assert sum(map(len, got.values())) <= 4
                    for tp, records in got.items():
                        found[tp] += numbers(records)
            assert found == {TP: list(range(30)), OTHER: list(range(30))}

    run(tmp_path, scenario, partitions=2)


async def test_tasks_that_read_side_by_side_share_the_records(db: AsyncDatabase) -> None:
    await filled(db, 40)
    async with reading(db) as consumer:
        found = await asyncio.gather(*(consumer.getone() for _ in range(40)))
        assert sorted(numbers(found)) == list(range(40))


async def test_records_arrive_while_somebody_waits(db: AsyncDatabase) -> None:
    async with reading(db) as consumer, db.producer() as producer:
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0)
        await producer.send_and_wait("t", "7")
        assert numbers([await waiting]) == [7]


async def test_a_consumer_that_is_stopped_ends_the_loops_over_it(db: AsyncDatabase) -> None:
    await filled(db, 3)
    consumer = reading(db)
    await consumer.start()
    seen: list[ConsumerRecord] = []

    async def loop() -> None:
        async for record in consumer:
            seen.append(record)

    looping = asyncio.create_task(loop())
    waiting = asyncio.create_task(consumer.getone(OTHER))
    while len(seen) < 3:
        await asyncio.sleep(0)
    await consumer.stop()
    await looping
    with pytest.raises(IllegalStateError, match="stopped"):
        await waiting
    with pytest.raises(IllegalStateError, match="stopped"):
        await consumer.commit()


def test_callbacks_run_on_the_loop_and_may_ask_the_consumer(tmp_path: Path) -> None:
    async def scenario(db: AsyncDatabase) -> None:
        for partition in (0, 1):
            await filled(db, 10, partition)
        loop, events = asyncio.get_running_loop(), []
        async with db.consumer(group_id="g", auto_offset_reset="earliest") as first:

            async def revoked(partitions: list[TopicPartition]) -> None:
                assert asyncio.get_running_loop() is loop
                await first.commit()
                with pytest.raises(IllegalStateError, match="callback"):
                    await first.getone()
                events.append((partitions, await first.committed(partitions)))

            await first.subscribe("t", on_revoke=revoked, on_assign=lambda given: None)
            got = numbers(
                [await first.getone(TP), await first.getone(TP), await first.getone(OTHER)]
            )
            assert got == [0, 1, 0]
            async with db.consumer("t", group_id="g") as second:
                while not (second.assignment() and len(first.assignment()) == 1):
                    await asyncio.gather(first.getmany(TopicPartition("t", 2)), second.getmany())
            partitions, committed = events[0]
            assert partitions == [TP, OTHER]
            assert {tp: found.offset for tp, found in committed.items()} == {TP: 2, OTHER: 1}

    run(tmp_path, scenario, partitions=2)


async def test_an_error_of_a_callback_or_a_deserializer_is_the_readers(db: AsyncDatabase) -> None:
    await filled(db, 5)

    def refuse(partitions: list[TopicPartition]) -> None:
        raise ZeroDivisionError

    async with db.consumer(group_id="g") as consumer:
        with pytest.raises(ZeroDivisionError):
            await consumer.subscribe("t", on_assign=refuse)
            await consumer.getone()

    def deserialized(data: bytes) -> int:
        return 10 // (3 - int(data))

    async with db.consumer(
        "t", auto_offset_reset="earliest", value_deserializer=deserialized
    ) as consumer:
        assert [(await consumer.getone()).value for _ in range(3)] == [3, 5, 10]
        with pytest.raises(ZeroDivisionError):
            await consumer.getone()
        assert await consumer.position(TP) == 3
        await consumer.seek(TP, 4)
        assert (await consumer.getone()).value == -10


async def test_a_call_that_waits_for_a_transaction_can_be_given_up(db: AsyncDatabase) -> None:
    await filled(db, 1)
    async with db.producer(transactional_id="p") as producer, reading(db) as consumer:
        await consumer.getone()
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TP: 1}, "g")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await consumer.committed([TP])
            assert await consumer.position(TP) == 1
        assert (await consumer.committed([TP]))[TP].offset == 1


async def test_calls_out_of_order_are_refused(db: AsyncDatabase) -> None:
    consumer = reading(db)
    with pytest.raises(IllegalStateError, match="has not been started"):
        await consumer.getone()
    await consumer.start()
    with pytest.raises(IllegalStateError, match="started once"):
        await consumer.start()
    with pytest.raises(InvalidRequestError, match="max_records"):
        await consumer.getmany(max_records=0)
    await consumer.stop()
    await consumer.stop()
