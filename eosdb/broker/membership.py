"""The requests by which members join, stay and leave: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Each is one unit: validate, decide (`groups.decisions`), record, renew the member's session. No request
blocks until others have joined or synced; the member repeats it until the result is complete.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from eosdb import errors
from eosdb.broker.core import Core, Rules, Write, answers, prepares
from eosdb.coordinator.authorizer import CLUSTER
from eosdb.coordinator.groups import consumer_decisions, decisions, migration
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.consumer_decisions import ConsumerGroup, MemberHeartbeat
from eosdb.coordinator.groups.decisions import Group
from eosdb.coordinator.groups.rows import AnyGroup
from eosdb.coordinator.presence import HeldPresence
from eosdb.log import lives
from eosdb.log import topics as log_topics
from eosdb.model import requests, validation
from eosdb.model.config import INT32_MAX
from eosdb.model.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    encode_assignment,
)
from eosdb.model.protocol.consumer_questions import Seen, TopicsAndGroup
from eosdb.model.protocol.members import Assignor, Member
from eosdb.model.values import (
    GroupDescription,
    GroupMemberDescription,
    GroupState,
    GroupType,
    JoinGroupMember,
    JoinGroupResult,
    SyncGroupResult,
    TopicPartition,
)
from eosdb.store.writing.unit import Unit


def presence(core: Core, transactional_id: str | None) -> HeldPresence | None:
    """Take a lock that shows that this process is alive (`Broker.presence`)."""
    if transactional_id is not None:
        validation.check_text("transactional_id", transactional_id)
    try:
        return core.coordinator.presences.begin(
            core.coordinator.look_for_the_dead, transactional_id
        )
    except (errors.DatabaseLockedError, errors.StorageError):
        return None


@prepares(requests.JoinGroup)
def join_group(core: Core, request: requests.JoinGroup) -> Write[JoinGroupResult]:
    group_id, member_id = request.group_id, request.member_id
    protocol_type, is_dynamic = request.protocol_type, request.group_instance_id is None
    if gives_id_only := request.must_know_id and not member_id and is_dynamic:
        member_id = _new_id(request.client_id, uuid.uuid4())
    joining = Member(
        member_id, request.group_instance_id, request.client_id, request.client_host,
        request.session_timeout_ms, request.rebalance_timeout_ms, request.owner_lock,
        tuple(
            Assignor(validation.check_name("protocol", n), validation.check_bytes("metadata", m))
            for n, m in validation.check_pairs("protocols", request.protocols)
        ),
    )  # fmt: skip
    _check_joining(core, group_id, joining, protocol_type)

    def join(unit: Unit) -> JoinGroupResult | errors.MemberIdRequiredError:
        core.authorizer.check(unit, "read", "group", group_id)
        stored = group_rows.load(unit, group_id)
        _check_protocols(group_id, stored, joining, protocol_type)
        member = joining._replace(member_id=id_of(core, unit, group_id, stored, joining))
        if gives_id_only:
            group_rows.renew_session(unit, group_id, member, core.clock.time_ms())
            return errors.MemberIdRequiredError(
                f"join group {group_id!r} as {member_id!r}", member_id
            )
        is_new = not member_id or _is_pending(unit, stored, member, group_id)
        if _is_mixed(stored):
            return _join_mixed(core, unit, stored, member, protocol_type, is_new=is_new)
        before = group_rows.classic(group_id, stored)
        if not is_new:
            decisions.known_member(before, member_id, request.group_instance_id)
        now, before = core.clock.time_ms(), before or Group(group_id)
        after = decisions.join(before, member, protocol_type, now)
        group_rows.record(unit, before, after, now)
        waiting = request.waits and decisions.awaits_join(after, member.member_id)
        _renew(unit, after, member, now, waiting)
        return _joined(after, member.member_id)

    return core.not_synced(join)


def _check_joining(core: Core, group_id: str, member: Member, protocol_type: str) -> None:
    _check_names(group_id, member.member_id, member.group_instance_id)
    validation.check_name("client_id", member.client_id)
    validation.check_name("client_host", member.client_host)
    validation.check_name("protocol_type", protocol_type)
    low = core.config.group_min_session_timeout_ms
    high = core.config.group_max_session_timeout_ms
    timeout_ms = member.session_timeout_ms
    if not low <= validation.check_int("session_timeout_ms", timeout_ms, -(2**31)) <= high:
        raise errors.InvalidSessionTimeoutError(
            f"session_timeout_ms: got {timeout_ms}, expected {low} to {high} "
            "(group_min_session_timeout_ms, group_max_session_timeout_ms)"
        )
    decisions.check_protocols_given(group_id, protocol_type, member.protocols)
    validation.check_int("rebalance_timeout_ms", member.rebalance_timeout_ms, 1, INT32_MAX)
    validation.check_int("owner_lock", member.owner_lock, 0)


def id_of(
    core: Core, unit: Unit, group_id: str, group: AnyGroup | None, joining: Member | MemberHeartbeat
) -> str:
    """The id of a joining member. A repeated first join gets the id of the first one. Any other join
    without an id gets a new one. Raises UnknownMemberIdError if the process has died since it sent the
    request."""
    lock = joining.owner_lock
    if lock and not core.coordinator.presences.is_there(lock):
        raise errors.UnknownMemberIdError(
            f"group {group_id!r}: the process that asked to join has left or died since"
        )
    if joining.member_id:
        return joining.member_id
    repeated = None if group is None else group.owner_of(lock)
    # decisions/0094: a restored file reuses positions, but in a new life. Life 0 is not named.
    numbers = lives.current(unit), unit.last_position() + 1
    new = _new_id(joining.client_id, *filter(None, numbers))
    return new if repeated is None else repeated.member_id


@prepares(requests.SyncGroup)
def sync_group(core: Core, request: requests.SyncGroup) -> Write[SyncGroupResult]:
    member_id, generation_id = request.member_id, request.generation_id
    _check_names(request.group_id, member_id, request.group_instance_id)
    validation.check_int("generation_id", generation_id, -(2**31))
    given = validation.check_mapping("assignments", request.assignments or {}, "member id")
    checked = {
        validation.check_name("member_id", name): validation.check_bytes("assignment", data)
        for name, data in given.items()
    }

    def sync(unit: Unit) -> SyncGroupResult:
        core.authorizer.check(unit, "read", "group", request.group_id)
        now = core.clock.time_ms()
        stored = group_rows.load(unit, request.group_id)
        if _is_mixed(stored):
            return _sync_mixed(core, unit, stored, request)
        before, member = _member(stored, request)
        protocol = request.protocol_type, request.protocol_name
        after = decisions.sync(before, member_id, generation_id, checked, *protocol)
        group_rows.record(unit, before, after, now)
        waiting = request.waits and decisions.awaits_sync(after, member_id, generation_id)
        _renew(unit, after, member, now, waiting)
        return _synced(after, member_id)

    return core.not_synced(sync)


@prepares(requests.Heartbeat)
def heartbeat(core: Core, request: requests.Heartbeat) -> Write[None]:
    _check_names(request.group_id, request.member_id, request.group_instance_id)
    validation.check_int("generation_id", request.generation_id, -(2**31))

    def beat(unit: Unit) -> errors.RebalanceInProgressError | None:
        core.authorizer.check(unit, "read", "group", request.group_id)
        stored = group_rows.load(unit, request.group_id)
        if _is_mixed(stored):
            return _beat_mixed(core, unit, stored, request)
        group, member = _member(stored, request)
        rebalancing = decisions.check_heartbeat(group, request.generation_id)
        group_rows.renew_session(unit, request.group_id, member, core.clock.time_ms())
        return rebalancing

    return Write(beat, sync=False)


@prepares(requests.LeaveGroup)
def leave_group(core: Core, request: requests.LeaveGroup) -> Write[None]:
    given = request.member_ids
    ids = {given} if isinstance(given, str) else set(validation.check_texts("member_ids", given))
    for member_id in ids:
        _check_names(request.group_id, member_id, None)

    def leave(unit: Unit) -> None:
        for error in _removed(core, unit, request.group_id, [(one, None) for one in sorted(ids)]):
            if error is not None:
                raise error

    return core.not_synced(leave)


@prepares(requests.RemoveMembers)
def remove_members(
    core: Core, request: requests.RemoveMembers
) -> Write[list[errors.ApiError | None]]:
    group_id, members = request.group_id, request.members
    _check_names(group_id, "", None)
    for member_id, group_instance_id in members:
        _check_names(group_id, member_id, group_instance_id)

    return core.not_synced(lambda unit: _removed(core, unit, group_id, members))


def _removed(
    core: Core, unit: Unit, group_id: str, members: Sequence[tuple[str, str | None]]
) -> list[errors.ApiError | None]:
    """Remove each of these members. Returns None or the error for each."""
    core.authorizer.check(unit, "read", "group", group_id)
    now = core.clock.time_ms()
    stored = group_rows.load(unit, group_id)
    if _is_mixed(stored):
        mixed = stored
        gone, answers = decisions.leavers(
            members, lambda *name: migration.leaver(mixed, *name).member_id
        )
        group_rows.record(unit, stored, group_rows.without(unit, stored, gone, now), now)
        return answers
    group = group_rows.classic(group_id, stored)
    named, pending = set[str](), set[str]()

    def find(member_id: str, group_instance_id: str | None) -> str:
        try:
            member_id = decisions.leaver(group, member_id, group_instance_id).member_id
        except errors.UnknownMemberIdError:
            given_out = group_rows.is_given_out(unit, group_id, member_id)
            if group_instance_id is not None or not given_out:
                raise
            pending.add(member_id)
        if member_id in named:
            raise errors.UnknownMemberIdError(f"the request names {member_id!r} twice")
        named.add(member_id)
        return member_id

    gone, answers = decisions.leavers(members, find)
    if group is not None:
        group_rows.record(unit, group, decisions.leave(group, gone, now), now)
    group_rows.end_sessions(unit, group_id, pending)
    return answers


@answers(requests.IsWaiting)
def is_waiting(core: Core, request: requests.IsWaiting) -> bool:
    group_id, member_id = request.group_id, request.member_id
    _check_names(group_id, member_id, None)
    with core.reading("read", "group", group_id) as connection:
        group = group_rows.classic(group_id, group_rows.load(connection, group_id))
    if request.generation_id is None:
        return decisions.awaits_join(group, member_id)
    return decisions.awaits_sync(group, member_id, request.generation_id)


@answers(requests.DescribeGroup)
def describe_group(core: Core, request: requests.DescribeGroup) -> GroupDescription:
    validation.check_group_id(request.group_id)
    with core.reading("describe", "group", request.group_id) as connection:
        group = group_rows.load(connection, request.group_id)
        if group is None:
            if not group_offsets.exists(connection, request.group_id):
                raise errors.GroupIdNotFoundError(f"there is no group {request.group_id!r}")
            group = Group(request.group_id)
        group = core.coordinator.foresight(connection).group(group)
        numbers: set[int] = set()
        if isinstance(group, ConsumerGroup):
            for member in group.members:
                numbers.update(member.matched, (topic for topic, _ in member.assigned))
        return _described(group, log_topics.by_number(connection, numbers))


@answers(TopicsAndGroup)
def topics_and_group(core: Core, request: TopicsAndGroup) -> Seen:
    generation = None
    with core.store.read() as connection:
        may_describe = core.authorizer.describes(connection)
        counts = {
            name: count
            for name, (_, count) in log_topics.numbers(connection, request.names).items()
            if may_describe("topic", name)
        }
        if (name := request.group_id) is not None and may_describe("group", name):
            stored = group_rows.load(connection, name)
            if stored is not None:
                group = core.coordinator.foresight(connection).group(stored)
                # In a group of the new protocol, a rebalance may move only other members' partitions.
                if isinstance(group, ConsumerGroup):
                    generation = group.group_epoch
                else:
                    generation = group.generation_id if group.state is GroupState.STABLE else -1
    return Seen(counts, generation)


@answers(requests.ListGroups)
def list_groups(core: Core, request: requests.ListGroups) -> list[str]:
    with core.store.read() as connection:
        may_describe = core.authorizer.describes(connection)
        return [
            name
            for name in group_rows.names(connection)
            if may_describe("cluster", CLUSTER) or may_describe("group", name)
        ]


@answers(requests.DescribeGroups)
def describe_groups(core: Core, request: requests.DescribeGroups) -> list[GroupDescription]:
    names = list_groups(core, requests.ListGroups())
    with core.store.read() as connection:
        topics = log_topics.by_number(connection)
        foresight = core.coordinator.foresight(connection)
        groups = (group_rows.load(connection, name) or Group(name) for name in names)
        return [_described(foresight.group(group), topics) for group in groups]


def _check_names(group_id: str, member_id: str, group_instance_id: str | None) -> None:
    validation.check_given_group_id(group_id)
    validation.check_name("member_id", member_id)
    if group_instance_id is not None:
        validation.check_name("group_instance_id", group_instance_id)


def _member(
    stored: AnyGroup | None, request: requests.SyncGroup | requests.Heartbeat
) -> tuple[Group, Member]:
    group = group_rows.classic(request.group_id, stored)
    member = decisions.known_member(group, request.member_id, request.group_instance_id)
    assert group is not None
    return group, member


def _check_protocols(
    group_id: str, stored: AnyGroup | None, joining: Member, protocol_type: str
) -> None:
    """Check that the member shares a protocol with the others. As in Kafka, this precedes its new id."""
    if _is_mixed(stored):
        migration.check_protocols(stored, joining, protocol_type)
    elif (group := group_rows.classic(group_id, stored)) is not None:
        decisions.check_protocols(group, joining, protocol_type)


def _new_id(client_id: str, *numbers: object) -> str:
    """The id of a new member: the beginning of its client id, and numbers."""
    return "-".join((client_id[:255] or "member", *map(str, numbers)))


def _is_pending(unit: Unit, group: AnyGroup | None, joining: Member, group_id: str) -> bool:
    """Whether this is the first join of a dynamic member with the id from MemberIdRequiredError."""
    if joining.group_instance_id is not None:
        return False
    if group is not None and group.member(joining.member_id) is not None:
        return False
    return group_rows.is_given_out(unit, group_id, joining.member_id)


def _renew(unit: Unit, group: Group, member: Member, now_ms: int, waiting: bool) -> None:
    if waiting:
        group_rows.renew_while_waiting(unit, group, member, now_ms)
    else:
        group_rows.renew_session(unit, group.group_id, member, now_ms)


def _joined(group: Group, member_id: str) -> JoinGroupResult:
    complete = decisions.is_in_generation(group, member_id)
    leads = complete and group.leader == member_id
    protocol = group.protocol_name or ""
    return JoinGroupResult(
        member_id,
        complete,
        group.generation_id if complete else -1,
        group.protocol_type,
        group.protocol_name if complete else None,
        group.leader if complete else None,
        tuple(
            JoinGroupMember(m.member_id, m.group_instance_id, m.metadata(protocol))
            for m in group.members
        )
        if leads
        else (),
        leads and group.state is GroupState.STABLE,
    )


def _synced(group: Group, member_id: str) -> SyncGroupResult:
    member = group.member(member_id)
    assert member is not None
    complete = group.state is GroupState.STABLE
    return SyncGroupResult(
        complete,
        group.protocol_type,
        group.protocol_name,
        member.assignment if complete else b"",
    )


def _described(group: AnyGroup, topics: Mapping[int, str]) -> GroupDescription:
    """The group in the terms of the classic protocol."""
    if isinstance(group, ConsumerGroup):
        return GroupDescription(
            group.group_id,
            group.state.value,
            PROTOCOL_TYPE,
            consumer_decisions.assignor_of(group),
            group.group_epoch,
            None,
            tuple(_described_member(m, topics) for m in group.members),
            GroupType.CONSUMER,
        )
    protocol = group.protocol_name or ""
    return GroupDescription(
        group.group_id,
        group.state.value,
        group.protocol_type,
        group.protocol_name,
        group.generation_id,
        group.leader,
        tuple(
            GroupMemberDescription(
                m.member_id,
                m.group_instance_id,
                m.client_id,
                m.metadata(protocol),
                m.assignment,
                m.client_host,
            )
            for m in group.members
        ),
    )


def _described_member(member: Member, topics: Mapping[int, str]) -> GroupMemberDescription:
    matched = (topics[number] for number in member.matched if number in topics)
    subscribed = tuple(sorted({*member.subscribed_topic_names, *matched}))
    assigned = (TopicPartition(topics[t], p) for t, p in member.assigned if t in topics)
    return GroupMemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        Subscription(subscribed).encode(),
        encode_assignment(assigned),
        member.client_host,
    )


# -- the classic protocol in a group whose partitions the coordinator assigns (KIP-848) --------------


def _is_mixed(group: AnyGroup | None) -> TypeGuard[ConsumerGroup]:
    """Whether this is a consumer group (KIP-848) with members, which classic members may join."""
    return isinstance(group, ConsumerGroup) and bool(group.members)


def _join_mixed(
    rules: Rules,
    unit: Unit,
    group: ConsumerGroup,
    joining: Member,
    protocol_type: str,
    *,
    is_new: bool,
) -> JoinGroupResult:
    """Join the member. This needs no leader and no wait, because the coordinator assigns."""
    now = rules.clock.time_ms()
    if not is_new:
        if joining.group_instance_id is not None:
            consumer_decisions.static_member(group, joining.member_id, joining.group_instance_id)
        consumer_decisions.known_member(group, joining.member_id)
    topics = log_topics.numbers(unit)
    max_size = rules.config.group_consumer_max_size
    after = migration.join(group, joining, protocol_type, topics, now_ms=now, max_size=max_size)
    member = consumer_decisions.known_member(after, joining.member_id)
    group_rows.record(unit, group, after, now)
    group_rows.renew_session(unit, group.group_id, member, now)
    return JoinGroupResult(
        member.member_id, True, member.member_epoch, PROTOCOL_TYPE, member.protocols[0][0], None
    )


def _sync_mixed(
    rules: Rules, unit: Unit, group: ConsumerGroup, request: requests.SyncGroup
) -> SyncGroupResult:
    now = rules.clock.time_ms()
    syncing = migration.classic_member(group, request.member_id, request.group_instance_id)
    after = migration.sync(
        group, syncing, request.generation_id, request.protocol_type, request.protocol_name
    )
    group_rows.record(unit, group, after, now)
    group_rows.renew_session(unit, group.group_id, syncing, now)
    names = log_topics.by_number(unit, {topic for topic, _ in syncing.assigned})
    assigned = migration.names_of(syncing.assigned, names)
    return SyncGroupResult(
        True, PROTOCOL_TYPE, syncing.protocols[0][0], encode_assignment(assigned)
    )


def _beat_mixed(
    rules: Rules, unit: Unit, group: ConsumerGroup, request: requests.Heartbeat
) -> errors.RebalanceInProgressError | None:
    """Renew the member's session. Returns the error that makes the member rejoin."""
    now = rules.clock.time_ms()
    beating = migration.classic_member(group, request.member_id, request.group_instance_id)
    after, rebalancing = migration.beat(group, beating, request.generation_id, now)
    group_rows.record(unit, group, after, now)
    group_rows.renew_session(unit, group.group_id, beating, now)
    return rebalancing
