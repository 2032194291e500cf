"""Peers that pip can install, each set up to keep what it acknowledges where it can.

Who is not installed is left out, and the report says so. Kafka takes part twice: as librdkafka's mock
cluster, which lives in this process's memory and keeps nothing, and as a real broker when
EOSDB_BENCH_KAFKA=host:port names one.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from benchmarks.raw import VALUE, seconds_of

EVENTSOURCING: Final = "eventsourcing, SQLite recorder"
QUEUE: Final = "persist-queue, SQLite ack queue"
MOCK: Final = "confluent-kafka, mock cluster"
KAFKA: Final = "confluent-kafka, real broker"
DURABLE: Final = {
    EVENTSOURCING: "yes, WAL and synchronous=FULL",
    QUEUE: "yes, WAL and synchronous=FULL; a commit for each put",
    MOCK: "no, in memory",
    KAFKA: "as the broker is set up",
}
_MODULES: Final = {EVENTSOURCING: "eventsourcing", QUEUE: "persistqueue", MOCK: "confluent_kafka"}


def absent(peer: str) -> str | None:
    """Why a peer cannot take part; None when it can."""
    if peer == KAFKA and "EOSDB_BENCH_KAFKA" not in os.environ:
        return "EOSDB_BENCH_KAFKA names no broker"
    if not find_spec(_MODULES.get(peer, "confluent_kafka")):
        return "not installed"
    return _refusal() if peer == KAFKA else None


class EventSourcing:
    """Events of one aggregate, inserted `size` at a time, each insert one durable transaction."""

    def __init__(self, folder: Path) -> None:
        from eventsourcing.persistence import StoredEvent
        from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

        self._event: Any = StoredEvent
        self._store = SQLiteDatastore(str(folder / "events.db"))
        with self._store.transaction(commit=False) as cursor:
            cursor.execute("PRAGMA synchronous")
            (level,) = cursor.fetchone()
        assert level == 2, "this build of SQLite does not sync in full by default"
        self._recorder = SQLiteApplicationRecorder(self._store)
        self._recorder.create_table()
        self._id = uuid.uuid4()

    def close(self) -> None:
        self._store.close()

    def insert(self, first: int, count: int) -> None:
        self._recorder.insert_events(
            [self._event(self._id, i, "t", VALUE) for i in range(first, first + count)]
        )

    def read(self, records: int) -> float:
        start, done = perf_counter(), 0
        while done < records:
            done += len(self._recorder.select_notifications(start=done + 1, limit=500))
        return done / (perf_counter() - start)


def eventsourcing_send(folder: Path, records: int, size: int) -> float:
    peer = EventSourcing(folder)
    start = perf_counter()
    for first in range(0, records, size):
        peer.insert(first, size)
    rate = records / (perf_counter() - start)
    peer.close()
    return rate


def eventsourcing_read(folder: Path, records: int) -> float:
    peer = EventSourcing(folder)
    for first in range(0, records, 1_000):
        peer.insert(first, min(1_000, records - first))
    rate = peer.read(records)
    peer.close()
    return rate


@contextmanager
def _queue(folder: Path) -> Iterator[Any]:
    from persistqueue import SQLiteAckQueue

    queue = SQLiteAckQueue(str(folder), multithreading=True, auto_resume=False)
    for file in (queue._putter, queue._getter):
        assert isinstance(file, sqlite3.Connection)
        file.execute("PRAGMA synchronous=FULL")
    yield queue
    queue.close()


def queue_put(folder: Path, records: int, threads: int = 1) -> float:
    with _queue(folder) as queue:

        def work(_: int) -> None:
            for _ in range(records // threads):
                queue.put(VALUE)

        return records // threads * threads / seconds_of(work, threads)


def queue_get(folder: Path, records: int) -> float:
    """Gets and acknowledgements a second: this queue's way of reading."""
    with _queue(folder) as queue:
        for _ in range(records):
            queue.put(VALUE)
        start = perf_counter()
        for _ in range(records):
            queue.ack(queue.get())
        return records / (perf_counter() - start)


