"""aiokafka: it copies what it reads in transactions.

It commits without its group's generation (it has no KIP-447). So the program has all partitions, and fences
the one before it by its transactional id, before it asks where that came to.
"""

from __future__ import annotations

import asyncio
import logging

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.trials.hunts.programs.working import PARTITIONS, TOPIC, Setting, Stopping, again


async def copy(setting: Setting, stopping: Stopping) -> None:
    """Until told to stop."""
    producer = AIOKafkaProducer(
        bootstrap_servers=setting.address, transactional_id=setting.name,
        transaction_timeout_ms=10_000,
    )  # fmt: skip
    consumer = AIOKafkaConsumer(
        bootstrap_servers=setting.address, group_id=setting.name, auto_offset_reset="earliest",
        isolation_level="read_committed", enable_auto_commit=False,
    )  # fmt: skip
    async with producer, consumer:
        consumer.assign([TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)])
        while not stopping.is_set:
            if found := await consumer.getmany(timeout_ms=200, max_records=50):
                async with producer.transaction():
                    for message in (message for some in found.values() for message in some):
                        await producer.send(
                            setting.name, message.value, message.key, message.partition,
                            message.timestamp, list(message.headers),
                        )  # fmt: skip
                    at = {tp: await consumer.position(tp) for tp in found}
                    await producer.send_offsets_to_transaction(at, setting.name)


def life(setting: Setting, stopping: Stopping) -> None:
    asyncio.run(copy(setting, stopping))


if __name__ == "__main__":
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    again(life, Setting.from_arguments(), Stopping(), (KafkaError, OSError))
