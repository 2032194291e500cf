"""librdkafka's producer on a file that another program locks past `lock_timeout_ms`, again and again.

What it was told is stored is in the log, once and in order: idempotent, and in transactions of version 1.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

import eosdb
from eosdb import BrokerConfig, TopicPartition
from tests.wire.clients import PATIENCE_S

pytestmark = pytest.mark.process

LOCKER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
while True:
    connection.execute("BEGIN IMMEDIATE")
    time.sleep(0.08)
    connection.rollback()
    time.sleep(0.03)
"""
ROUNDS, RECORDS = 4, 12
SETTINGS: dict[str, Any] = {
    "enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1,
    "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 10,
}  # fmt: skip


@pytest.fixture
def db(db_path: Path) -> Iterator[eosdb.Database]:
    config = BrokerConfig(lock_timeout_ms=20)
    with eosdb.connect(db_path, durability="off", config=config) as made:
        made.admin.create_topic("t")
        yield made


@pytest.fixture
def where(db: eosdb.Database, db_path: Path) -> Iterator[str]:
    """A server, while another program locks the file."""
    with db.serve() as server:
        locker = subprocess.Popen([sys.executable, "-c", LOCKER, str(db_path)])
        try:
            yield server.bootstrap_servers
        finally:
            locker.kill()
            locker.wait()
    assert db.verify().ok


def refusals(caplog: pytest.LogCaptureFixture) -> int:
    return [record.__dict__.get("action") for record in caplog.records].count("refused_by_file")


def send(producer: Producer, values: list[bytes]) -> list[bytes]:
    """Those whose delivery is reported as a success."""
    told: list[bytes] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is None:
            told.append(message.value() or b"")

    for value in values:
        producer.produce("t", value, partition=0, on_delivery=report)
    assert producer.flush(PATIENCE_S) == 0
    return told


def stored(db: eosdb.Database) -> list[bytes | None]:
    values: list[bytes | None] = []
    with db.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek_to_beginning()
        while records := consumer.poll(0):
            values += [record.value for record in records]
    return values


def test_what_an_idempotent_producer_was_told_is_in_the_log(
    db: eosdb.Database, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[bytes] = []
    for i in range(ROUNDS):
        producer = Producer({"bootstrap.servers": where, **SETTINGS})
        told += send(producer, [b"%d-%d" % (i, j) for j in range(RECORDS)])
    assert len(told) == ROUNDS * RECORDS
    assert stored(db) == told
    assert refusals(caplog)


def test_what_a_transactional_producer_committed_is_in_the_log(
    db: eosdb.Database, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    committed: list[bytes] = []
    for i in range(ROUNDS):
        producer = Producer({"bootstrap.servers": where, "transactional.id": f"x-{i}", **SETTINGS})
        until_done(producer.init_transactions)
        producer.begin_transaction()
        values = [b"%d-%d" % (i, j) for j in range(RECORDS)]
        assert send(producer, values) == values
        until_done(producer.commit_transaction)
        committed += values
    assert stored(db) == committed
    assert refusals(caplog)


def until_done(call: Callable[[float], None]) -> None:
    """Again, as long as librdkafka says that it may be."""
    while True:
        try:
            call(PATIENCE_S)
        except KafkaException as error:
            assert error.args[0].retriable(), error
        else:
            return
