"""How requests change a consumer group of the classic protocol: pure decisions over its frozen value.

The rules are those of Kafka's ClassicGroup and GroupCoordinator, but no request blocks: the result of a
join or sync that depends on other members is incomplete, and the member repeats the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from eosdb import errors
from eosdb.model.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
)
from eosdb.model.protocol.members import NO_DEADLINE, Assignor, Member
from eosdb.model.values import GroupState, TopicPartition


class Members:
    """The members of a group of either protocol."""

    __slots__ = ()
    group_id: str
    members: tuple[Member, ...]

    def member(self, member_id: str) -> Member | None:
        return next((m for m in self.members if m.member_id == member_id), None)

    def owner_of(self, owner_lock: int) -> Member | None:
        return next((m for m in self.members if owner_lock and m.owner_lock == owner_lock), None)

    def instance(self, group_instance_id: str | None) -> Member | None:
        if group_instance_id is None:
            return None
        return next((m for m in self.members if m.group_instance_id == group_instance_id), None)

    def holder(self, member_id: str, group_instance_id: str | None) -> Member | None:
        """The member with the group instance id, if any. Raises FencedInstanceIdError if it is another."""
        holder = self.instance(group_instance_id)
        if holder is not None and holder.member_id != member_id:
            raise errors.FencedInstanceIdError(
                f"group {self.group_id!r}: {group_instance_id!r} is held by member {holder.member_id!r} "
                f"now, got {member_id!r}; a newer instance has taken over: close this one"
            )
        return holder


def merged(
    members: Iterable[Member], changed: Iterable[Member], removed: Collection[str]
) -> tuple[Member, ...]:
    """The members with these added or replaced, and others removed by id."""
    by_id = {member.member_id: member for member in (*members, *changed)}
    return tuple(member for member_id, member in by_id.items() if member_id not in removed)


@dataclass(frozen=True, slots=True)
class Group(Members):
    """A group. At `deadline_ms` the rebalance ends without the members that are late."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    protocol_type: str = ""
    protocol_name: str | None = None
    generation_id: int = 0
    leader: str | None = None
    members: tuple[Member, ...] = ()
    deadline_ms: int = NO_DEADLINE


def join(group: Group, joining: Member, protocol_type: str, now_ms: int) -> Group:
    """The group after the member has joined, or a rebalance has begun for it (doJoinGroup). A rejoin with
    the same protocols causes no rebalance, except by the leader of a stable group, which may want another
    assignment. A static member that returns with a new member id takes over its place. Raises
    InconsistentGroupProtocolError, and UnknownMemberIdError if a static member has lost partitions."""
    check_protocols(group, joining, protocol_type)
    current = group.member(joining.member_id)
    if current is None:
        holder = group.instance(joining.group_instance_id)
        if holder is not None:
            return _replace_static_member(group, holder, joining, now_ms)
        added = replace(group, protocol_type=protocol_type, members=(*group.members, joining))
        return _prepare(added, joining.member_id, now_ms)
    _check_lost_nothing(group, current, joining)
    same = current.protocols == joining.protocols
    distributed = group.state is GroupState.COMPLETING_REBALANCE or (
        group.state is GroupState.STABLE and group.leader != joining.member_id
    )
    if same and distributed:
        # The generation has this static member already: it was away while other members joined.
        return _with(group, current, current._replace(has_joined=True))
    updated = joining._replace(
        group_instance_id=current.group_instance_id, assignment=current.assignment
    )
    return _prepare(_with(group, current, updated), joining.member_id, now_ms)


def sync(
    group: Group,
    member_id: str,
    generation_id: int,
    assignments: Mapping[str, bytes],
    protocol_type: str | None = None,
    protocol_name: str | None = None,
) -> Group:
    """The group after a sync: stable once the leader has sent the assignment; unchanged by followers.
    Raises RebalanceInProgressError while a generation is prepared, and IllegalGenerationError. Raises
    InconsistentGroupProtocolError for another protocol type or name (KIP-559); None is not checked."""
    check_generation(group, generation_id)
    for name, requested, current in (
        ("protocol type", protocol_type, group.protocol_type),
        ("protocol", protocol_name, group.protocol_name),
    ):
        if requested is not None and requested != current:
            raise errors.InconsistentGroupProtocolError(
                f"group {group.group_id!r}: got {name} {requested!r}, this generation has {current!r}; "
                "join again"
            )
    if group.state is GroupState.PREPARING_REBALANCE:
        raise _rebalancing(group)
    if group.state is GroupState.STABLE or group.leader != member_id:
        return group
    members = tuple(
        member._replace(assignment=assignments.get(member.member_id, b""))
        for member in group.members
    )
    return replace(group, state=GroupState.STABLE, members=members, deadline_ms=NO_DEADLINE)


