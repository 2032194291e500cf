"""Chooses the partition of a record that names none.

`consistent_random` is librdkafka's default (CRC-32 of the key), `murmur2_random` the Java client's. A
record without a key goes to the sticky partition, which changes with every batch (KIP-480).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Final

from eosdb.errors import ConfigError

Partitioner = Callable[[bytes, int], int]
"""Returns the partition for a key and a number of partitions."""

_MASK: Final = 0xFFFFFFFF
_M: Final = 0x5BD1E995


def consistent_random(key: bytes, partitions: int) -> int:
    return zlib.crc32(key) % partitions


def murmur2_random(key: bytes, partitions: int) -> int:
    """The Java client's partitioner (BuiltInPartitioner.partitionForKey)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, as an unsigned number (Utils.murmur2)."""
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if whole < length:
        h ^= int.from_bytes(data[whole:], "little")
        h = h * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ (h >> 15)


def partitions_of(partitioner: Partitioner, keys: Sequence[bytes], partitions: int) -> list[int]:
    """Return the partition of each key."""
    assert partitions > 0, partitions
    if partitioner is consistent_random:  # CRC-32 is faster than a look-up of repeated keys.
        return [checksum % partitions for checksum in map(zlib.crc32, keys)]
    by_key = {key: partitioner(key, partitions) for key in set(keys)}
    return [by_key[key] for key in keys]


_BY_NAME: Final[dict[str, Partitioner]] = {
    "consistent_random": consistent_random,
    "murmur2_random": murmur2_random,
}


def partitioner_of(setting: str | Partitioner) -> Partitioner:
    """Return the partitioner for a producer setting. Raises ConfigError for an unknown name."""
    if callable(setting):
        return setting
    try:
        return _BY_NAME[setting]
    except (KeyError, TypeError):
        raise ConfigError(
            f"partitioner: got {setting!r}, expected {', '.join(_BY_NAME)} or a callable"
        ) from None
