"""Shorthands for tests that make requests by themselves, below the clients."""

from __future__ import annotations

from collections.abc import Callable

import eosdb
from eosdb import ProduceResult, ProducerIdAndEpoch, TopicPartition
from eosdb.coordinator.transactions import rows
from eosdb.store.writing.unit import Unit

TP = TopicPartition("t", 0)
Send = Callable[..., ProduceResult]


def begin(db: eosdb.Database, name: str = "a", timeout_ms: int = 60_000) -> ProducerIdAndEpoch:
    """A new producer of the id with a transaction open on TP."""
    who = db.broker.init_producer_id(name, timeout_ms)
    db.broker.add_partitions_to_txn(name, *who, [TP])
    return who


def state(db: eosdb.Database, name: str = "a") -> str:
    return db.broker.describe_transactions([name])[name].state


def skip_to_epoch(db: eosdb.Database, name: str, epoch: int) -> None:
    """What requests that change nothing but the epoch make of the id in the end, by one event instead of
    thousands: the last of them has been made by the caller."""

    def write(unit: Unit) -> None:
        current = rows.load(unit, name)
        assert current is not None
        before = epoch - 1 if current.last_producer_epoch >= 0 else current.last_producer_epoch
        after = current._replace(producer_epoch=epoch, last_producer_epoch=before)
        rows.record(unit, current, after, db.clock.time_ms())

    db._store.write(write)
