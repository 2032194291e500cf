"""A batch that the file refuses is not overtaken by those behind it, whichever way they are sent.

The partition does not know the producer: it would take the second batch, and refuse the first for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.aio import connect
from eosdb.broker.broker import Broker
from eosdb.broker.core import STEPS
from eosdb.errors import DatabaseFullError, DatabaseLockedError, EosdbError, StorageError
from eosdb.model.requests import Produce
from eosdb.testing import FaultyTransport
from tests.readers import committed_values

TP = TopicPartition("t", 0)
VALUES = [b"%d" % i for i in range(8)]
ONE_EACH: dict[str, Any] = {"batch_size": 1, "linger_ms": 60_000, "retry_backoff_ms": 1}


class File:
    """Refuses the first batches: the unit in which they go together, and then the first of them alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: EosdbError = DatabaseLockedError("locked")
        self.refusals = 0
        monkeypatch.setattr(Broker, "turn", self._refusing(Broker.turn, 1))
        monkeypatch.setitem(STEPS, Produce, self._refusing(STEPS[Produce], 2))

    def _refusing(self, request: Callable[..., Any], up_to: int) -> Callable[..., Any]:
        def made(*args: Any, **settings: Any) -> Any:
            if self.refusals < up_to:
                self.refusals = up_to
                raise self.error
            return request(*args, **settings)

        return made


@pytest.fixture
def file(db_path: Path, monkeypatch: pytest.MonkeyPatch) -> File:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
    return File(monkeypatch)


def send_each(producer: Any) -> list[Any]:
    return [producer.send("t", value) for value in VALUES]


def idempotent(db: eosdb.Database, **settings: Any) -> list[Any]:
    with db.producer(**ONE_EACH, **settings) as producer:
        futures = send_each(producer)
        producer.flush()
    return futures


def over_a_network(db: eosdb.Database) -> list[Any]:
    return idempotent(db, transport=FaultyTransport(db.broker, delay_ms=(0, 2), reorder=0.3))


def in_bulk(db: eosdb.Database) -> list[Any]:
    with db.producer(**ONE_EACH) as producer:
        producer.send_many("t", [(None, value) for value in VALUES])
    return []


def in_a_transaction(db: eosdb.Database, **settings: Any) -> list[Any]:
    with db.producer(transactional_id="x", **ONE_EACH, **settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        futures = send_each(producer)
        producer.flush()
        producer.commit_transaction()
    return futures


def with_the_commit(db: eosdb.Database) -> list[Any]:
    with db.producer(transactional_id="x", **ONE_EACH) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        futures = send_each(producer)
        producer.commit_transaction()
    return futures


WAYS: dict[str, Callable[[eosdb.Database], list[Any]]] = {
    "idempotent": idempotent,
    "over a network": over_a_network,
    "send_many": in_bulk,
    "in a transaction": in_a_transaction,
    "with the commit": with_the_commit,
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_what_a_lock_keeps_out_is_told_at_once_and_stored_in_order_by_a_repeat(
    db_path: Path, file: File, way: str
) -> None:
    """It has been waited for as long as it may; what is on its way behind the refusal is stored or told."""
    with eosdb.connect(db_path) as db:
        with pytest.raises(DatabaseLockedError) as raised:
            for future in (futures := WAYS[way](db)):
                future.result()
        assert (raised.value, raised.value.outcome) == (file.error, "not written")
        before = committed_values(db, TP)
        if before:
            assert way in ("over a network", "idempotent")  # Where the first may go by itself.
            kept = [v for v, f in zip(VALUES, futures, strict=True) if f.exception() is None]
            assert before == kept
        file.refusals = 2
        repeated = WAYS[way](db)
        assert committed_values(db, TP)[len(before) :] == VALUES
        offsets = [future.result().offset for future in repeated]
        assert offsets == [*range(min(offsets, default=0), max(offsets, default=-1) + 1)]


@pytest.mark.parametrize("error", [DatabaseFullError("full"), StorageError("failing")], ids=str)
def test_what_is_acknowledged_behind_a_refusal_is_stored_in_order(
    db_path: Path, file: File, error: EosdbError
) -> None:
    file.error = error
    with eosdb.connect(db_path) as db:
        futures = idempotent(db)
        told = [value for value, f in zip(VALUES, futures, strict=True) if f.exception() is None]
        assert committed_values(db, TP) == told
        assert futures[0].exception() is error


def test_asyncio_tells_it_and_stores_them_in_order_too(db_path: Path, file: File) -> None:
    async def send() -> None:
        async with await connect(db_path) as db, db.producer(**ONE_EACH) as producer:
            futures = [await producer.send("t", value) for value in VALUES]
            await producer.flush()
            with pytest.raises(DatabaseLockedError):
                await futures[0]
            file.refusals = 2
            told = [value for value, f in zip(VALUES, futures, strict=True) if not f.exception()]
            futures = [await producer.send("t", value) for value in VALUES]
            await producer.flush()
            assert [(await future).offset - len(told) for future in futures] == [*range(8)]
            stored.extend(told + VALUES)

    stored: list[bytes] = []
    asyncio.run(send())
    with eosdb.connect(db_path) as db:
        assert committed_values(db, TP) == stored
