"""The opaque bytes of consumer groups: subscriptions and assignments (Kafka: ConsumerProtocol).

A member joins with a `Subscription`, and the leader sends each member its partitions. Both have the
encoding of Kafka's clients, so these can be members of the same group (decisions/0029).

The transactional ids of large `append_once` calls and of processors show that their owner holds a lock. The
id and the epoch determine the lock's number. An `append_once` holds the lock of its epoch, because the next
attempt has a higher epoch. A processor is the only user of its id, and holds the locks of all epochs.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from eosdb.model.values import TopicPartition

SINK: Final = "__eosdb.sink:"
"""The prefix of the ids of `append_once`."""
OWNED_BY: Final = "-owned-by-eosdb-"
"""Separates the user's id from the member's in a processor's id. It is unlikely in a user's id, because the
next write aborts an open transaction of such an id if its lock is not held."""
EPOCHS: Final = 2**15
_IDS: Final = 2**46


def with_owner(transactional_id: str, member_id: str) -> str:
    """Return the transactional id of a processor with this member id."""
    return f"{transactional_id}{OWNED_BY}{member_id}"


def has_owner(transactional_id: str) -> bool:
    """Whether the owner of this id holds a lock while a transaction is open."""
    return transactional_id.startswith(SINK) or OWNED_BY in transactional_id


def owner_lock(transactional_id: str, producer_epoch: int) -> int:
    """The lock number of this id and epoch, below 2**61; the locks of an id are consecutive."""
    digest = hashlib.blake2b(
        transactional_id.encode(errors="surrogatepass"), digest_size=8
    ).digest()
    return int.from_bytes(digest, "big") % _IDS * EPOCHS + producer_epoch


PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumer groups."""
_VERSION: Final = 3
"""The version read and written. Later versions only append fields, which are ignored."""
_NO_RACK: Final = struct.pack(">h", -1)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's topics, its `owned` partitions, and the generation that assigned these (-1: none).
    `user_data` belongs to its assignor."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    user_data: bytes | None = None

    def encode(self) -> bytes:
        return b"".join(
            (
                struct.pack(">hi", _VERSION, len(self.topics)),
                *map(_string, self.topics),
                _bytes(self.user_data),
                encode_partitions(self.owned),
                struct.pack(">i", self.generation_id),
                _NO_RACK,
            )
        )


def decode_subscription(data: bytes) -> Subscription:
    """Decode a subscription. Raises ValueError for other bytes."""
    try:
        reader = Reader(data)
        version = reader.version()
        topics = tuple([reader.string() for _ in range(reader.count())])
        user_data = reader.data()
        owned = reader.partitions() if version >= 1 else ()
        return Subscription(topics, owned, reader.int32() if version >= 2 else -1, user_data)
    except ValueError as error:
        raise ValueError(f"not a subscription: {data[:80]!r}") from error


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    return struct.pack(">h", _VERSION) + encode_partitions(partitions) + _bytes(None)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode an assignment; returns sorted partitions (none for b""). Raises ValueError for other bytes."""
    if not data:
        return ()
    try:
        reader = Reader(data)
        reader.version()
        return reader.partitions()
    except ValueError as error:
        raise ValueError(f"not an assignment: {data[:80]!r}") from error


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    parts = [struct.pack(">i", len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += (_string(topic), struct.pack(f">{1 + len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts)


class Reader:
    """Decodes Kafka's primitive types. Raises ValueError for malformed bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def version(self) -> int:
        if (version := self._int(2)) < 0:
            raise ValueError(f"version {version}")
        return version

    def int32(self) -> int:
        return self._int(4)

    def count(self) -> int:
        """Read the length of an array whose elements have at least two bytes."""
        if not 0 <= (count := self._int(4)) <= self.left // 2:
            raise ValueError(f"an array of {count} with {self.left} bytes left")
        return count

    def string(self) -> str:
        return str(self._take(self._int(2)), "utf-8")

    def data(self) -> bytes | None:
        size = self._int(4)
        return None if size == -1 else self._take(size)

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Read an array of topics with their partitions; returns the partitions sorted."""
        tps: set[TopicPartition] = set()
        for _ in range(self.count()):
            topic, count = self.string(), self.count()
            numbers = struct.unpack(f">{count}i", self._take(4 * count))
            if count and min(numbers) < 0:
                raise ValueError(f"partition {min(numbers)} of {topic!r}")
            tps.update(TopicPartition(topic, number) for number in numbers)
        return tuple(sorted(tps))

    def _int(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big", signed=True)

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise ValueError(f"{size} bytes with {self.left} left")
        self._at += size
        return self._data[self._at - size : self._at]


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _bytes(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
