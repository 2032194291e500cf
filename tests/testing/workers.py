"""One consume–process–produce loop in three clients, as their guides write it: a life ends with any error,
and the next one begins where the group stands."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable
from typing import Any, Final

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors

from eosdb.testing import KafkaDouble
from tests.testing.clients import PATIENCE_S, confluent_consumer, confluent_transactions

SOURCE: Final = "source"
SINK: Final = "sink"
_AT_ONCE: Final = 5
_LIFE_S: Final = 10.0
_AT_ITS_END_S: Final = 2.0
_MEMBER: Final = "worker"
"""A static member: the next life takes its place, without waiting for a session to expire."""


def confluent_worker(cluster: KafkaDouble, has_ended: Callable[[], bool]) -> None:
    while not has_ended():
        try:
            _confluent_life(cluster, has_ended)
        except confluent_kafka.KafkaException:
            continue


def _confluent_life(cluster: KafkaDouble, has_ended: Callable[[], bool]) -> None:
    producer = confluent_transactions(cluster)
    consumer = confluent_consumer(cluster, group_instance_id=_MEMBER)
    consumer.subscribe([SOURCE])
    try:
        while not has_ended():
            records = [
                record for record in consumer.consume(_AT_ONCE, 0.1) if record.error() is None
            ]
            if not records:
                continue
            producer.begin_transaction()
            for record in records:
                producer.produce(SINK, (record.value() or b"").upper())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()),
                consumer.consumer_group_metadata(),
                PATIENCE_S,
            )
            producer.commit_transaction(PATIENCE_S)
    finally:
        consumer.close()


def kafka_python_worker(cluster: KafkaDouble, has_ended: Callable[[], bool]) -> None:
    while not has_ended():
        with contextlib.suppress(kafka.errors.KafkaError):
            life = _KafkaPythonLife(cluster, has_ended)
            life.start()
            life.join(_LIFE_S)
            life.give_up()


class _KafkaPythonLife(threading.Thread):
    """In a thread, because kafka-python waits for ever for the end of a transaction whose broker has died
    at the wrong moment."""

    def __init__(self, cluster: KafkaDouble, has_ended: Callable[[], bool]) -> None:
        super().__init__(daemon=True)
        self._has_ended = has_ended
        self._is_given_up = False
        self._producer: Any = kafka.KafkaProducer(  # type: ignore[no-untyped-call]
            bootstrap_servers=cluster, transactional_id="a"
        )
        self._consumer: Any = kafka.KafkaConsumer(  # type: ignore[no-untyped-call]
            SOURCE,
            bootstrap_servers=cluster,
            group_id="g",
            group_instance_id=_MEMBER,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    def give_up(self) -> None:
        """End it: it stops by itself, unless it waits."""
        self._is_given_up = True
        self.join(_AT_ITS_END_S)
        self._close()

    def run(self) -> None:
        try:
            self._work()
        except kafka.errors.KafkaError:
            pass
        except Exception:
            if not self._is_given_up:  # Then somebody has closed what it uses.
                raise

    def _work(self) -> None:
        producer, consumer = self._producer, self._consumer
        producer.init_transactions()
        while not (self._is_given_up or self._has_ended()):
            records = consumer.poll(timeout_ms=100, max_records=_AT_ONCE)
            if not records:
                continue
            producer.begin_transaction()
            for record in (record for some in records.values() for record in some):
                producer.send(SINK, record.value.upper())
            offsets = {tp: kafka.OffsetAndMetadata(consumer.position(tp), "", -1) for tp in records}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction()

    def _close(self) -> None:
        self._consumer.close(autocommit=False)
        self._producer.close(timeout=0)


def aiokafka_worker(cluster: KafkaDouble, has_ended: Callable[[], bool]) -> None:
    while not has_ended():
        try:
            asyncio.run(_aiokafka_life(cluster, has_ended))
        # aiokafka's `stop` lets out the cancelling of its own wait behind a fetch that has failed.
        except (aiokafka.errors.KafkaError, asyncio.CancelledError):
            continue
    gc.collect()  # It leaves the sockets of refused connections to this; better now than in another test.


async def _aiokafka_life(cluster: KafkaDouble, has_ended: Callable[[], bool]) -> None:
    async with (
        aiokafka.AIOKafkaProducer(bootstrap_servers=cluster, transactional_id="a") as producer,
        aiokafka.AIOKafkaConsumer(
            SOURCE,
            bootstrap_servers=cluster,
            group_id="g",
            group_instance_id=_MEMBER,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        while not has_ended():
            records = await consumer.getmany(timeout_ms=100, max_records=_AT_ONCE)
            if not records:
                continue
            async with producer.transaction():
                for record in (record for some in records.values() for record in some):
                    await producer.send(SINK, (record.value or b"").upper())
                offsets = {tp: some[-1].offset + 1 for tp, some in records.items()}
                await producer.send_offsets_to_transaction(offsets, "g")


WORKERS: Final = {
    "confluent-kafka": confluent_worker,
    "kafka-python": kafka_python_worker,
    "aiokafka": aiokafka_worker,
}
