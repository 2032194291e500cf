"""Readers that alone use the file: a producer died in its transaction, and nobody writes. Whoever waits
carries out what is due."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import eosdb
from eosdb import ManualClock, TopicPartition, aio
from eosdb.cli.main import main
from eosdb.model.failpoints import Failpoint, watched
from eosdb.model.protocol.consumer_protocol import with_owner
from tests.readers import committed_values

TP = TopicPartition("t", 0)


class Killed(BaseException):
    pass


def die(path: Path, clock: ManualClock, fate: str) -> None:
    """Leave a transaction and a record behind it. The transaction is open; or its owner held a lock; or it
    is decided and not complete."""
    dies = eosdb.connect(path, clock=clock, durability="off")
    name = with_owner("app", "member-1") if fate == "owned" else "dead"
    lock = dies._core.coordinator.presences.begin(lambda: None, name) if fate == "owned" else None
    producer = dies.producer(transactional_id=name, transaction_timeout_ms=1_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"in it")
    producer.flush()
    with dies.producer() as other:
        other.send("t", b"behind")

    def kill(point: Failpoint) -> None:
        if point is Failpoint.END_TXN_DECIDED:
            raise Killed

    if fate == "decided":
        with watched(kill), contextlib.suppress(Killed):
            producer.commit_transaction()
    dies.abandon()
    del lock


Reads = Callable[[eosdb.Database, ManualClock], list[object]]


def consumed(consumer: eosdb.Consumer, *, timeout_ms: int = 30_000) -> list[object]:
    return [record.value for record in consumer.poll(timeout_ms)]


def subscribed(db: eosdb.Database, clock: ManualClock) -> list[object]:
    with db.consumer(auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        return consumed(consumer)


def assigned_in_a_group(db: eosdb.Database, clock: ManualClock) -> list[object]:
    consumer = db.consumer("g", auto_offset_reset="earliest")
    consumer.assign([TP])
    return consumed(consumer)


def without_waiting(db: eosdb.Database, clock: ManualClock) -> list[object]:
    with db.consumer(auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        clock.advance(30_000)
        return consumed(consumer, timeout_ms=0)


def as_columns(db: eosdb.Database, clock: ManualClock) -> list[object]:
    with db.consumer(auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        return [value for part in consumer.poll_columns(30_000) for value in part.values]


def cut(db: eosdb.Database, clock: ManualClock) -> list[object]:
    """The cut that exports and relays read."""
    clock.advance(30_000)
    assert db.admin.consistent_cut()[TP][1] > 1
    return [*committed_values(db, TP)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "reads", [subscribed, assigned_in_a_group, without_waiting, as_columns, cut]
)
@pytest.mark.parametrize("fate", ["open", "owned", "decided"])
def test_a_reader_alone_ends_the_transaction_of_a_dead_producer(
    db: eosdb.Database, clock: ManualClock, reads: Reads, fate: str
) -> None:
    db.admin.create_topic("t")
    die(Path(db.path), clock, fate)
    assert reads(db, clock) == ([b"in it", b"behind"] if fate == "decided" else [b"behind"])


def test_a_reader_writes_nothing_while_nothing_is_due(
    db: eosdb.Database, clock: ManualClock
) -> None:
    db.admin.create_topic("t")
    die(Path(db.path), clock, "open")
    before = db.metrics()["commit-total"]
    with db.consumer(auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        assert consumed(consumer, timeout_ms=900) == []
    assert db.metrics()["commit-total"] == before


@pytest.mark.slow
@pytest.mark.parametrize("read_only", [False, True])
def test_the_command_does_so_unless_it_must_not_write(
    db_path: Path, clock: ManualClock, read_only: bool
) -> None:
    """Its clock is that of the machine, which is later."""
    with eosdb.connect(db_path, clock=clock, durability="off") as db:
        db.admin.create_topic("t")
        die(db_path, clock, "open")
    options = ["--read-only"] if read_only else []
    command = [
        "--db",
        str(db_path),
        *options,
        "consume",
        "t",
        "--from-beginning",
        "--timeout-ms",
        "50",
    ]
    found = CliRunner().invoke(main, command)
    assert found.stdout == ("" if read_only else "behind\n")


@pytest.mark.slow
def test_a_consumer_in_an_event_loop_does_so(db_path: Path, clock: ManualClock) -> None:
    with eosdb.connect(db_path, clock=clock, durability="off") as db:
        db.admin.create_topic("t")
        die(db_path, clock, "open")

    async def read() -> list[object]:
        async with (
            aio.connect(db_path) as later,
            later.consumer("t", auto_offset_reset="earliest") as consumer,
        ):
            return [(await consumer.getone()).value]

    assert asyncio.run(read()) == [b"behind"]
