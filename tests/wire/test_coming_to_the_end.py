"""Foreign consumers come to the end of what they read: their position, what they commit and their lag say
so, whatever lies at the end. A program that reads until its position is the high watermark stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from eosdb.model.values import IsolationLevel
from eosdb.wire.server import Server
from tests.requests import TP
from tests.wire.clients import PATIENCE_S

pytestmark = pytest.mark.slow

PATIENCE_MS = PATIENCE_S * 1_000


def librdkafka(where: str, end: int, level: IsolationLevel) -> tuple[list[object], int]:
    """Values and the position, read until a partition's end is told and the position is there."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": where, "group.id": "g", "enable.auto.commit": False,
            "isolation.level": level, "enable.partition.eof": True,
        }
    )  # fmt: skip
    try:
        consumer.assign([confluent_kafka.TopicPartition(*TP, 0)])
        values: list[object] = []
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            if (error := message.error()) is None:
                values.append(message.value())
                continue
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
            break
        (at,) = consumer.position([confluent_kafka.TopicPartition(*TP)])
        assert at.offset == end == consumer.get_watermark_offsets(at, cached=True)[1]
        consumer.commit(offsets=[at], asynchronous=False)
        return values, at.offset
    finally:
        consumer.close()


def kafka_python(where: str, end: int, level: IsolationLevel) -> tuple[list[object], int]:
    made: Any = kafka.KafkaConsumer
    consumer = made(
        bootstrap_servers=where, group_id="g", enable_auto_commit=False, isolation_level=level
    )
    try:
        tp = kafka.TopicPartition(*TP)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        values: list[object] = []
        while (at := consumer.position(tp)) < end:
            for records in consumer.poll(timeout_ms=500).values():
                values += [record.value for record in records]
        consumer.commit()
        return values, at
    finally:
        consumer.close()


def aiokafka_(where: str, end: int, level: IsolationLevel) -> tuple[list[object], int]:
    async def read() -> tuple[list[object], int]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=where, group_id="g", enable_auto_commit=False, isolation_level=level
        )
        await consumer.start()
        try:
            tp = aiokafka.TopicPartition(*TP)
            consumer.assign([tp])
            consumer.seek(tp, 0)
            values: list[object] = []
            while (at := await consumer.position(tp)) < end:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    values += [record.value for record in records]
            await consumer.commit()
            return values, at
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(read(), PATIENCE_S))


CLIENTS: list[Callable[[str, int, IsolationLevel], tuple[list[object], int]]] = [
    librdkafka, kafka_python, aiokafka_,
]  # fmt: skip


def send(db: eosdb.Database, name: str, *values: bytes, commit: bool) -> None:
    """A transaction of version 1: its partition is added whether or not anything is sent."""
    who = db.broker.init_producer_id(name)
    db.broker.add_partitions_to_txn(name, *who, [TP])
    for sequence, value in enumerate(values):
        batch = RecordBatch([Record(key=b"k", value=value)], *who, sequence, True)
        db.broker.append(TP, batch, transactional_id=name)
    db.broker.end_txn(name, *who, commit, transaction_version=1)


def committed(db: eosdb.Database, _: ManualClock) -> None:
    send(db, "a", b"a", b"b", commit=True)


def aborted(db: eosdb.Database, _: ManualClock) -> None:
    send(db, "a", b"a", commit=True)
    send(db, "a", *(b"no" for _ in range(9)), commit=False)


def nothing_but_markers(db: eosdb.Database, _: ManualClock) -> None:
    for commit in (True, False, True):
        send(db, "a", commit=commit)


def interleaved(db: eosdb.Database, _: ManualClock) -> None:
    names = [f"{number}" for number in range(20)]
    who = {name: db.broker.init_producer_id(name) for name in names}
    for sequence in range(3):
        for name in names:
            batch = RecordBatch([Record(value=name.encode())], *who[name], sequence, True)
            db.broker.append(TP, batch, transactional_id=name)
    for number, name in enumerate(names):
        db.broker.end_txn(name, *who[name], number % 2 == 0)


def compacted(db: eosdb.Database, clock: ManualClock) -> None:
    """The last record is a tombstone, which has gone."""
    config = {"cleanup.policy": "compact", "delete.retention.ms": "0"}
    db.admin.alter_topic_config("t", config)
    send(db, "a", b"a", commit=True)
    db.broker.append(TP, RecordBatch([Record(key=b"gone", value=None)]))
    for _ in range(3):
        clock.advance(100_000_000)
        db.housekeeping()


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("write", [committed, aborted, nothing_but_markers, interleaved, compacted])
@pytest.mark.parametrize("consume", CLIENTS)
def test_a_consumer_comes_to_the_end_and_says_so(
    server: Server,
    db: eosdb.Database,
    clock: ManualClock,
    consume: Callable[[str, int, IsolationLevel], tuple[list[object], int]],
    write: Callable[[eosdb.Database, ManualClock], None],
    level: IsolationLevel,
) -> None:
    write(db, clock)
    end = db.broker.offsets(TP).high_watermark
    values, at = consume(server.bootstrap_servers, end, level)
    assert at == end
    assert db.broker.offset_fetch("g", [TP])[TP].offset == end
    visible = db.broker.fetch_data(TP, 0, isolation_level=level)
    assert values == list(visible.rows.value)


def test_librdkafka_reads_many_partitions_of_large_records_in_small_answers(
    server: Server, db: eosdb.Database
) -> None:
    """It disconnects when an answer is larger than it asked for, by more than its header."""
    db.admin.create_topic("many", partitions=20)
    for index in range(20):
        for _ in range(3):
            record = Record(value=b"x" * 10_000)
            db.broker.append(TopicPartition("many", index), RecordBatch([record]))
    errors: list[object] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers, "group.id": "g", "error_cb": errors.append,
            "max.partition.fetch.bytes": 1_000, "fetch.max.bytes": 12_000, "message.max.bytes": 12_000,
            "receive.message.max.bytes": 12_512,
        }
    )  # fmt: skip
    try:
        consumer.assign([confluent_kafka.TopicPartition("many", index, 0) for index in range(20)])
        found = consumer.consume(60, PATIENCE_S)
        assert [len(message.value() or b"") for message in found] == [10_000] * 60
        assert errors == []
    finally:
        consumer.close()


def test_a_reader_of_what_is_committed_comes_to_what_is_held_back(
    server: Server, db: eosdb.Database
) -> None:
    send(db, "a", b"a", commit=False)
    who = db.broker.init_producer_id("open")
    db.broker.append(TP, RecordBatch([Record()], *who, 0, True), transactional_id="open")
    lso = db.broker.offsets(TopicPartition("t", 0)).last_stable_offset
    for consume in CLIENTS[1:]:
        assert consume(server.bootstrap_servers, lso, "read_committed") == ([], lso)
