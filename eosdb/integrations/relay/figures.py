"""Metrics of a relay for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from eosdb.integrations.relay.status import PartitionStatus, RelayStatus
from eosdb.model.protocol.prometheus import Metric, counter, gauge, written

_TOTALS: Final = {
    "records": "Records that have been relayed by this process.",
    "bytes": "Bytes of their keys and values.",
    "transactions": "Transactions that carried them.",
    "failures": "How often the relay had to begin anew, or stopped.",
}
_OF_PARTITION: Final[dict[str, tuple[str, Callable[[PartitionStatus], float]]]] = {
    "position": ("Next offset to be relayed.", lambda partition: partition.position),
    "end_offset": ("How far the source can be read.", lambda partition: partition.end),
    "lag_records": ("Offsets between the two.", lambda partition: partition.lag),
    "lag_bytes": ("Estimate by the mean size.", lambda partition: partition.lag_bytes),
    "lag_seconds": ("Age of the newest relayed record.", lambda partition: partition.lag_ms / 1000),
}


def prometheus_text(status: RelayStatus, name: str = "relay") -> str:
    """The metrics in Prometheus' text format, without those that are unknown."""
    return written(_metrics(status, name))


def _metrics(status: RelayStatus, name: str) -> Iterator[Metric]:
    relay = {"relay": name}
    for total, text in _TOTALS.items():
        yield counter(f"eosdb_relay_{total}_total", text, [(relay, getattr(status, total))])
    yield gauge(
        "eosdb_relay_up",
        "1 if nothing has gone wrong since the last transaction.",
        [(relay, 0 if status.last_error else 1)],
    )
    for figure, (text, value) in _OF_PARTITION.items():
        yield gauge(
            f"eosdb_relay_{figure}",
            text,
            [
                (
                    {**relay, "topic": partition.topic, "partition": partition.partition},
                    figure_value,
                )
                for partition in status.partitions
                if (figure_value := value(partition)) >= 0
            ],
        )