def check_heartbeat(group: Group, generation_id: int) -> errors.RebalanceInProgressError | None:
    """Return the error that makes the member rejoin; the caller renews its session in either case. Raises
    IllegalGenerationError for another generation."""
    check_generation(group, generation_id)
    return _rebalancing(group) if group.state is GroupState.PREPARING_REBALANCE else None


def leave(group: Group, member_ids: Collection[str], now_ms: int) -> Group:
    """The group without these members; the others begin a rebalance (removeMember)."""
    staying = tuple(m for m in group.members if m.member_id not in member_ids)
    if len(staying) == len(group.members):
        return group
    left = replace(group, members=staying)
    if not staying:
        return _complete(left, now_ms)
    if group.state is GroupState.PREPARING_REBALANCE:
        return _complete(left, now_ms) if _all_joined(left) else left
    return _prepare(left, None, now_ms)


def begin_rebalance(group: Group, now_ms: int) -> Group:
    return _prepare(group, None, now_ms)


def overdue(group: Group, now_ms: int) -> Group:
    """The group after the deadline, without members that did not rejoin, or a leader that did not sync."""
    if group.state is GroupState.PREPARING_REBALANCE:
        return _complete(group, now_ms)
    if group.state is GroupState.COMPLETING_REBALANCE and group.leader is not None:
        return leave(group, {group.leader}, now_ms)
    return group


def known_member(group: Group | None, member_id: str, group_instance_id: str | None) -> Member:
    """The member with this id (validateMember). Raises UnknownMemberIdError, and FencedInstanceIdError if
    another member id has its group instance id."""
    name = "" if group is None else group.group_id
    if group is not None:
        group.holder(member_id, group_instance_id)
    member = None if group is None else group.member(member_id)
    # Some clients send the group instance id only with JoinGroup, where KIP-345 introduced it.
    if member is None or group_instance_id not in (None, member.group_instance_id):
        raise errors.UnknownMemberIdError(
            f"group {name!r}: {member_id!r} is not a member, because it left or its session timed out; "
            "join again"
        )
    return member


def leaver(group: Group | None, member_id: str, group_instance_id: str | None) -> Member:
    """The member to be removed; its group instance id alone is enough (KIP-345). Raises as
    `known_member`."""
    member = None if group is None else group.member(member_id) or group.instance(group_instance_id)
    if member is not None and (not member_id or group_instance_id is None):
        return member
    return known_member(group, member_id, group_instance_id)


def leavers(
    names: Iterable[tuple[str, str | None]], find: Callable[[str, str | None], str]
) -> tuple[set[str], list[errors.ApiError | None]]:
    """The ids of the members that one request removes, and for each name in the request None or an error.
    A name is a member id and group instance id; `find` returns its member's id, or raises."""
    gone, answers = set[str](), list[errors.ApiError | None]()
    for name in names:
        try:
            gone.add(find(*name))
            answers.append(None)
        except errors.ApiError as error:
            answers.append(error)
    return gone, answers


def check_generation(group: Group, generation_id: int) -> None:
    """Raise IllegalGenerationError for another generation."""
    if generation_id != group.generation_id:
        raise errors.IllegalGenerationError(
            f"group {group.group_id!r}: got generation {generation_id}, the group is at "
            f"{group.generation_id}; join again"
        )


