"""The requests by which members join, stay and leave: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Each is one unit: validate, decide (`groups.decisions`), record, renew the member's session. No request
blocks until others have joined or synced; the member repeats it until the result is complete.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from eosdb.broker.asking import Answering, Write, answers
from eosdb.broker.handler import Rules
from eosdb.coordinator.authorizer import CLUSTER
from eosdb.coordinator.groups import consumer_decisions, decisions, migration
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember
from eosdb.coordinator.groups.decisions import Group, Member
from eosdb.coordinator.groups.rows import AnyGroup
from eosdb.coordinator.presence import Presence
from eosdb.errors import (
    ApiError,
    DatabaseLockedError,
    GroupIdNotFoundError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    StorageError,
    UnknownMemberIdError,
)
from eosdb.log import topics as log_topics
from eosdb.model import requests
from eosdb.model.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    encode_assignment,
)
from eosdb.model.validation import (
    check_bytes,
    check_given_group_id,
    check_group_id,
    check_int,
    check_name,
    check_text,
)
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


class MembershipRequests(Answering):
    """The part of `Broker` for members of groups (Kafka's classic protocol)."""

    def presence(self, transactional_id: str | None = None) -> Presence | None:
        """A lock by which other processes notice at once that this one has died: for a consumer that is
        about to join a group, or for the owner of a transactional id. None if no lock is available; then
        a session or time-out has to end first."""
        if transactional_id is not None:
            check_text("transactional_id", transactional_id)
        try:
            return self._coordinator.presences.begin(
                self._coordinator.look_for_the_dead, transactional_id
            )
        except (DatabaseLockedError, StorageError):
            return None

    @answers(requests.JoinGroup)
    def join_group(self, request: requests.JoinGroup) -> JoinGroupResult:
        group_id, member_id, protocol_type = (
            request.group_id,
            request.member_id,
            request.protocol_type,
        )
        is_dynamic = request.group_instance_id is None
        if gives_id_only := request.must_know_id and not member_id and is_dynamic:
            member_id = _new_id(request.client_id, uuid.uuid4())
        joining = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            tuple(
                (check_name("protocol", n), check_bytes("metadata", m))
                for n, m in request.protocols
            ),
            client_host=request.client_host,
            owner_lock=request.owner_lock,
        )
        self._check_joining(group_id, joining, protocol_type)

        def join(unit: Unit) -> JoinGroupResult | None:
            self._may_read(unit, group_id)
            stored = group_rows.load(unit, group_id)
            _check_protocols(group_id, stored, joining, protocol_type)
            member = self._with_id(unit, group_id, stored, joining)
            if gives_id_only:
                group_rows.renew_session(unit, group_id, member, self._clock.time_ms())
                return None
            is_new = not member_id or _is_pending(unit, stored, member, group_id)
            if _is_mixed(stored):
                return _join_mixed(self._core, unit, stored, member, protocol_type, is_new=is_new)
            before = group_rows.classic(group_id, stored)
            if not is_new:
                decisions.known_member(before, member_id, request.group_instance_id)
            return self._join_classic(
                unit, before or Group(group_id), member, protocol_type, request.waits
            )

        self._coordinator.leadership.ensure_elected()
        if (joined := self._coordinator.write(join, sync=False)) is not None:
            return joined
        raise MemberIdRequiredError(f"join group {group_id!r} as {member_id!r}", member_id)

    def _join_classic(
        self, unit: Unit, before: Group, member: Member, protocol_type: str, waits: bool
    ) -> JoinGroupResult:
        now = self._clock.time_ms()
        after = decisions.join(before, member, protocol_type, now)
        group_rows.record(unit, before, after, now)
        waiting = waits and decisions.awaits_join(after, member.member_id)
        _renew(unit, after, member, now, waiting)
        return _joined(after, member.member_id)

    def _check_joining(self, group_id: str, member: Member, protocol_type: str) -> None:
        self._check_names(group_id, member.member_id, member.group_instance_id)
        check_name("client_id", member.client_id)
        check_name("client_host", member.client_host)
        check_name("protocol_type", protocol_type)
        low = self._config.group_min_session_timeout_ms
        high = self._config.group_max_session_timeout_ms
        timeout_ms = member.session_timeout_ms
        if not low <= check_int("session_timeout_ms", timeout_ms, -(2**31)) <= high:
            raise InvalidSessionTimeoutError(
                f"session_timeout_ms: got {timeout_ms}, expected {low} to {high} "
                "(group_min_session_timeout_ms, group_max_session_timeout_ms)"
            )
        decisions.check_protocols_given(group_id, protocol_type, member.protocols)
        check_int("rebalance_timeout_ms", member.rebalance_timeout_ms, 1)
        check_int("owner_lock", member.owner_lock, 0)

    def _with_id(
        self, unit: Unit, group_id: str, group: AnyGroup | None, joining: Member
    ) -> Member:
        """The member with its id: a repeated first join gets the id of the first, other joins a new one.
        Raises UnknownMemberIdError if the process has died since it sent the request."""
        lock = joining.owner_lock
        if lock and not self._coordinator.presences.is_there(lock):
            raise UnknownMemberIdError(
                f"group {group_id!r}: the process that asked to join has left or died since"
            )
        if joining.member_id:
            return joining
        repeated = None if group is None else group.owner_of(lock)
        if repeated is not None:
            return replace(joining, member_id=repeated.member_id)
        # Journal positions are never reused, so neither are these ids.
        new_id = _new_id(joining.client_id, unit.last_position() + 1)
        return replace(joining, member_id=new_id)

    @answers(requests.SyncGroup)
    def sync_group(self, request: requests.SyncGroup) -> Write[SyncGroupResult]:
        member_id, generation_id = request.member_id, request.generation_id
        self._check_names(request.group_id, member_id, request.group_instance_id)
        check_int("generation_id", generation_id, -(2**31))
        checked = {
            check_name("member_id", name): check_bytes("assignment", data)
            for name, data in (request.assignments or {}).items()
        }

        def sync(unit: Unit) -> SyncGroupResult:
            self._may_read(unit, request.group_id)
            now = self._clock.time_ms()
            stored = group_rows.load(unit, request.group_id)
            if _is_mixed(stored):
                return _sync_mixed(self._core, unit, stored, request)
            before, member = _member(stored, request)
            protocol = request.protocol_type, request.protocol_name
            after = decisions.sync(before, member_id, generation_id, checked, *protocol)
            group_rows.record(unit, before, after, now)
            waiting = request.waits and decisions.awaits_sync(after, member_id, generation_id)
            _renew(unit, after, member, now, waiting)
            return _synced(after, member_id)

        return self._not_synced(sync)

    @answers(requests.Heartbeat)
    def heartbeat(self, request: requests.Heartbeat) -> None:
        self._check_names(request.group_id, request.member_id, request.group_instance_id)
        check_int("generation_id", request.generation_id, -(2**31))

        def beat(unit: Unit) -> RebalanceInProgressError | None:
            self._may_read(unit, request.group_id)
            stored = group_rows.load(unit, request.group_id)
            if _is_mixed(stored):
                return _beat_mixed(self._core, unit, stored, request)
            group, member = _member(stored, request)
            try:
                decisions.check_heartbeat(group, request.generation_id)
            except RebalanceInProgressError as rebalancing:
                answer: RebalanceInProgressError | None = rebalancing
            else:
                answer = None
            group_rows.renew_session(unit, request.group_id, member, self._clock.time_ms())
            return answer

        rebalancing = self._coordinator.write(beat, sync=False)
        if rebalancing is not None:
            raise rebalancing

    @answers(requests.LeaveGroup)
    def leave_group(self, request: requests.LeaveGroup) -> Write[None]:
        ids = (
            {request.member_ids} if isinstance(request.member_ids, str) else set(request.member_ids)
        )
        for member_id in ids:
            self._check_names(request.group_id, member_id, None)

        def leave(unit: Unit) -> None:
            self._may_read(unit, request.group_id)
            now = self._clock.time_ms()
            stored = group_rows.load(unit, request.group_id)
            if _is_mixed(stored):
                given = [(member_id, None) for member_id in sorted(ids)]
                answers = _remove_mixed(self._core, unit, stored, given)
                if errors := [error for error in answers if error is not None]:
                    raise errors[0]
                return
            before = group_rows.classic(request.group_id, stored)
            for member_id in ids:
                member = None if before is None else before.member(member_id)
                instance = None if member is None else member.group_instance_id
                decisions.known_member(before, member_id, instance)
            if before is not None:
                group_rows.record(unit, before, decisions.leave(before, ids, now), now)

        return self._not_synced(leave)

    def _remove_members(
        self, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> list[ApiError | None]:
        """Remove each of these members, named by member id, group instance id, or both, if it exists.

        Returns for each None if it is removed, UnknownMemberIdError, or FencedInstanceIdError if the
        group instance id belongs to another member id.
        """
        self._check_names(group_id, "", None)
        for member_id, group_instance_id in members:
            self._check_names(group_id, member_id, group_instance_id)

        def remove(unit: Unit) -> list[ApiError | None]:
            self._may_read(unit, group_id)
            now = self._clock.time_ms()
            stored = group_rows.load(unit, group_id)
            if _is_mixed(stored):
                return _remove_mixed(self._core, unit, stored, members)
            group = group_rows.classic(group_id, stored)
            named, pending = set[str](), set[str]()

            def find(member_id: str, group_instance_id: str | None) -> str:
                try:
                    member_id = decisions.leaver(group, member_id, group_instance_id).member_id
                except UnknownMemberIdError:
                    given_out = group_rows.is_given_out(unit, group_id, member_id)
                    if group_instance_id is not None or not given_out:
                        raise
                    pending.add(member_id)
                if member_id in named:
                    raise UnknownMemberIdError(f"{member_id!r} leaves by this request already")
                named.add(member_id)
                return member_id

            gone, answers = decisions.leavers(members, find)
            if group is not None:
                group_rows.record(unit, group, decisions.leave(group, gone, now), now)
            group_rows.end_sessions(unit, group_id, pending)
            return answers

        self._coordinator.leadership.ensure_elected()
        return self._coordinator.write(remove, sync=False)

    def _is_waiting(self, group_id: str, member_id: str, generation_id: int | None = None) -> bool:
        """Whether the member's join, or with `generation_id` its sync, is still incomplete."""
        self._check_names(group_id, member_id, None)
        with self._store.read() as connection:
            self._authorizer.check(connection, "read", "group", group_id)
            group = group_rows.classic(group_id, group_rows.load(connection, group_id))
        if generation_id is None:
            return decisions.awaits_join(group, member_id)
        return decisions.awaits_sync(group, member_id, generation_id)

    @answers(requests.DescribeGroup)
    def describe_group(self, request: requests.DescribeGroup) -> GroupDescription:
        check_group_id(request.group_id)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "group", request.group_id)
            group = group_rows.load(connection, request.group_id)
            if group is None:
                if not group_offsets.exists(connection, request.group_id):
                    raise GroupIdNotFoundError(f"there is no group {request.group_id!r}")
                group = Group(request.group_id)
            group = self._coordinator.foresight(connection).group(group)
            return _described(group, log_topics.by_number(connection))

    def list_groups(self) -> list[str]:
        """Every group with members or offsets that the principal may describe; all of them if it may
        describe the cluster (KafkaApis.handleListGroupsRequest)."""
        with self._store.read() as connection:
            may_describe = self._authorizer.describes(connection)
            return [
                name
                for name in group_rows.names(connection)
                if may_describe("cluster", CLUSTER) or may_describe("group", name)
            ]

    def describe_groups(self) -> list[GroupDescription]:
        """The groups that `list_groups` names, each with its state and members."""
        names = self.list_groups()
        with self._store.read() as connection:
            topics = log_topics.by_number(connection)
            foresight = self._coordinator.foresight(connection)
            groups = (group_rows.load(connection, name) or Group(name) for name in names)
            return [_described(foresight.group(group), topics) for group in groups]

    def _may_read(self, unit: Unit, group_id: str) -> None:
        self._authorizer.check(unit, "read", "group", group_id)

    def _check_names(self, group_id: str, member_id: str, group_instance_id: str | None) -> None:
        check_given_group_id(group_id)
        check_name("member_id", member_id)
        if group_instance_id is not None:
            check_name("group_instance_id", group_instance_id)


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
    """As in Kafka, a member without a common protocol learns that before it gets an id."""
    if _is_mixed(stored):
        migration.check_protocols(stored, joining, protocol_type)
    elif (group := group_rows.classic(group_id, stored)) is not None:
        decisions.check_protocols(group, joining, protocol_type)


