"""How requests change a group of the new protocol, whose partitions the coordinator assigns (KIP-848).

Pure decisions over the group's frozen value. With a heartbeat, a member joins, renews its session and
reports its partitions; the response has the partitions that it should own. A partition moves to another
member only after its member has confirmed its revocation, or has been removed. The rules are those of
Kafka's GroupMetadataManager and CurrentAssignmentBuilder.

The group epoch grows with every change of members, subscriptions or topics, and a target assignment is
computed for it. Topics are identified by number, because a deleted and recreated topic is a new one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from eosdb import errors
from eosdb.coordinator.groups.decisions import Members, merged
from eosdb.model.assignors import Subscriber, assign_ranges, assign_uniformly
from eosdb.model.protocol.members import (
    NO_DEADLINE,
    NOTHING,
    Assignor,
    Member,
    MemberState,
    Partitions,
)
from eosdb.model.requests import ConsumerGroupHeartbeat
from eosdb.model.values import GroupState

AWAY: Final = -2
"""The member epoch of a static member that has left for a while."""


@dataclass(frozen=True, slots=True)
class ConsumerGroup(Members):
    """A group. `metadata_hash` is a hash of the topics and partition counts behind the target."""

    group_id: str
    group_epoch: int = 0
    assignment_epoch: int = 0
    metadata_hash: int = 0
    members: tuple[Member, ...] = ()

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
        """The earliest time at which a member is removed because it has not given up partitions."""
        deadlines = (m.revoke_by_ms for m in self.members if m.revoke_by_ms != NO_DEADLINE)
        return min(deadlines, default=NO_DEADLINE)

    def with_members(
        self, changed: Iterable[Member], removed: Collection[str] = ()
    ) -> ConsumerGroup:
        """The group with these members added or replaced, and others removed by id."""
        return replace(self, members=merged(self.members, changed, removed))


ASSIGNORS: Final = {"uniform": assign_uniformly, "range": assign_ranges}
"""The assignors by the names that members request. The first is the default."""
LEAVE: Final = -1
"""The member epoch of a member that leaves for good. AWAY means that a static member leaves for a while."""
Topics = Mapping[str, tuple[int, int]]
"""Number and partition count of each topic, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHeartbeat(ConsumerGroupHeartbeat):
    """A heartbeat with its topics in their stored form. None means unchanged since the last heartbeat; a
    heartbeat with epoch 0 has every field."""

    matched: tuple[int, ...] | None = None
    """The topics that match the member's regular expression; None without one."""
    owned: Partitions | None = None
    """`topic_partitions` by topic number."""
    protocols: tuple[Assignor, ...] = ()
    """Only of a member that joins by the classic protocol."""

    @property
    def joins(self) -> bool:
        return self.member_epoch == 0

    @property
    def is_full(self) -> bool:
        """Whether every field is given, as after a join or an error. Then the answer has every field."""
        subscribed = (self.subscribed_topic_names, self.subscribed_topic_regex) != (None, None)
        says_all = self.rebalance_timeout_ms >= 0 and self.owned is not None
        return self.joins or (subscribed and says_all)


def check_heartbeat(beat: MemberHeartbeat) -> None:
    """Raise InvalidRequestError if the fields do not fit the heartbeat's epoch, and
    UnsupportedAssignorError for an unknown assignor."""
    problem = None
    if beat.group_instance_id == "" or beat.rack_id == "":
        problem = "an empty group_instance_id or rack_id, expected a name or None"
    elif beat.member_epoch < AWAY:
        problem = f"member_epoch {beat.member_epoch}, expected {AWAY} or more"
    elif not beat.member_id and not beat.joins:
        problem = f"no member_id with member_epoch {beat.member_epoch}"
    elif beat.member_epoch == AWAY and beat.group_instance_id is None:
        problem = f"no group_instance_id with member_epoch {AWAY}"
    elif beat.joins and beat.rebalance_timeout_ms < 0:
        problem = "no rebalance_timeout_ms in the first heartbeat"
    elif beat.joins and beat.owned != NOTHING:
        problem = "topic_partitions that are not empty in the first heartbeat"
    elif beat.joins and (beat.subscribed_topic_names, beat.subscribed_topic_regex) == (None, None):
        problem = "neither topics nor a regular expression in the first heartbeat"
    if problem is not None:
        raise errors.InvalidRequestError(f"consumer_group_heartbeat: got {problem}")
    if beat.server_assignor is not None and beat.server_assignor not in ASSIGNORS:
        raise errors.UnsupportedAssignorError(
            f"server_assignor: got {beat.server_assignor!r}, expected {' or '.join(ASSIGNORS)}"
        )


