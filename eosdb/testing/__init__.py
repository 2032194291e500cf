"""Tools for testing exactly-once code: a clock that tests advance, a faulty network, a Kafka cluster for
any client, and a check of a program under many fault schedules.

Names are loaded on demand: pytest imports this package in every run, because the plugin is in it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eosdb.model.clock import ManualClock
    from eosdb.testing.arena import Faults
    from eosdb.testing.exactly_once import Instance, NotExactlyOnceError, check_exactly_once
    from eosdb.testing.faulty_transport import FaultyTransport
    from eosdb.testing.kafka import KafkaDouble
    from eosdb.testing.kafka_process import KafkaProcess

__all__ = [
    "Faults", "FaultyTransport", "Instance", "KafkaDouble", "KafkaProcess", "ManualClock",
    "NotExactlyOnceError", "check_exactly_once",
]  # fmt: skip

_HOMES = {
    "Faults": "eosdb.testing.arena",
    "FaultyTransport": "eosdb.testing.faulty_transport",
    "Instance": "eosdb.testing.exactly_once",
    "KafkaDouble": "eosdb.testing.kafka",
    "KafkaProcess": "eosdb.testing.kafka_process",
    "ManualClock": "eosdb.model.clock",
    "NotExactlyOnceError": "eosdb.testing.exactly_once",
    "check_exactly_once": "eosdb.testing.exactly_once",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