def check_commit(
    group: Group | None,
    member_id: str,
    generation_id: int,
    group_instance_id: str | None,
    *,
    group_id: str,
    is_transactional: bool,
) -> None:
    """Check that offsets may be committed (ClassicGroup.validateOffsetCommit, KIP-447).

    A request without generation, member id and instance id is a simple commit: allowed in an empty group,
    and in any transaction. While members await the assignment, only transactional commits are allowed.
    Raises UnknownMemberIdError, FencedInstanceIdError, IllegalGenerationError, RebalanceInProgressError,
    and GroupIdNotFoundError.
    """
    has_members = group is not None and bool(group.members)
    is_simple = generation_id < 0 and not member_id and group_instance_id is None
    if generation_id < 0 and (not has_members or (is_simple and is_transactional)):
        return
    if group is None:
        raise errors.GroupIdNotFoundError(f"there is no group {group_id!r}")
    known_member(group, member_id, group_instance_id)
    check_generation(group, generation_id)
    if group.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
        raise _rebalancing(group)


def check_offset_delete(group: Group | None) -> None:
    """Raise NonEmptyGroupError if members are not consumers (ClassicGroup.validateOffsetDelete)."""
    if group is not None and group.members and group.protocol_type != PROTOCOL_TYPE:
        raise errors.NonEmptyGroupError(
            f"group {group.group_id!r} has {len(group.members)} members; its offsets can be deleted "
            "when all of them have left"
        )


def check_unsubscribed(group: Group | None, topic: str) -> None:
    """Raise GroupSubscribedToTopicError for a subscribed topic (ClassicGroup.isSubscribedToTopic). A
    member with an unreadable subscription counts as subscribed."""
    if group is None:
        return
    for member in group.members:
        data = member.metadata(group.protocol_name or member.protocols[0][0])
        try:
            is_subscribed = topic in decode_subscription(data).topics
        except ValueError:
            is_subscribed = True
        if is_subscribed:
            raise errors.GroupSubscribedToTopicError(
                f"group {group.group_id!r}: member {member.member_id!r} subscribes to {topic}; delete "
                "the offsets after this member has left"
            )


def is_in_generation(group: Group, member_id: str) -> bool:
    member = group.member(member_id)
    formed = group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
    return formed and member is not None and member.has_joined


def awaits_join(group: Group | None, member_id: str) -> bool:
    """Whether the member has joined but others have not."""
    member = None if group is None else group.member(member_id)
    return (
        group is not None
        and group.state is GroupState.PREPARING_REBALANCE
        and member is not None
        and member.has_joined
    )


def awaits_sync(group: Group | None, member_id: str, generation_id: int) -> bool:
    """Whether a member of this generation waits for the leader's assignment."""
    return (
        group is not None
        and group.state is GroupState.COMPLETING_REBALANCE
        and group.generation_id == generation_id
        and group.member(member_id) is not None
    )


def check_protocols_given(
    group_id: str, protocol_type: str, protocols: tuple[Assignor, ...]
) -> None:
    """Raise InconsistentGroupProtocolError without a protocol type or protocols."""
    if not protocol_type or not protocols:
        raise errors.InconsistentGroupProtocolError(
            f"group {group_id!r}: got protocol type {protocol_type!r} with {len(protocols)} protocols, "
            "expected a type and at least one"
        )


def check_protocols(group: Group, joining: Member, protocol_type: str) -> None:
    """Raise InconsistentGroupProtocolError unless all members share a protocol (supportsProtocols). The
    joining member's earlier protocols count too: it must leave before it can change all of them."""
    names = {name for name, _ in joining.protocols}
    common = names.intersection(*({name for name, _ in m.protocols} for m in group.members))
    if not common or (group.members and protocol_type != group.protocol_type):
        raise errors.InconsistentGroupProtocolError(
            f"group {group.group_id!r}: got protocol type {protocol_type!r} with "
            f"{sorted(names)}, expected the group's type and an assignor that all members have"
        )