class Kafka:
    """confluent-kafka's producer and consumer, on a new topic of two partitions."""

    def __init__(self, peer: str) -> None:
        from confluent_kafka import Consumer, Producer
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        self._producer_class, self._consumer_class = Producer, Consumer
        self._mock = peer == MOCK
        self.topic = f"eosdb-bench-{uuid.uuid4().hex}"
        if self._mock:
            # The cluster lives as long as the client that has made it.
            self._owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
            (broker,) = self._owner.list_topics().brokers.values()
            self._servers = f"{broker.host}:{broker.port}"
            self._owner.list_topics(self.topic)
        else:
            self._servers = os.environ["EOSDB_BENCH_KAFKA"]
            admin = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
            wanted = NewTopic(self.topic, num_partitions=2, replication_factor=-1)
            admin.create_topics([wanted])[self.topic].result(30)

    def producer(self, **config: object) -> Any:
        return self._producer_class(
            {
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )

    def transactional(self) -> Any:
        producer = self.producer(transactional_id=uuid.uuid4().hex)
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(self.topic, VALUE, partition=0)
        producer.commit_transaction(60)
        return producer

    def consumer(self, group: str) -> Any:
        return self._consumer_class(
            {
                "bootstrap.servers": self._servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )


@cache
def _kafka(peer: str) -> Kafka:
    """One cluster for the whole run: starting one takes longer than most measurements."""
    return Kafka(peer)


@cache
def _refusal() -> str | None:
    """Why the real broker cannot be used, found out once and not in each case."""
    try:
        _kafka(KAFKA)
    except Exception as error:
        return f"{os.environ['EOSDB_BENCH_KAFKA']} cannot be used: {type(error).__name__} {error}"
    return None


def kafka_transactions(peer: str, records: int, size: int) -> float:
    """Records a second, `size` in each transaction."""
    kafka = _kafka(peer)
    producer = kafka.transactional()
    start = perf_counter()
    for _ in range(0, records, size):
        producer.begin_transaction()
        for _ in range(size):
            producer.produce(kafka.topic, VALUE, partition=0)
        producer.commit_transaction(60)
    return records / (perf_counter() - start)


def kafka_two_partitions(peer: str, transactions: int) -> float:
    """Transactions a second that put one record into each of two partitions."""
    kafka = _kafka(peer)
    producer = kafka.transactional()
    start = perf_counter()
    for _ in range(transactions):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(kafka.topic, VALUE, partition=partition)
        producer.commit_transaction(60)
    return transactions / (perf_counter() - start)


def kafka_idempotent(peer: str, records: int, size: int) -> float:
    """Records a second without transactions, flushed after each `size`."""
    kafka = _kafka(peer)
    producer = kafka.producer()
    producer.produce(kafka.topic, VALUE, partition=0)
    producer.flush(60)
    start = perf_counter()
    for _ in range(0, records, size):
        for _ in range(size):
            producer.produce(kafka.topic, VALUE, partition=0)
        producer.flush(60)
    return records / (perf_counter() - start)


def kafka_process(peer: str, records: int, size: int) -> float:
    """Records a second read from one partition and sent to the other, positions in the transaction."""
    from confluent_kafka import TopicPartition

    kafka = _kafka(peer)
    source = kafka.producer()
    for _ in range(records + 1):
        source.produce(kafka.topic, VALUE, partition=0)
    source.flush(60)
    producer, consumer = kafka.transactional(), kafka.consumer(uuid.uuid4().hex)
    consumer.assign([TopicPartition(kafka.topic, 0, 0)])
    consumer.consume(1, 10)
    start, done = perf_counter(), 0
    while done < records:
        found = consumer.consume(size, 10)
        assert found, "the cluster has lost records"
        producer.begin_transaction()
        for message in found:
            producer.produce(kafka.topic, message.value(), partition=1)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction(60)
        done += len(found)
    rate = done / (perf_counter() - start)
    consumer.close()
    return rate


def kafka_read(peer: str, records: int) -> float:
    """Records a second that a consumer gets; the mock cluster keeps no list of aborted transactions."""
    from confluent_kafka import TopicPartition

    kafka = _kafka(peer)
    kafka_idempotent(peer, 2 * records, records)
    consumer = kafka.consumer(uuid.uuid4().hex)
    consumer.assign([TopicPartition(kafka.topic, 0, 0)])
    consumer.consume(1, 10)
    start, done = perf_counter(), 0
    while done < records:
        # It waits until it has as many as it was asked for.
        found = len(consumer.consume(min(500, records - done), 10))
        assert found, "the cluster has lost records"
        done += found
    rate = done / (perf_counter() - start)
    consumer.close()
    return rate
