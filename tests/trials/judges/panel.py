"""All judges, the quick ones first."""

from __future__ import annotations

from typing import Final

from tests.trials.judges import (
    connect,
    consumer_histories,
    consumer_protocol,
    copier,
    flink,
    franz,
    group_histories,
    java,
    kcat,
    mirror,
    other_clients,
    python_clients,
    spark,
    streams,
    suites,
    tools,
    years,
)

_MODULES: Final = (
    java, kcat, tools, franz, python_clients, consumer_protocol, other_clients, copier, mirror, flink,
    spark, connect, streams, suites, group_histories, consumer_histories, years,
)  # fmt: skip
JUDGES: Final = [judge for module in _MODULES for judge in module.JUDGES]