def _replace_static_member(group: Group, holder: Member, joining: Member, now_ms: int) -> Group:
    """The group after a static member has returned with a new member id; its old id is fenced. A
    rebalance begins only if the elected protocol or the member's topics change (Kafka: only for the
    protocol), or if the member had partitions to give up: it cannot do so any more, and would have joined
    again. Other metadata, such as owned partitions, changes merely because the member was away."""
    successor = joining._replace(assignment=holder.assignment)
    taken = _with(group, holder, successor)
    if group.leader == holder.member_id:
        taken = replace(taken, leader=joining.member_id)
    chosen = group.protocol_name or ""
    if (
        group.state is GroupState.STABLE
        and elected_protocol(taken.members) == chosen
        and _topics(holder.metadata(chosen)) == _topics(joining.metadata(chosen))
        and not _unassigned(holder, holder)
    ):
        return taken
    return _prepare(taken, joining.member_id, now_ms)


# decisions/0109: its revocation would come too late, in a generation in which both owners may commit.
def _check_lost_nothing(group: Group, current: Member, joining: Member) -> None:
    """Check that a static member claims only what it claimed when it joined last, and what the leader
    assigned to it last. A generation that was formed while it was away, without its newest claims, may have
    given the rest to others. Raises UnknownMemberIdError, by which a client loses all partitions and joins
    anew; Kafka lets it join."""
    if current.group_instance_id is None:
        return  # No generation keeps a dynamic member that is away.
    if lost := _unassigned(joining, current) - _unassigned(current, current):
        raise errors.UnknownMemberIdError(
            f"group {group.group_id!r}: static member {joining.member_id!r} missed a generation, which "
            f"may have given {sorted(lost)} to others; join again as a new member"
        )


def _unassigned(joined: Member, stored: Member) -> frozenset[TopicPartition]:
    """The partitions that a member claimed when it joined, without those that the leader assigned last."""
    try:
        owned = [decode_subscription(data).owned for _, data in joined.protocols]
        return frozenset(chain(*owned)).difference(decode_assignment(stored.assignment))
    except ValueError:
        return frozenset()  # These are no consumers.


def _topics(metadata: bytes) -> frozenset[str] | None:
    try:
        return frozenset(decode_subscription(metadata).topics)
    except ValueError:
        return None


def _prepare(group: Group, joined: str | None, now_ms: int) -> Group:
    """Begin a rebalance, or add `joined` to it; the other members have to rejoin."""
    if group.state is GroupState.PREPARING_REBALANCE:
        members = tuple(
            m._replace(has_joined=True) if m.member_id == joined else m for m in group.members
        )
        deadline = group.deadline_ms
    else:
        members = tuple(m._replace(has_joined=m.member_id == joined) for m in group.members)
        deadline = now_ms + max((m.rebalance_timeout_ms for m in members), default=0)
    preparing = replace(
        group, state=GroupState.PREPARING_REBALANCE, members=members, deadline_ms=deadline
    )
    return _complete(preparing, now_ms) if _all_joined(preparing) else preparing


def _all_joined(group: Group) -> bool:
    return all(member.has_joined for member in group.members)


def _complete(group: Group, now_ms: int) -> Group:
    """The next generation: members that have joined, and static members, which may be away."""
    members = tuple(m for m in group.members if m.has_joined or m.group_instance_id is not None)
    generation = group.generation_id + 1
    candidates = [m.member_id for m in members if m.has_joined]
    if not candidates:
        return Group(group.group_id, protocol_type=group.protocol_type, generation_id=generation)
    return Group(
        group.group_id,
        GroupState.COMPLETING_REBALANCE,
        group.protocol_type,
        elected_protocol(members),
        generation,
        group.leader if group.leader in candidates else candidates[0],
        members,
        now_ms + max(m.rebalance_timeout_ms for m in members),
    )


def elected_protocol(members: tuple[Member, ...]) -> str:
    """The protocol with most votes: each member votes for the first of its protocols that all members
    support (selectProtocol)."""
    common = set.intersection(*({name for name, _ in m.protocols} for m in members))
    votes = Counter(next(name for name, _ in m.protocols if name in common) for m in members)
    return max(votes, key=lambda name: (votes[name], name))


def _with(group: Group, old: Member, new: Member) -> Group:
    gone = {old.member_id} - {new.member_id}
    return replace(group, members=merged(group.members, [new], gone))


def _rebalancing(group: Group) -> errors.RebalanceInProgressError:
    return errors.RebalanceInProgressError(
        f"group {group.group_id!r}: a new generation is being formed after {group.generation_id}; "
        "join again"
    )