def heartbeat(
    group: ConsumerGroup,
    beat: MemberHeartbeat,
    topics: Topics,
    *,
    now_ms: int,
    session_timeout_ms: int,
    max_size: int,
) -> ConsumerGroup:
    """The group after the heartbeat of a member that joins or stays. `topics` are the topics that
    members subscribe to, by name or by regular expression. Raises UnknownMemberIdError,
    FencedMemberEpochError, FencedInstanceIdError, UnreleasedInstanceIdError and
    GroupMaxSizeReachedError."""
    if len(group.members) >= max_size and group.member(beat.member_id) is None:
        raise errors.GroupMaxSizeReachedError(
            f"group {group.group_id!r} has {len(group.members)} members, "
            f"group.consumer.max.size is {max_size}"
        )
    before, replaced = _subscribed_member(group, beat)
    member = _updated(before, beat, session_timeout_ms)
    changed = group.with_members([member], [replaced.member_id] if replaced is not None else ())
    numbers = _subscribed_topics(changed, topics)
    hash_ = _metadata_hash(numbers)
    # If a member was removed, `remove` has bumped the epoch already.
    is_bumped = _subscription(member) != _subscription(before) or (
        hash_ != group.metadata_hash and group.group_epoch == group.assignment_epoch
    )
    # A new group begins at epoch 1, because epoch 0 in a heartbeat means a join.
    epoch = max(group.group_epoch, 1) + is_bumped
    changed = replace(changed, group_epoch=epoch, metadata_hash=hash_)
    if changed.group_epoch > changed.assignment_epoch:
        changed = _with_target(changed, topics, numbers)
        member = known_member(changed, member.member_id)
    taken = _owned_by_others(changed, known_member(changed, member.member_id))
    reconciled = _reconciled(
        member, changed.assignment_epoch, beat.owned, taken, now_ms, joins=beat.joins
    )
    return changed.with_members([reconciled])


def leave_for_a_while(group: ConsumerGroup, member: Member) -> ConsumerGroup:
    """The group after a static member has left for a while; it keeps its place."""
    away = member._replace(
        member_epoch=AWAY,
        shares=member.keeping(member.assigned, member.member_epoch),
        pending_revocation=NOTHING,
        revoke_by_ms=NO_DEADLINE,
    )
    return group.with_members([away])


def remove(group: ConsumerGroup, member_ids: Collection[str]) -> ConsumerGroup:
    """The group without these members. The next heartbeat computes the target of the others."""
    gone = [m.member_id for m in group.members if m.member_id in member_ids]
    if not gone:
        return group
    return replace(group.with_members((), gone), group_epoch=group.group_epoch + 1)


def overdue(group: ConsumerGroup, now_ms: int) -> set[str]:
    """The ids of the members that did not give up partitions in time."""
    return {
        m.member_id
        for m in group.members
        if m.revoke_by_ms != NO_DEADLINE and m.revoke_by_ms < now_ms
    }


def assignor_of(group: ConsumerGroup) -> str:
    """The assignor that most members request."""
    votes = Counter(m.server_assignor for m in group.members if m.server_assignor is not None)
    return max(votes, key=lambda name: (votes[name], name), default="uniform")


def known_member(group: ConsumerGroup, member_id: str) -> Member:
    """The member with this id. Raises UnknownMemberIdError."""
    member = group.member(member_id)
    if member is None:
        raise errors.UnknownMemberIdError(
            f"group {group.group_id!r}: {member_id!r} is not a member, because it left or its session "
            "timed out; join again"
        )
    return member


