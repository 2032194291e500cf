"""How a group with members changes between the classic and the new protocol (KIP-848): pure decisions.

A member of the new protocol that joins a classic group of consumers converts it. The classic members rejoin
and get the coordinator's assignment. When the last new member leaves, the group becomes classic again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from eosdb import errors
from eosdb.coordinator.groups import consumer_decisions, decisions
from eosdb.coordinator.groups.consumer_decisions import (
    ConsumerGroup,
    MemberHeartbeat,
    Topics,
)
from eosdb.coordinator.groups.decisions import Group
from eosdb.model.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from eosdb.model.protocol.members import NO_DEADLINE, Member, MemberState, Partitions, Share
from eosdb.model.values import GroupState, TopicPartition


def upgraded(group: Group, topics: Topics, max_size: int) -> ConsumerGroup:
    """Convert a classic group; each member keeps the partitions that it may commit. Raises
    GroupIdNotFoundError for a group with members that are not consumers, or too many."""
    why = None
    if group.members and group.protocol_type != PROTOCOL_TYPE:
        why = f"its protocol type is {group.protocol_type!r}, expected {PROTOCOL_TYPE!r}"
    elif len(group.members) > max_size:
        why = f"it has {len(group.members)} members, group.consumer.max.size is {max_size}"
    if why is not None:
        raise errors.GroupIdNotFoundError(
            f"the classic group {group.group_id!r} cannot be converted to the new protocol: {why}"
        )
    members = tuple(_upgraded(group, member, topics) for member in group.members)
    epoch = group.generation_id
    return ConsumerGroup(group.group_id, epoch, epoch, members=members)


def remove(
    group: ConsumerGroup, member_ids: Collection[str], names: Mapping[int, str], now_ms: int
) -> ConsumerGroup | Group:
    """The group without these members. If only classic members are left, it becomes classic and begins a
    rebalance. `names` are the topics' names by number. The generation of the classic group is the epoch
    before the removal, so its members keep consuming until they rejoin. Until then, a member that joins
    by the new protocol gets no partition that they own."""
    left = consumer_decisions.remove(group, member_ids)
    if left == group or not left.members or not all(m.protocols for m in left.members):
        return left
    members = tuple(
        Member(
            m.member_id, m.group_instance_id, m.client_id, m.client_host, m.session_timeout_ms,
            m.rebalance_timeout_ms, m.owner_lock, m.protocols,
            encode_assignment(names_of(m.owned, names)),
        )
        for m in left.members
    )  # fmt: skip
    classic = Group(
        group.group_id,
        GroupState.STABLE,
        PROTOCOL_TYPE,
        decisions.elected_protocol(members),
        group.group_epoch,
        leader=members[0].member_id,
        members=members,
    )
    return decisions.begin_rebalance(classic, now_ms)


def join(
    group: ConsumerGroup,
    joining: Member,
    protocol_type: str,
    topics: Topics,
    *,
    now_ms: int,
    max_size: int,
) -> ConsumerGroup:
    """The group after a member has joined or rejoined by the classic protocol. Raises
    InconsistentGroupProtocolError, GroupMaxSizeReachedError and FencedInstanceIdError."""
    check_protocols(group, joining, protocol_type)
    try:
        subscription = decode_subscription(joining.protocols[0][1])
    except ValueError as error:
        raise errors.InconsistentGroupProtocolError(
            f"group {group.group_id!r}: member {joining.member_id!r} sent no subscription of a consumer, "
            "so the coordinator cannot assign partitions to it; join another group"
        ) from error
    beat = MemberHeartbeat(
        group.group_id,
        member_id=joining.member_id,
        group_instance_id=joining.group_instance_id,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        client_id=joining.client_id,
        client_host=joining.client_host,
        subscribed_topic_names=subscription.topics,
        subscribed_topic_regex="",
        owned=_numbers(subscription.owned, topics),
        owner_lock=joining.owner_lock,
        protocols=joining.protocols,
    )
    after = consumer_decisions.heartbeat(
        group,
        beat,
        topics,
        now_ms=now_ms,
        session_timeout_ms=joining.session_timeout_ms,
        max_size=max_size,
    )
    member = consumer_decisions.known_member(after, joining.member_id)
    return after.with_members([member._replace(revoke_by_ms=now_ms + member.rebalance_timeout_ms)])


def sync(
    group: ConsumerGroup,
    member: Member,
    generation_id: int,
    protocol_type: str | None,
    protocol_name: str | None,
) -> ConsumerGroup:
    """The group after a classic member has fetched its assignment. Raises IllegalGenerationError,
    InconsistentGroupProtocolError and RebalanceInProgressError."""
    _check_generation(group, member, generation_id)
    name = member.protocols[0][0]
    if (protocol_type or PROTOCOL_TYPE, protocol_name or name) != (PROTOCOL_TYPE, name):
        raise errors.InconsistentGroupProtocolError(
            f"group {group.group_id!r}: got protocol {protocol_type!r} {protocol_name!r}, joined with "
            f"{PROTOCOL_TYPE!r} {name!r}; join again"
        )
    is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
    if group.group_epoch > member.member_epoch and not is_revoking:
        raise _rebalancing(group, member)
    if is_revoking or member.revoke_by_ms == NO_DEADLINE:
        return group
    return group.with_members([member._replace(revoke_by_ms=NO_DEADLINE)])


def beat(
    group: ConsumerGroup, member: Member, generation_id: int, now_ms: int
) -> tuple[ConsumerGroup, errors.RebalanceInProgressError | None]:
    """The group after a classic member's heartbeat, and the error that makes it rejoin: for a new epoch,
    to give up partitions, or to get freed ones. Raises IllegalGenerationError."""
    _check_generation(group, member, generation_id)
    others = (m.owned for m in group.members if m is not member)
    waits = bool((member.target - member.assigned) & frozenset().union(*others))
    must_join = (
        member.member_epoch < group.group_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not waits)
    )
    if not must_join:
        return group, None
    if member.revoke_by_ms == NO_DEADLINE:
        late = member._replace(revoke_by_ms=now_ms + member.rebalance_timeout_ms)
        group = group.with_members([late])
    return group, _rebalancing(group, member)


def classic_member(group: ConsumerGroup, member_id: str, group_instance_id: str | None) -> Member:
    """The member of the classic protocol. Raises UnknownMemberIdError and FencedInstanceIdError."""
    if group_instance_id is not None:
        consumer_decisions.static_member(group, member_id, group_instance_id)
    member = consumer_decisions.known_member(group, member_id)
    if not member.protocols:
        raise errors.UnknownMemberIdError(
            f"group {group.group_id!r}: {member_id!r} is a member of the new protocol, not a classic one"
        )
    return member


def leaver(group: ConsumerGroup, member_id: str, group_instance_id: str | None) -> Member:
    """The member of either protocol to be removed; a static member's group instance id is enough. Raises
    UnknownMemberIdError and FencedInstanceIdError."""
    holder = group.instance(group_instance_id)
    if not member_id and holder is not None:
        return holder
    if group_instance_id is not None:
        consumer_decisions.static_member(group, member_id, group_instance_id)
    return consumer_decisions.known_member(group, member_id)


def _upgraded(group: Group, member: Member, topics: Topics) -> Member:
    try:
        subscription = decode_subscription(member.protocols[0][1])
        assigned = _numbers(decode_assignment(member.assignment), topics)
    except ValueError as error:
        raise errors.GroupIdNotFoundError(
            f"the classic group {group.group_id!r} cannot be converted to the new protocol: the "
            f"subscription or assignment of member {member.member_id!r} is not a consumer's ({error})"
        ) from error
    # A cooperative member commits what it owned at its join until it has revoked it and joins again.
    owned = assigned | _numbers(subscription.owned, topics)
    revoking = owned - assigned
    return member._replace(
        assignment=b"",
        has_joined=True,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        member_epoch=group.generation_id,
        previous_member_epoch=group.generation_id,
        state=MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE,
        shares=(Share(group.generation_id, owned),) if owned else (),
        pending_revocation=revoking,
        target=assigned,
    )


def _numbers(partitions: Collection[TopicPartition], topics: Topics) -> Partitions:
    return frozenset((topics[tp.topic][0], tp.partition) for tp in partitions if tp.topic in topics)


def check_protocols(group: ConsumerGroup, joining: Member, protocol_type: str) -> None:
    classic = [{name for name, _ in m.protocols} for m in group.members if m.protocols]
    common = {name for name, _ in joining.protocols}.intersection(*classic)
    if protocol_type != PROTOCOL_TYPE or not common:
        raise errors.InconsistentGroupProtocolError(
            f"group {group.group_id!r}: got protocol type {protocol_type!r} with "
            f"{sorted(name for name, _ in joining.protocols)}, expected type {PROTOCOL_TYPE!r} and an "
            "assignor that all members have"
        )


def _check_generation(group: ConsumerGroup, member: Member, generation_id: int) -> None:
    if generation_id != member.member_epoch:
        raise errors.IllegalGenerationError(
            f"group {group.group_id!r}: got generation {generation_id}, {member.member_id!r} is at "
            f"{member.member_epoch}; join again"
        )


def _rebalancing(group: ConsumerGroup, member: Member) -> errors.RebalanceInProgressError:
    return errors.RebalanceInProgressError(
        f"group {group.group_id!r}: member {member.member_id!r} has to join again for epoch "
        f"{group.group_epoch}"
    )


def names_of(partitions: Partitions, topics: Mapping[int, str]) -> list[TopicPartition]:
    """The partitions by topic name, without those of deleted topics."""
    return [TopicPartition(topics[t], p) for t, p in sorted(partitions) if t in topics]
