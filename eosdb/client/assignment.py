"""What assignors work with: members and what they want, and everybody's partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eosdb.model.consumer_protocol import Subscription
from eosdb.model.values import TopicPartition

Assignment = dict[str, list[TopicPartition]]
"""The partitions of every member, by its id; of one who gets none, an empty list."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member as an assignor sees it."""

    member_id: str
    group_instance_id: str | None
    subscription: Subscription


def all_partitions(topics: Iterable[str], partitions: Mapping[str, int]) -> list[TopicPartition]:
    """The partitions of these topics, in the topics' order."""
    return [TopicPartition(topic, p) for topic in topics for p in range(partitions[topic])]
