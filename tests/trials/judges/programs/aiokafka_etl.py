"""Consume, process, produce with aiokafka, exactly once, until SIGTERM.

python aiokafka_etl.py BOOTSTRAP INPUT OUTPUT GROUP TRANSACTIONAL_ID PARTITION …

aiokafka commits without its group's generation (it has no KIP-447), so a member that lost its partitions
can still commit them. So it is used as it was done before: each program has its own partitions and its own
transactional id, and fences its predecessor before it asks where that came to.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError


async def main(
    bootstrap: str, source: str, sink: str, group: str, transactional_id: str, *numbers: str
) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    while not ended.is_set():
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        try:
            await producer.start()
            await consumer.start()
            consumer.assign([TopicPartition(source, int(number)) for number in numbers])
            while not ended.is_set():
                await _copy(consumer, producer, sink, group)
        except (KafkaError, OSError) as error:
            print(f"anew after {error!r}", flush=True)
            await asyncio.sleep(0.2)
        finally:
            for client in (consumer, producer):
                try:
                    await client.stop()
                except (KafkaError, OSError) as error:
                    print(f"stopped with {error!r}", flush=True)


async def _copy(
    consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, sink: str, group: str
) -> None:
    found = await consumer.getmany(timeout_ms=500, max_records=100)
    if not found:
        return
    async with producer.transaction():
        for records in found.values():
            for record in records:
                await producer.send(sink, record.value, key=record.key)
        offsets = {partition: records[-1].offset + 1 for partition, records in found.items()}
        await producer.send_offsets_to_transaction(offsets, group)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
