"""Kafka's assignors by name; they compute the same assignments as Kafka's.

The group's leader runs an assignor that all members support. Racks are ignored: there is only one file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from eosdb.client.consumer.assignors.cooperative import assign_cooperatively, assign_stickily
from eosdb.client.consumer.assignors.sticky import Assignment, MemberSubscription, all_partitions
from eosdb.client.consumer.assignors.user_data import (
    cooperative_claims,
    cooperative_user_data,
    sticky_claims,
    sticky_user_data,
)
from eosdb.model.protocol.consumer_protocol import Subscription
from eosdb.model.values import TopicPartition


def _no_user_data(_: Subscription) -> None:
    return None


def _as_told(told: Subscription) -> Subscription:
    return told


@dataclass(frozen=True, slots=True)
class Assignor:
    """A way to assign partitions. If cooperative, members keep partitions that do not move (KIP-429)."""

    name: str
    is_cooperative: bool
    assign: Callable[[Sequence[MemberSubscription], Mapping[str, int]], Assignment]
    """Maps the members and the partition count of each existing topic to the assignment."""
    user_data: Callable[[Subscription], bytes | None] = _no_user_data
    """Encodes a member's last assignment, which it sends to the leader with its subscription."""
    claims: Callable[[Subscription], Subscription] = _as_told
    """Decodes it: returns the subscription with the partitions that the member claims to own."""


def assign_ranges(
    members: Sequence[MemberSubscription], partitions: Mapping[str, int]
) -> Assignment:
    """Assign each topic separately: its subscribers, in order, get consecutive partitions, and the first of
    them one more if the count does not divide evenly (RangeAssignor)."""
    assignment: Assignment = {member.member_id: [] for member in members}
    ordered = sorted(members, key=_static_first)
    for topic, count in sorted(partitions.items()):
        subscribers = [m.member_id for m in ordered if topic in m.subscription.topics]
        if not subscribers:
            continue
        each, more = divmod(count, len(subscribers))
        start = 0
        for i, member_id in enumerate(subscribers):
            end = start + each + (i < more)
            assignment[member_id] += [TopicPartition(topic, p) for p in range(start, end)]
            start = end
    return assignment


def assign_round_robin(
    members: Sequence[MemberSubscription], partitions: Mapping[str, int]
) -> Assignment:
    """Assign all partitions of all topics, one to each subscriber in turn (RoundRobinAssignor)."""
    assignment: Assignment = {member.member_id: [] for member in members}
    subscribed = {topic for member in members for topic in member.subscription.topics}
    turns = cycle(sorted(members, key=_static_first))
    for tp in all_partitions(sorted(subscribed & partitions.keys()), partitions):
        taker = next(member for member in turns if tp.topic in member.subscription.topics)
        assignment[taker.member_id].append(tp)
    return assignment


def _static_first(member: MemberSubscription) -> tuple[bool, str]:
    """Sort key: static members keep their place regardless of their member id
    (AbstractPartitionAssignor)."""
    if member.group_instance_id is not None:
        return False, member.group_instance_id
    return True, member.member_id


ASSIGNORS: Final[dict[str, Assignor]] = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", False, assign_ranges),
        Assignor("roundrobin", False, assign_round_robin),
        Assignor("sticky", False, assign_stickily, sticky_user_data, sticky_claims),
        Assignor(
            "cooperative-sticky",
            True,
            assign_cooperatively,
            cooperative_user_data,
            cooperative_claims,
        ),
    )
}
"""The assignors by their names in partition_assignment_strategy."""
