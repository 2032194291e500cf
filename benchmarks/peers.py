"""Peers that pip can install, each set up to keep what it acknowledges where it can.

Who is not installed is left out, and the report says so. Kafka takes part as librdkafka's mock cluster,
which lives in this process's memory and keeps nothing; `beside_kafka.py` measures a real broker.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from benchmarks import kafka
from benchmarks.raw import VALUE, seconds_of

EVENTSOURCING: Final = "eventsourcing, SQLite recorder"
QUEUE: Final = "persist-queue, SQLite ack queue"
MOCK: Final = "confluent-kafka, mock cluster"
DURABLE: Final = {
    EVENTSOURCING: "yes, WAL and synchronous=FULL",
    QUEUE: "yes, WAL and synchronous=FULL; a commit for each put",
    MOCK: "no, in memory",
}
_MODULES: Final = {EVENTSOURCING: "eventsourcing", QUEUE: "persistqueue", MOCK: "confluent_kafka"}


def absent(peer: str) -> str | None:
    """Why a peer cannot take part; None when it can."""
    return None if find_spec(_MODULES[peer]) else "not installed"


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


@cache
def _mock() -> tuple[kafka.Cluster, str]:
    """One cluster, and its topic, for the whole run: starting one takes longer than most measurements."""
    cluster = kafka.Cluster()
    return cluster, cluster.create_topic()


def mock_transactions(records: int, size: int) -> float:
    """Records a second, `size` in each transaction."""
    cluster, topic = _mock()
    producer = cluster.transactional(topic)
    start = perf_counter()
    for _ in range(0, records, size):
        producer.begin_transaction()
        for _ in range(size):
            producer.produce(topic, VALUE, partition=0)
        producer.commit_transaction(60)
    return records / (perf_counter() - start)


def mock_two_partitions(transactions: int) -> float:
    """Transactions a second that put one record into each of two partitions."""
    cluster, topic = _mock()
    producer = cluster.transactional(topic)
    start = perf_counter()
    for _ in range(transactions):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, VALUE, partition=partition)
        producer.commit_transaction(60)
    return transactions / (perf_counter() - start)


def mock_idempotent(records: int, size: int) -> float:
    """Records a second without transactions, flushed after each `size`."""
    cluster, topic = _mock()
    producer = cluster.producer()
    producer.produce(topic, VALUE, partition=0)
    producer.flush(60)
    start = perf_counter()
    for _ in range(0, records, size):
        for _ in range(size):
            producer.produce(topic, VALUE, partition=0)
        producer.flush(60)
    return records / (perf_counter() - start)


def mock_process(records: int, size: int) -> float:
    """Records a second read from one partition and sent to the other, positions in the transaction."""
    cluster, topic = _mock()
    source = cluster.producer()
    for _ in range(records + 1):
        source.produce(topic, VALUE, partition=0)
    source.flush(60)
    producer, consumer = cluster.transactional(topic), cluster.consumer(topic)
    start, done = perf_counter(), 0
    while done < records:
        found = consumer.consume(size, 10)
        assert found, "the cluster has lost records"
        producer.begin_transaction()
        for message in found:
            producer.produce(topic, message.value(), partition=1)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction(60)
        done += len(found)
    rate = done / (perf_counter() - start)
    consumer.close()
    return rate


def mock_read(records: int) -> float:
    """Records a second that a consumer gets; the mock cluster keeps no list of aborted transactions."""
    cluster, topic = _mock()
    mock_idempotent(2 * records, records)
    consumer = cluster.consumer(topic)
    start, done = perf_counter(), 0
    while done < records:
        # It waits until it has as many as it was asked for.
        found = len(consumer.consume(min(500, records - done), 10))
        assert found, "the cluster has lost records"
        done += found
    rate = done / (perf_counter() - start)
    consumer.close()
    return rate