def static_member(group: ConsumerGroup, member_id: str, group_instance_id: str) -> Member:
    """The member with this group instance id. Raises UnknownMemberIdError, and FencedInstanceIdError if
    another member id has it."""
    holder = group.holder(member_id, group_instance_id)
    if holder is None:
        raise errors.UnknownMemberIdError(
            f"group {group.group_id!r}: no member has the group instance id {group_instance_id!r}; join "
            "again"
        )
    return holder


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    member_epoch: int,
    group_instance_id: str | None = None,
    *,
    partitions: Partitions,
    is_transactional: bool,
) -> None:
    """Check that offsets of these partitions may be committed. Allowed: a member in its epoch; a member in
    an older epoch, if it has owned all the partitions since (KIP-1251); anybody in an empty group; inside
    a transaction, a client with neither a member id nor a group instance id. Nobody commits what another
    member has got since that epoch. Raises UnknownMemberIdError and StaleMemberEpochError; for classic
    members, whose clients do not know that error, IllegalGenerationError."""
    is_simple = not member_id and group_instance_id is None
    if member_epoch < 0 and (not group.members or (is_transactional and is_simple)):
        return
    member = known_member(group, member_id)
    if member_epoch < member.member_epoch and partitions <= member.kept_since(member_epoch):
        return
    stale = _stale(group, member, member_epoch)
    # decisions/0109: it may have given them up, and be in its epoch still because it must give up more.
    others = (m.owned - m.kept_since(member_epoch) for m in group.members if m is not member)
    if stale is None and not partitions.isdisjoint(NOTHING.union(*others)):
        stale = errors.StaleMemberEpochError(
            f"group {group.group_id!r}: {member_id!r} commits partitions that another member has got "
            "since; read on from the group's offsets"
        )
    if stale is not None:
        raise errors.IllegalGenerationError(str(stale)) if member.protocols else stale


def _owned_by_others(group: ConsumerGroup, member: Member) -> Partitions:
    return NOTHING.union(*(m.owned for m in group.members if m is not member))


def check_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
    """Check that the offsets may be fetched: by a member in its epoch, or a client without a member id.
    Raises UnknownMemberIdError, StaleMemberEpochError, and IllegalGenerationError for a classic member."""
    if member_id is None and member_epoch < 0:
        return
    member = known_member(group, member_id or "")
    if (stale := _stale(group, member, member_epoch)) is not None:
        raise errors.IllegalGenerationError(str(stale)) if member.protocols else stale


def check_unsubscribed(group: ConsumerGroup, topic: str, number: int) -> None:
    """Raise GroupSubscribedToTopicError if a member is subscribed to the topic."""
    for member in group.members:
        if topic in member.subscribed_topic_names or number in member.matched:
            raise errors.GroupSubscribedToTopicError(
                f"group {group.group_id!r}: member {member.member_id!r} subscribes to {topic}; delete "
                "the offsets after this member has left"
            )


def _stale(
    group: ConsumerGroup, member: Member, member_epoch: int
) -> errors.StaleMemberEpochError | None:
    if member_epoch == member.member_epoch:
        return None
    return errors.StaleMemberEpochError(
        f"group {group.group_id!r}: got member epoch {member_epoch}, {member.member_id!r} is at "
        f"{member.member_epoch}; retry with the epoch that its next heartbeat gives"
    )


def _subscribed_member(group: ConsumerGroup, beat: MemberHeartbeat) -> tuple[Member, Member | None]:
    """The member before the heartbeat (new or known), and the static member that it replaces."""
    if beat.group_instance_id is None:
        if beat.joins:
            return group.member(beat.member_id) or Member(beat.member_id), None
        member = known_member(group, beat.member_id)
        _check_epoch(group, member, beat)
        return member, None
    if not beat.joins:
        member = static_member(group, beat.member_id, beat.group_instance_id)
        _check_epoch(group, member, beat)
        return member, None
    holder = group.instance(beat.group_instance_id)
    if holder is None or (beat.protocols and holder.member_id == beat.member_id):
        return group.member(beat.member_id) or Member(beat.member_id), None
    if holder.member_epoch != AWAY and not (holder.protocols or beat.protocols):
        raise errors.UnreleasedInstanceIdError(
            f"group {group.group_id!r}: {beat.group_instance_id!r} is still held by member "
            f"{holder.member_id!r}; join again after this member has left or its session has ended"
        )
    returned = holder._replace(member_id=beat.member_id, member_epoch=0, previous_member_epoch=0)
    return returned, None if beat.member_id == holder.member_id else holder


def _check_epoch(group: ConsumerGroup, member: Member, beat: MemberHeartbeat) -> None:
    """Raise FencedMemberEpochError for an epoch that is not the member's. The previous epoch is accepted if
    the member reports no partition outside its assignment, because the response with the new epoch may
    have been lost."""
    got = beat.member_epoch
    is_previous = (
        got == member.previous_member_epoch
        and beat.owned is not None
        and beat.owned <= member.assigned
    )
    if got != member.member_epoch and not (got < member.member_epoch and is_previous):
        raise errors.FencedMemberEpochError(
            f"group {group.group_id!r}: got member epoch {got}, {member.member_id!r} is at "
            f"{member.member_epoch}; give up all partitions and join again"
        )