def _new_id(client_id: str, number: object) -> str:
    """A member's id begins with its client's, which may be as long as the id."""
    return f"{client_id[:255] or 'member'}-{number}"


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


def _described_member(member: ConsumerMember, topics: Mapping[int, str]) -> GroupMemberDescription:
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
    """Whether this group also has classic members."""
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
    """Join: complete at once, without a leader, because the coordinator assigns."""
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
    assigned = migration.names_of(syncing.assigned, log_topics.by_number(unit))
    return SyncGroupResult(
        True, PROTOCOL_TYPE, syncing.protocols[0][0], encode_assignment(assigned)
    )


def _beat_mixed(
    rules: Rules, unit: Unit, group: ConsumerGroup, request: requests.Heartbeat
) -> RebalanceInProgressError | None:
    """Renew the member's session. Returns the error by which the member is told to rejoin."""
    now = rules.clock.time_ms()
    beating = migration.classic_member(group, request.member_id, request.group_instance_id)
    after, rebalancing = migration.beat(group, beating, request.generation_id, now)
    group_rows.record(unit, group, after, now)
    group_rows.renew_session(unit, group.group_id, beating, now)
    return rebalancing


def _remove_mixed(
    rules: Rules, unit: Unit, group: ConsumerGroup, members: Sequence[tuple[str, str | None]]
) -> list[ApiError | None]:
    """Remove each of these members, of either protocol. Returns None or the error for each."""
    gone, answers = decisions.leavers(
        members, lambda *name: migration.leaver(group, *name).member_id
    )
    now = rules.clock.time_ms()
    group_rows.record(unit, group, group_rows.without(unit, group, gone, now), now)
    return answers
