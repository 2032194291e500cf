"""Shorthands for tests that make requests by themselves, below the clients."""

from __future__ import annotations

from collections.abc import Callable

import eosdb
from eosdb import ProduceResult, ProducerIdAndEpoch, TopicPartition

TP = TopicPartition("t", 0)
Send = Callable[..., ProduceResult]


def begin(db: eosdb.Database, name: str = "a", timeout_ms: int = 60_000) -> ProducerIdAndEpoch:
    """A new producer of the id with a transaction open on TP."""
    who = db.broker.init_producer_id(name, timeout_ms)
    db.broker.add_partitions_to_txn(name, *who, [TP])
    return who


def state(db: eosdb.Database, name: str = "a") -> str:
    return db.broker.describe_transactions([name])[name].state