def _updated(member: Member, beat: MemberHeartbeat, session_timeout_ms: int) -> Member:
    names, regex, rack = beat.subscribed_topic_names, beat.subscribed_topic_regex, beat.rack_id
    timeout, assignor = beat.rebalance_timeout_ms, beat.server_assignor
    instance = beat.group_instance_id
    return member._replace(
        group_instance_id=member.group_instance_id if instance is None else instance,
        rack_id=member.rack_id if rack is None else rack,
        client_id=beat.client_id,
        client_host=beat.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout < 0 else timeout,
        subscribed_topic_names=(
            member.subscribed_topic_names if names is None else tuple(sorted(set(names)))
        ),
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
        matched=beat.matched or (),
        server_assignor=member.server_assignor if assignor is None else assignor,
        owner_lock=beat.owner_lock or member.owner_lock,
        protocols=beat.protocols,
    )


def _subscription(member: Member) -> tuple[object, ...]:
    return member.subscribed_topic_names, member.matched


def _subscribed_topics(group: ConsumerGroup, topics: Topics) -> dict[int, int]:
    """Partition counts of the existing topics that members subscribe to."""
    names = {name for member in group.members for name in member.subscribed_topic_names}
    matched = {number for member in group.members for number in member.matched}
    return {
        number: count
        for name, (number, count) in sorted(topics.items())
        if name in names or number in matched
    }


def _metadata_hash(topics: Mapping[int, int]) -> int:
    """A hash of 53 bits over the subscribed topics and their partition counts."""
    # decisions/0072: 53 bits, because some JSON readers round larger integers.
    digest = hashlib.blake2b(repr(sorted(topics.items())).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 11 if topics else 0


def _with_target(group: ConsumerGroup, topics: Topics, numbers: Mapping[int, int]) -> ConsumerGroup:
    subscribers = []
    for member in group.members:
        named = (topics[name][0] for name in member.subscribed_topic_names if name in topics)
        subscribed = {*named, *member.matched} & numbers.keys()
        subscribers.append(
            Subscriber(member.member_id, subscribed, member.target, member.group_instance_id)
        )
    target = ASSIGNORS[assignor_of(group)](subscribers, numbers)
    members = [member._replace(target=target[member.member_id]) for member in group.members]
    return replace(group, members=tuple(members), assignment_epoch=group.group_epoch)


def _reconciled(
    member: Member,
    assignment_epoch: int,
    owned: Partitions | None,
    taken: Partitions,
    now_ms: int,
    *,
    joins: bool,
) -> Member:
    """The member's next step to its target: it first gives up partitions outside of the target, then gets
    free ones. `owned` is the member's report (None: unchanged); `taken` partitions are not free. What a
    member that joins does not name, it reads again from the group's offsets, as if it were new to it."""
    is_settled = member.state is MemberState.STABLE and member.member_epoch == assignment_epoch
    if is_settled and not joins:
        return member
    named = owned or NOTHING if joins else member.owned
    if is_settled:
        anew = member.keeping(named, member.member_epoch, member.owned - named)
        return member._replace(shares=anew)
    is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
    if is_revoking and (owned is None or owned & member.pending_revocation):
        return member
    kept = member.assigned & member.target
    revoked = member.assigned - kept
    if revoked and (owned is None or owned & revoked):
        return _moved(
            member,
            member.member_epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            shares=member.keeping(member.assigned, member.member_epoch),
            pending_revocation=revoked,
            revoke_by_ms=now_ms + member.rebalance_timeout_ms,
        )
    unreleased = (member.target - kept) & taken
    kept &= named
    return _moved(
        member,
        assignment_epoch,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        shares=member.keeping(kept, assignment_epoch, member.target - unreleased - kept),
        pending_revocation=NOTHING,
        revoke_by_ms=NO_DEADLINE,
    )


def _moved(member: Member, epoch: int, **changes: Any) -> Member:
    """The member moved to this epoch; its current epoch becomes the previous epoch, even if both are
    equal."""
    return member._replace(member_epoch=epoch, previous_member_epoch=member.member_epoch, **changes)
