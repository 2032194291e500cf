"""freezegun stops the time of day and Python's monotonic clocks; waits of eosdb end all the same."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import freezegun
import pytest

import eosdb
import eosdb.aio
from tests.store.locked import HASTY

pytestmark = pytest.mark.slow


def poll(db: eosdb.Database) -> object:
    consumer = db.consumer("g")
    consumer.subscribe("t")
    consumer.poll()
    return consumer.poll(timeout_ms=20)


def process(db: eosdb.Database, handler: Callable[..., None], **settings: Any) -> int:
    """The number of dead letters afterwards."""
    options = {"until_idle_ms": 20, "max_attempts": 2, "retry_backoff_ms": 1, **settings}
    eosdb.process(db, "t", handler, group_id="g", dead_letter_topic="dlq", **options)
    return len(db.query("SELECT 1 FROM committed_records WHERE topic = 'dlq'").all())


def fail(_: object) -> None:
    raise ValueError


def retries(db: eosdb.Database) -> object:
    assert process(db, fail, retry_delays_ms=(100,)) == 0, "the retry is not due"
    with freezegun.freeze_time("2026-01-02"):
        return process(db, fail, retry_delays_ms=(100,)) - 1


def a_lock(db: eosdb.Database) -> object:
    other = sqlite3.connect(db.path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(eosdb.DatabaseLockedError):
        db.producer().send("t", "1").result()
    other.close()
    return None


def linger(db: eosdb.Database) -> object:
    return db.producer(linger_ms=20).send("t", "2").result().offset - 1


def a_transaction(db: eosdb.Database) -> object:
    """Its time-out is of the time of day, which a test moves."""
    producer = db.producer(transactional_id="x", transaction_timeout_ms=1_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", "0")
    producer.flush()
    with freezegun.freeze_time("2026-01-01T01:00"):
        db.producer().send("t", "2").result()
        return db.query("SELECT 1 FROM committed_records WHERE value = x'30'").all()


def in_a_loop(db: eosdb.Database) -> object:
    async def run() -> object:
        async with (
            eosdb.aio.connect(db.path) as other,
            other.consumer("t", group_id="g") as consumer,
        ):
            await consumer.getmany()
            return await consumer.getmany(timeout_ms=20)

    return asyncio.run(run())


WAITS = [
    poll, lambda db: process(db, print), lambda db: process(db, print, workers=2),
    lambda db: process(db, fail) - 1, retries, a_lock, linger, a_transaction, in_a_loop,
]  # fmt: skip


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_ends_while_the_time_stands_still(
    wait: Callable[[eosdb.Database], object], db_path: Path
) -> None:
    with freezegun.freeze_time("2026-01-01"), eosdb.connect(db_path, config=HASTY) as db:
        db.admin.create_topic("t")
        db.admin.create_topic("dlq")
        db.producer().send("t", "1").result()
        assert not wait(db)
