"""The coordinator partition, one of 50, of a transactional id or group."""

from __future__ import annotations

from typing import Final

PARTITIONS: Final = 50
"""transaction.state.log.num.partitions and offsets.topic.num.partitions; a constant of the format."""


def partition_for(key: str) -> int:
    """The coordinator partition of a transactional id or group id. Java's `String.hashCode` over UTF-16
    units, its absolute value (0 for -2**31), modulo 50 (Kafka: Utils.abs,
    TransactionStateManager.partitionFor)."""
    data = key.encode("utf-16-le", "surrogatepass")
    value = 0
    for i in range(0, len(data), 2):
        value = (31 * value + (data[i] | data[i + 1] << 8)) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return (0 if signed == -(2**31) else abs(signed)) % PARTITIONS
