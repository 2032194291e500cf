"""A file's library processes and its wire clients fence, replace and succeed each other."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

import eosdb
from eosdb import BrokerConfig
from eosdb.wire.server import Server
from tests.waiting import eventually
from tests.wire.members import Confluent, Library, Reading, settle
from tests.wire.peer import PATIENCE_S

pytestmark = [pytest.mark.process, pytest.mark.slow]

PARTITIONS = 4
FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_LIBRARY_MEMBER = """
import sys, eosdb
config = eosdb.BrokerConfig(group_min_session_timeout_ms=100)
with eosdb.connect(sys.argv[1], config=config) as db:
    consumer = db.consumer("g", session_timeout_ms=1_000, heartbeat_interval_ms=100)
    consumer.subscribe(["t"])
    while True:
        consumer.poll(50)
"""
_WIRE_MEMBER = """
import sys, confluent_kafka
consumer = confluent_kafka.Consumer({
    "bootstrap.servers": sys.argv[1], "group.id": "g", "session.timeout.ms": 1_000,
    "heartbeat.interval.ms": 100, "partition.assignment.strategy": "range",
})
consumer.subscribe(["t"])
while True:
    consumer.poll(0.05)
"""


@pytest.fixture
def db(db_path: Path) -> Iterator[eosdb.Database]:
    config = BrokerConfig(group_min_session_timeout_ms=100)
    with eosdb.connect(db_path, durability="normal", config=config) as opened:
        opened.admin.create_topic("t", partitions=PARTITIONS)
        yield opened
        assert opened.verify().ok


@pytest.fixture
def server(db: eosdb.Database) -> Iterator[Server]:
    with db.serve() as made:
        yield made


@pytest.fixture
def process() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts Python programs, and ends them after the test."""
    started = []

    def start(code: str, argument: object) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", code, str(argument)]))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


def wire_producer(server: Server, name: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.bootstrap_servers, "transactional.id": name}
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def read(db: eosdb.Database) -> list[object]:
    """The committed values of "t"."""
    with db.consumer(auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.subscribe(["t"])
        return [record.value for record in consumer.poll(0)]


def test_a_library_producer_fences_a_wire_producer(db: eosdb.Database, server: Server) -> None:
    former = wire_producer(server, "x")
    former.begin_transaction()
    former.produce("t", b"zombie")
    former.flush(PATIENCE_S)
    with db.producer(transactional_id="x") as producer:
        producer.init_transactions()
        with pytest.raises(KafkaException) as raised:
            former.commit_transaction(PATIENCE_S)
        error: Any = raised.value.args[0]
        assert error.fatal()
        assert error.code() in FENCED
        producer.begin_transaction()
        producer.send("t", b"successor")
        producer.commit_transaction()
    assert read(db) == [b"successor"]


def test_a_wire_producer_fences_a_library_producer(db: eosdb.Database, server: Server) -> None:
    with db.producer(transactional_id="x") as former:
        former.init_transactions()
        former.begin_transaction()
        former.send("t", b"zombie")
        former.flush()
        producer = wire_producer(server, "x")
        with pytest.raises(eosdb.ProducerFencedError):
            former.commit_transaction()
        producer.begin_transaction()
        producer.produce("t", b"successor")
        producer.commit_transaction(PATIENCE_S)
    assert read(db) == [b"successor"]


def test_a_wire_consumer_takes_over_a_static_library_member(
    db: eosdb.Database, server: Server
) -> None:
    former = Library(db, "g", "range", group_instance_id="i")
    eventually(lambda: not former.poll() and len(former.assignment()) == PARTITIONS)
    before = db.broker.describe_group("g")
    successor = Reading(Confluent(server, "g", "range", **{"group.instance.id": "i"}))
    settle([successor], PARTITIONS)
    after = db.broker.describe_group("g")
    assert after.generation_id == before.generation_id  # Nobody has noticed.
    with pytest.raises(eosdb.FencedInstanceIdError):
        eventually(lambda: bool(former.poll()))
    successor.close()
    former.close()


def test_a_library_consumer_takes_over_a_static_wire_member(
    db: eosdb.Database, server: Server
) -> None:
    former = Reading(Confluent(server, "g", "range", **{"group.instance.id": "i"}))
    settle([former], PARTITIONS)
    before = db.broker.describe_group("g")
    successor = Reading(Library(db, "g", "range", group_instance_id="i"))
    settle([successor], PARTITIONS)
    assert db.broker.describe_group("g").generation_id == before.generation_id

    def is_fenced() -> bool:
        try:
            former.check()
        except (AssertionError, KafkaException) as error:
            return "fenced" in str(error)
        return False

    eventually(is_fenced)
    successor.close()


@pytest.mark.parametrize("dies", ["library", "confluent-kafka"])
def test_of_a_member_that_is_killed_the_others_take_over(
    db: eosdb.Database, server: Server, db_path: Path,
    process: Callable[..., subprocess.Popen[bytes]], dies: str,
) -> None:  # fmt: skip
    if dies == "library":
        killed = process(_LIBRARY_MEMBER, db_path)
        survivor = Reading(Confluent(server, "g", "range"))
    else:
        killed = process(_WIRE_MEMBER, server.bootstrap_servers)
        survivor = Reading(Library(db, "g", "range"))
    eventually(lambda: len(survivor.share) == PARTITIONS // 2)
    killed.send_signal(signal.SIGKILL)
    settle([survivor], PARTITIONS)
    survivor.close()
