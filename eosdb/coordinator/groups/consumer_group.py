"""The value of a group of the new protocol, and of its members (KIP-848).

The group epoch grows with every change of members, subscriptions or topics. A target assignment is
computed for a group epoch. Members move to it by their own heartbeats: they give up partitions before
others get them. Topics go by number, because a deleted and recreated topic is a new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from eosdb.model.values import GroupState

Partitions = frozenset[tuple[int, int]]
"""Topic number and partition number of each."""
NOTHING: Final[Partitions] = frozenset()
NO_DEADLINE: Final = -1
AWAY: Final = -2
"""The member epoch of a static member that has left for a while."""


class MemberState(Enum):
    """The member's progress towards its target assignment."""

    STABLE = "Stable"
    UNREVOKED_PARTITIONS = "UnrevokedPartitions"
    """The member has to give up partitions."""
    UNRELEASED_PARTITIONS = "UnreleasedPartitions"
    """Other members have to give up partitions of its target."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member. `matched` are the topics for its regular expression that it is allowed to see."""

    member_id: str
    group_instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str = ""
    matched: tuple[int, ...] = ()
    server_assignor: str | None = None
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    pending_revocation: Partitions = NOTHING
    """Partitions it was told to give up and has not confirmed; no other member may have them."""
    target: Partitions = NOTHING
    revoke_by_ms: int = NO_DEADLINE
    """When it is removed unless it gives up `pending_revocation`, or rejoins or syncs by the classic
    protocol."""
    owner_lock: int = 0
    """The number of the lock that its process holds; 0 if none."""
    protocols: tuple[tuple[str, bytes], ...] = ()
    """Of a classic member: its assignors, each with its metadata."""

    @property
    def owned(self) -> Partitions:
        """The partitions that no other member may get."""
        return self.assigned | self.pending_revocation

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A group. `metadata_hash` stands for the subscribed topics and partition counts of the target."""

    group_id: str
    group_epoch: int = 0
    assignment_epoch: int = 0
    metadata_hash: int = 0
    members: tuple[ConsumerMember, ...] = ()

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def deadline_ms(self) -> int:
        """When the first member is removed for not giving up partitions."""
        deadlines = (m.revoke_by_ms for m in self.members if m.revoke_by_ms != NO_DEADLINE)
        return min(deadlines, default=NO_DEADLINE)

    def member(self, member_id: str) -> ConsumerMember | None:
        return next((m for m in self.members if m.member_id == member_id), None)

    def owner_of(self, owner_lock: int) -> ConsumerMember | None:
        return next((m for m in self.members if owner_lock and m.owner_lock == owner_lock), None)

    def instance(self, group_instance_id: str | None) -> ConsumerMember | None:
        if group_instance_id is None:
            return None
        return next((m for m in self.members if m.group_instance_id == group_instance_id), None)

    def with_members(
        self, changed: Iterable[ConsumerMember], removed: Iterable[str] = ()
    ) -> ConsumerGroup:
        """The group with these members added or replaced, and others removed by id."""
        members = {member.member_id: member for member in self.members}
        members |= {member.member_id: member for member in changed}
        for member_id in removed:
            del members[member_id]
        return replace(self, members=tuple(members.values()))
