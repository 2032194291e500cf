"""Many aiokafka clients in a process of their own, for `wire.py`: producers of one topic, and its readers.

Each line of standard input says whether all producers work at once ("busy") or one after the other
("quiet"), and the number of transactions. The line "done" answers when each reader has all records.

    python -m benchmarks.crowd HOST:PORT TOPIC PRODUCERS READERS
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from typing import Any

from benchmarks.raw import VALUE


class Crowd:
    def __init__(self, servers: str, topic: str, producers: int, readers: int) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        self._topic = topic
        of: dict[str, Any] = {"bootstrap_servers": servers}
        self._producers = [
            AIOKafkaProducer(transactional_id=uuid.uuid4().hex, **of) for _ in range(producers)
        ]
        of |= {"isolation_level": "read_committed", "enable_auto_commit": False}
        self._readers = [AIOKafkaConsumer(**of) for _ in range(readers)]
        self._got = [0] * readers
        self._sent = 0
        self._news = asyncio.Event()

    async def begin(self) -> list[asyncio.Task[None]]:
        from aiokafka import TopicPartition

        place = TopicPartition(self._topic, 0)
        for producer in self._producers:
            await producer.start()
        for reader in self._readers:
            await reader.start()
            reader.assign([place])
            await reader.seek_to_end(place)
        reading = [asyncio.create_task(self._read(number)) for number in range(len(self._readers))]
        await self.busy(len(self._producers))
        return reading

    async def busy(self, transactions: int) -> None:
        each = transactions // len(self._producers)

        async def several(producer: Any) -> None:
            for _ in range(each):
                await self._transaction(producer)

        await asyncio.gather(*map(several, self._producers))
        await self._everybody_has_all()

    async def quiet(self, transactions: int) -> None:
        for number in range(transactions):
            await self._transaction(self._producers[number % len(self._producers)])
            await self._everybody_has_all()

    async def _transaction(self, producer: Any) -> None:
        async with producer.transaction():
            await producer.send(self._topic, VALUE, partition=0)
        self._sent += 1

    async def _read(self, number: int) -> None:
        async for _ in self._readers[number]:
            self._got[number] += 1
            self._news.set()

    async def _everybody_has_all(self) -> None:
        while min(self._got) < self._sent:
            self._news.clear()
            await self._news.wait()


async def main(servers: str, topic: str, producers: str, readers: str) -> None:
    crowd = Crowd(servers, topic, int(producers), int(readers))
    reading = await crowd.begin()
    print("done", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        how, transactions = line.split()
        await (crowd.busy if how == "busy" else crowd.quiet)(int(transactions))
        print("done", flush=True)
    for task in reading:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
