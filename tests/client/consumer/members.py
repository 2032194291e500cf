"""Consumers of one group that write down what happens to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import eosdb
from eosdb import TopicPartition

TPS: Final = [TopicPartition("t", i) for i in range(4)]
Events = list[tuple[str, str, list[TopicPartition]]]
Member = Callable[..., eosdb.Consumer]
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    strategy: {"heartbeat_interval_ms": 40, "partition_assignment_strategy": strategy}
    for strategy in ("range", "roundrobin", "cooperative-sticky")
}
"""By assignor. Heartbeats that are due soon make tests short."""


def maker(db: eosdb.Database, kind: str, events: Events) -> Member:
    """Makes a consumer of group `g` that writes down what happens to it."""

    def make(name: str, topics: Any = "t", **config: Any) -> eosdb.Consumer:
        settings = {"auto_offset_reset": "earliest", "client_id": name, **SETTINGS[kind], **config}
        consumer = db.consumer("g", **settings)
        if topics is not None:
            consumer.subscribe(
                topics,
                on_assign=lambda tps: events.append((name, "assign", tps)),
                on_revoke=lambda tps: events.append((name, "revoke", tps)),
                on_lost=lambda tps: events.append((name, "lost", tps)),
            )
        return consumer

    return make


def settle(*consumers: eosdb.Consumer) -> None:
    """Everybody polls a few times."""
    for _ in range(12):
        for consumer in consumers:
            assert consumer.poll(timeout_ms=20) == []


def shares(*consumers: eosdb.Consumer) -> list[int]:
    return [len(consumer.assignment()) for consumer in consumers]


def all_of(*consumers: eosdb.Consumer) -> list[TopicPartition]:
    return sorted(tp for consumer in consumers for tp in consumer.assignment())
