"""The sticky assignors: balanced, and moving as few partitions as possible, cooperatively in two steps.

Members keep the partitions they own as far as the balance allows. Under the cooperative protocol a
partition that has to move is first left unassigned: its owner revokes it and rejoins, and only then is it
assigned to another member (KIP-54, KIP-429; AbstractStickyAssignor, CooperativeStickyAssignor).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eosdb.client.consumer.assignors.sticky import (
    Assignment,
    MemberSubscription,
    all_partitions,
    assign_unequal,
)
from eosdb.model.values import TopicPartition


@dataclass(frozen=True, slots=True)
class Claims:
    """The partitions that the members claim to own."""

    owned: Assignment
    """Valid claims by member. Of several claims to a partition, only that of the newest generation is
    valid."""
    contested: set[TopicPartition] = field(default_factory=set)
    """Partitions claimed by several members of the same generation: none of these claims is valid."""


def assign_stickily(
    members: Sequence[MemberSubscription], partitions: Mapping[str, int]
) -> Assignment:
    """Compute the assignment under the eager protocol: members revoke all partitions before joining."""
    return _assign(members, partitions)[0]


def assign_cooperatively(
    members: Sequence[MemberSubscription], partitions: Mapping[str, int]
) -> Assignment:
    """Compute the assignment of this rebalance; members that revoke partitions rejoin, and the next
    rebalance assigns these."""
    assignment, moving = _assign(members, partitions)
    return {
        member_id: [tp for tp in tps if moving.get(tp) != member_id]
        for member_id, tps in assignment.items()
    }


def _assign(
    members: Sequence[MemberSubscription], partitions: Mapping[str, int]
) -> tuple[Assignment, dict[TopicPartition, str]]:
    """Compute the assignment. Returns also the partitions that move, with their new owners."""
    ordered = sorted(members, key=lambda member: member.member_id)
    wanted = {topic for member in ordered for topic in member.subscription.topics}
    existing = {topic: count for topic, count in partitions.items() if count and topic in wanted}
    claims = read_claims(ordered, existing)
    if len({frozenset(member.subscription.topics) for member in ordered}) <= 1:
        return assign_equal(claims, existing)
    owned = {member_id: list(tps) for member_id, tps in claims.owned.items()}
    assignment = assign_unequal(ordered, owned, existing)
    return assignment, _moving(ordered, assignment)


def read_claims(members: Sequence[MemberSubscription], partitions: Mapping[str, int]) -> Claims:
    """Read the valid claims of the members, without deleted partitions."""
    claims = Claims({member.member_id: [] for member in members})
    claimants: dict[TopicPartition, MemberSubscription] = {}
    for member in members:
        for tp in member.subscription.owned:
            if tp.partition >= partitions.get(tp.topic, 0):
                continue
            other = claimants.get(tp)
            if other is not None:
                generation, others = (
                    member.subscription.generation_id,
                    other.subscription.generation_id,
                )
                if generation < others:
                    continue
                if tp in claims.owned[other.member_id]:
                    claims.owned[other.member_id].remove(tp)
                if generation == others:
                    claims.contested.add(tp)
            claimants[tp] = member
            if other is None or generation > others:
                claims.owned[member.member_id].append(tp)
    return claims


def assign_equal(
    claims: Claims, partitions: Mapping[str, int]
) -> tuple[Assignment, dict[TopicPartition, str]]:
    """Compute the assignment for members with equal subscriptions: each gets the same number of partitions,
    or one more (ConstrainedAssignmentBuilder). Returns also the partitions that move, with their new
    owners."""
    total = sum(partitions.values())
    fewest, larger_shares = divmod(total, len(claims.owned))
    most = fewest + (larger_shares > 0)
    assignment: Assignment = {}
    given_up: dict[TopicPartition, str] = {}
    hungry: list[str] = []  # Members below the smaller share.
    content: list[str] = []  # Members at the smaller share, which may get one more partition.
    large = 0
    for member_id, claimed in claims.owned.items():
        owned = sorted(set(claimed) - claims.contested, key=lambda tp: (tp.partition, tp.topic))
        if len(owned) < fewest:
            keeps = len(owned)
            hungry.append(member_id)
        elif len(owned) >= most and large < larger_shares:
            keeps = most
            large += 1
            if large == larger_shares:
                content.clear()
        else:
            keeps = fewest
            if large < larger_shares:
                content.append(member_id)
        assignment[member_id] = owned[:keeps]
        given_up |= dict.fromkeys(owned[keeps:], member_id)
    kept = {tp for tps in assignment.values() for tp in tps}
    free = [tp for tp in all_partitions(sorted(partitions), partitions) if tp not in kept]
    moving: dict[TopicPartition, str] = {}
    hungry.sort()
    content.sort()
    turn = 0
    for tp in free:
        if hungry:
            turn %= len(hungry)
            taker = hungry[turn]
            if len(assignment[taker]) + 1 == fewest:
                content.append(hungry.pop(turn))
            else:
                turn += 1
        else:
            taker = content.pop(0)
        assignment[taker].append(tp)
        if given_up.get(tp, taker) != taker or tp in claims.contested:
            moving[tp] = taker
    return assignment, moving


def _moving(
    members: Sequence[MemberSubscription], assignment: Assignment
) -> dict[TopicPartition, str]:
    """Return the partitions that are assigned to one member while another owns them, with their new
    owners."""
    gained: dict[TopicPartition, str] = {}
    given_up: set[TopicPartition] = set()
    for member in members:
        owned, assigned = set(member.subscription.owned), set(assignment[member.member_id])
        gained |= dict.fromkeys(assigned - owned, member.member_id)
        given_up |= owned - assigned
    return {tp: member_id for tp, member_id in gained.items() if tp in given_up}
