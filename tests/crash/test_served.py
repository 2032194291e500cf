"""`eosdb serve` killed with SIGKILL while a foreign client writes: what was acknowledged is in the file.

Goal: at whatever instant the server dies, no acknowledged record is missing, and the client, which repeats
at the next server what was not acknowledged, leaves each record once and in order; also while the disk is
full. Method: librdkafka's idempotent producer keeps its queue full; the server is killed when so many more
records are acknowledged, and so many more were tried on a full disk.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

import eosdb
from tests.readers import committed_values
from tests.store.test_disk_full import mounted, take_all
from tests.wire.clients import PATIENCE_S

pytestmark = pytest.mark.crash

KILLS = 8
ROOM = 24 * 1024 * 1024
TRIED = 100
IN_FLIGHT = 500


class Served:
    """A file in a server of its own process, which may die and come again at the same port."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        command = [sys.executable, "-m", "eosdb.cli", "serve", str(self.path), "--create"]
        settings = ["--config", "auto.create.topics.enable=true", "--port", str(self.port)]
        self.process = subprocess.Popen([*command, *settings], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        where = self.process.stdout.readline().rpartition(" at ")[2].strip()
        self.port = int(where.rpartition(":")[2])
        return where

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture(params=[False, True], ids=["a disk with room", "a disk that is full by turns"])
def fills_up(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def served(tmp_path: Path, fills_up: bool) -> Iterator[Served]:
    with mounted(tmp_path, ROOM) if fills_up else contextlib.nullcontext():
        yield from serving(tmp_path / "test.db")


def serving(path: Path) -> Iterator[Served]:
    made = Served(path)
    yield made
    made.kill()


def numbers(db: eosdb.Database) -> list[int]:
    values = committed_values(db, eosdb.TopicPartition("orders", 0))
    return [int(value or b"") for value in values]


def test_no_acknowledged_record_is_lost_and_none_is_there_twice(
    served: Served, fills_up: bool
) -> None:
    acknowledged: list[int] = []
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            acknowledged.append(int(message.value() or b""))

    producer = Producer(
        {
            "bootstrap.servers": served.start(), "enable.idempotence": True, "linger.ms": 1,
            "batch.num.messages": 20, "message.timeout.ms": PATIENCE_S * 1000,
            "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100,
        }
    )  # fmt: skip
    sent = 0

    def go_on() -> None:
        nonlocal sent
        if len(producer) < IN_FLIGHT:
            producer.produce("orders", b"%d" % sent, on_delivery=told)
            sent += 1
        producer.poll(0 if len(producer) < IN_FLIGHT else 0.01)

    for turn in range(KILLS // 2 if fills_up else KILLS):
        until = len(acknowledged) + 100 + 37 * turn
        while len(acknowledged) < until and not failed:
            go_on()
        ballast = take_all(served.path.parent) if fills_up else None
        for _ in range(TRIED if fills_up else 0):
            go_on()
        served.kill()
        producer.poll(0)  # What the server said before it died.
        if ballast is not None:
            ballast.unlink()
        with eosdb.connect(served.path) as db:
            stored = numbers(db)
        assert set(acknowledged) <= set(stored)
        assert stored == list(range(len(stored)))
        served.start()
    assert producer.flush(PATIENCE_S) == 0
    assert not failed
    assert acknowledged == list(range(sent))
    with eosdb.connect(served.path) as db:
        stored = numbers(db)
        assert db.verify().ok
    assert stored == list(range(sent))
