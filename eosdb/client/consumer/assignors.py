"""Kafka's assignors by name. The leader of a group runs an assignor that all members support.

A member reports its partitions in JoinGroup: in its subscription, or in the user data of the sticky
assignors. Members may run different Kafka clients. So assignors read every client's format, and write a
format that all clients read (decisions/0029). Racks are ignored: there is only one file.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from eosdb.model import assignors
from eosdb.model.assignors import Subscriber, assign_ranges, assign_round_robin, assign_uniformly
from eosdb.model.protocol.consumer_protocol import Reader, Subscription, encode_partitions
from eosdb.model.values import TopicPartition

_GENERATION: Final = struct.Struct(">i")
Assignment = dict[str, list[TopicPartition]]
"""Every member's partitions, by member id; an empty list for a member without any."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member of the group and its subscription, as the leader reads them."""

    member_id: str
    group_instance_id: str | None
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class ClientAssignor:
    """A way to assign partitions. If cooperative, members keep partitions that do not move (KIP-429)."""

    name: str
    share_out: Callable[[Collection[Subscriber[str]], Mapping[str, int]], assignors.Assignment[str]]
    is_cooperative: bool = False
    user_data: Callable[[Subscription], bytes | None] = lambda _: None
    """Encodes a member's last assignment, which it sends to the leader with its subscription."""
    claims: Callable[[Subscription], Subscription] = lambda told: told
    """Decodes the user data: returns the subscription with the partitions that the member owns."""

    def assign(
        self, members: Collection[MemberSubscription], partitions: Mapping[str, int]
    ) -> Assignment:
        """The assignment of this rebalance, for the partition count of each existing topic. A cooperative
        assignor omits partitions that move: their owners revoke them and rejoin, and the next rebalance
        assigns them."""
        owners, contested = _owners(members, partitions)
        held: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        for tp in owners.keys() - contested:
            held[owners[tp].member_id].add(tp)
        shares = self.share_out(
            [
                Subscriber(
                    m.member_id,
                    m.subscription.topics,
                    frozenset(held[m.member_id]),
                    m.group_instance_id,
                )
                for m in members
            ],
            partitions,
        )
        moving = (
            contested
            | {
                tp
                for member_id, share in shares.items()
                for tp in share & owners.keys()
                if owners[tp].member_id != member_id
            }
            if self.is_cooperative
            else set()
        )
        return {
            member_id: [TopicPartition(*tp) for tp in sorted(share - moving)]
            for member_id, share in shares.items()
        }


def _owners(
    members: Collection[MemberSubscription], partitions: Mapping[str, int]
) -> tuple[dict[tuple[str, int], MemberSubscription], set[tuple[str, int]]]:
    """The owner of each existing partition: the claimant of the newest generation. Also returns the
    partitions with several claimants of that generation, which have no owner."""
    owners: dict[tuple[str, int], MemberSubscription] = {}
    contested = set[tuple[str, int]]()
    for member in members:
        generation = member.subscription.generation_id
        for tp in member.subscription.owned:
            if tp.partition >= partitions.get(tp.topic, 0):
                continue
            other = owners.get(tp)
            if other is None or generation > other.subscription.generation_id:
                owners[tp] = member
                contested.discard(tp)
            elif generation == other.subscription.generation_id:
                contested.add(tp)
    return owners, contested


def _sticky_user_data(held: Subscription) -> bytes | None:
    """Encode the member's last assignment, which it revoked in order to join (StickyAssignorUserData,
    version 1)."""
    if held.generation_id < 0:
        return None
    return encode_partitions(held.owned) + _GENERATION.pack(held.generation_id)


def _sticky_claims(told: Subscription) -> Subscription:
    """Return the subscription with the partitions and generation of its user data; with none if that
    cannot be decoded."""
    data = told.user_data or b""
    # User data begins with the version in kafka-python 3, and with the partitions in all other clients.
    for begin in (0, 2):
        try:
            reader = Reader(data[begin:])
            owned = reader.partitions()
            generation = reader.int32() if reader.left else -1  # Version 0 has no generation.
        except ValueError:
            continue
        return replace(told, owned=owned, generation_id=generation)
    return replace(told, owned=(), generation_id=-1)


def _cooperative_claims(told: Subscription) -> Subscription:
    """Return the subscription with its generation. Older versions of the subscription have it only in the
    user data. librdkafka writes user data in the format of `sticky`."""
    if told.generation_id >= 0 or not told.user_data:
        return told
    if len(told.user_data) == _GENERATION.size:
        return replace(told, generation_id=_GENERATION.unpack(told.user_data)[0])
    return replace(told, generation_id=_sticky_claims(told).generation_id)


ASSIGNORS: Final[dict[str, ClientAssignor]] = {
    assignor.name: assignor
    for assignor in (
        ClientAssignor("range", assign_ranges),
        ClientAssignor("roundrobin", assign_round_robin),
        ClientAssignor("sticky", assign_uniformly, False, _sticky_user_data, _sticky_claims),
        ClientAssignor(
            "cooperative-sticky",
            assign_uniformly,
            True,
            # Only the generation; the owned partitions are in the subscription.
            lambda held: None if held.generation_id < 0 else _GENERATION.pack(held.generation_id),
            _cooperative_claims,
        ),
    )
}
"""The assignors by their names in partition_assignment_strategy."""
