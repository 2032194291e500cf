"""Shorthands at the request level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import eosdb
from eosdb import (
    BrokerConfig,
    ManualClock,
    ProduceResult,
    ProducerIdAndEpoch,
    Record,
    RecordBatch,
    TopicPartition,
)  # fmt: skip

TP = TopicPartition("t", 0)
Send = Callable[..., ProduceResult]


@pytest.fixture
def db(db_path: Any, clock: ManualClock) -> Any:
    config = BrokerConfig(transaction_version=1)
    with eosdb.connect(db_path, clock=clock, durability="normal", config=config) as opened:
        opened.admin.create_topic("t")
        yield opened


@pytest.fixture
def send(db: eosdb.Database) -> Send:
    """send(b"a", b"b", who=(pid, epoch), sequence=0, transactional_id=None, to=TP)"""

    def call(
        *values: bytes | None,
        who: tuple[int, int] = (-1, -1),
        sequence: int = -1,
        transactional_id: str | None = None,
        to: TopicPartition = TP,
        key: bytes | None = None,
        timestamp: int | None = None,
    ) -> ProduceResult:
        records = [Record(key=key, value=value, timestamp=timestamp) for value in values]
        batch = RecordBatch(records, *who, sequence, transactional_id is not None)
        return db.broker.append(to, batch, transactional_id=transactional_id)

    return call


def begin(db: eosdb.Database, name: str = "a", timeout_ms: int = 60_000) -> ProducerIdAndEpoch:
    """A new producer of the id with a transaction open on TP."""
    who = db.broker.init_producer_id(name, timeout_ms)
    db.broker.add_partitions_to_txn(name, *who, [TP])
    return who


def state(db: eosdb.Database, name: str = "a") -> str:
    return db.broker.describe_transactions([name])[name].state
