"""What members of a consumer group tell each other, as the group's opaque bytes (Kafka: ConsumerProtocol).

A member joins with a `Subscription`, the leader answers each with its partitions. Both are JSON, so that
SQL can read them in the `journal`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from eosdb.model.values import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumer groups; other users of the protocol have another."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one member wants, and what it holds from which generation (-1: nothing)."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1

    def encode(self) -> bytes:
        fields = {
            "topics": list(self.topics),
            "owned": _by_topic(self.owned),
            "generation": self.generation_id,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def decode_subscription(data: bytes) -> Subscription:
    """Raises ValueError for bytes that are not a subscription."""
    try:
        fields = json.loads(data)
        topics = tuple(str(topic) for topic in fields["topics"])
        return Subscription(topics, _partitions(fields["owned"]), int(fields["generation"]))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not a subscription: {data[:80]!r}") from error


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    return json.dumps(_by_topic(partitions), separators=(",", ":")).encode()


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions, sorted; none for no bytes. Raises ValueError for bytes that are not an
    assignment."""
    if not data:
        return ()
    try:
        return _partitions(json.loads(data))
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not an assignment: {data[:80]!r}") from error


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return by_topic


def _partitions(by_topic: dict[str, list[int]]) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(topic, int(p)) for topic, found in by_topic.items() for p in found)
    )
