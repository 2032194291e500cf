"""Requests of the classic protocol to a group whose partitions the coordinator assigns (KIP-848): its
classic members join, fetch their assignment, stay and leave beside those of the new protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from eosdb.broker.handler import Rules
from eosdb.coordinator.groups import consumer_decisions, decisions, migration
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.consumer_group import ConsumerGroup
from eosdb.coordinator.groups.decisions import Member
from eosdb.coordinator.groups.rows import AnyGroup
from eosdb.errors import ApiError, RebalanceInProgressError
from eosdb.log import topics as log_topics
from eosdb.model.protocol.consumer_protocol import PROTOCOL_TYPE, encode_assignment
from eosdb.model.requests import Heartbeat, SyncGroup
from eosdb.model.values import JoinGroupResult, SyncGroupResult
from eosdb.store.writing.unit import Unit


def is_mixed(group: AnyGroup | None) -> TypeGuard[ConsumerGroup]:
    """Whether members of the classic protocol join this group beside others."""
    return isinstance(group, ConsumerGroup) and bool(group.members)


def join(
    rules: Rules,
    unit: Unit,
    group: ConsumerGroup,
    joining: Member,
    protocol_type: str,
    *,
    is_new: bool,
) -> JoinGroupResult:
    """Join: complete at once, without leader, because the coordinator assigns."""
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


def sync(rules: Rules, unit: Unit, group: ConsumerGroup, request: SyncGroup) -> SyncGroupResult:
    """Fetch the assignment of the member."""
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


def heartbeat(
    rules: Rules, unit: Unit, group: ConsumerGroup, request: Heartbeat
) -> RebalanceInProgressError | None:
    """Renew the member's session. Returns the error by which it is told to join again."""
    now = rules.clock.time_ms()
    beating = migration.classic_member(group, request.member_id, request.group_instance_id)
    after, rebalancing = migration.beat(group, beating, request.generation_id, now)
    group_rows.record(unit, group, after, now)
    group_rows.renew_session(unit, group.group_id, beating, now)
    return rebalancing


def remove(
    rules: Rules, unit: Unit, group: ConsumerGroup, members: Sequence[tuple[str, str | None]]
) -> list[ApiError | None]:
    """Remove each of these members, of either protocol. Returns None or the error for each."""
    gone, answers = decisions.leavers(
        members, lambda *name: migration.leaver(group, *name).member_id
    )
    now = rules.clock.time_ms()
    group_rows.record(unit, group, group_rows.without(unit, group, gone, now), now)
    return answers
