"""The heartbeats and descriptions of groups whose partitions the coordinator assigns (KIP-848).

A heartbeat is one unit, answered at once: validate, decide (`consumer_decisions`), record, renew the lease.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, replace
from uuid import UUID

from eosdb.broker.core import Core, Write, answers, prepares
from eosdb.broker.membership import id_of
from eosdb.coordinator.groups import configs as group_configs
from eosdb.coordinator.groups import consumer_decisions as decisions
from eosdb.coordinator.groups import migration
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.consumer_decisions import (
    AWAY,
    LEAVE,
    ConsumerGroup,
    MemberHeartbeat,
    Topics,
)
from eosdb.coordinator.groups.decisions import Group
from eosdb.coordinator.groups.rows import AnyGroup
from eosdb.errors import GroupIdNotFoundError, InvalidRequestError
from eosdb.log import topics as log_topics
from eosdb.model import requests, validation
from eosdb.model.protocol import linear_regex
from eosdb.model.protocol.members import Member, Partitions, by_topic
from eosdb.model.values import (
    AssignedTopic,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeat,
    ConsumerGroupMemberDescription,
)
from eosdb.store.writing.unit import Unit

_UNKNOWN_TOPIC = -1
"""The number of every topic that the member cannot own."""


@prepares(requests.ConsumerGroupHeartbeat)
def consumer_group_heartbeat(
    core: Core, request: requests.ConsumerGroupHeartbeat
) -> Write[ConsumerGroupHeartbeat]:
    group_id = request.group_id
    validation.check_group_id(group_id)
    beat = _checked(request)
    decisions.check_heartbeat(beat)
    if beat.subscribed_topic_regex:
        linear_regex.check(beat.subscribed_topic_regex)

    def handle(unit: Unit) -> ConsumerGroupHeartbeat:
        core.authorizer.check(unit, "read", "group", group_id)
        for topic in beat.subscribed_topic_names or ():
            core.authorizer.check(unit, "describe", "topic", topic)
        stored = group_rows.load(unit, group_id)
        group = _consumer_group(core, unit, group_id, stored, beat)
        if beat.member_epoch in (LEAVE, AWAY):
            return _leave(core, unit, group, beat)
        identified = replace(beat, member_id=id_of(core, unit, group_id, group, beat))
        return _beat(core, unit, stored, group, identified)

    return core.not_synced(handle)


@answers(requests.DescribeConsumerGroup)
def describe_consumer_group(
    core: Core, request: requests.DescribeConsumerGroup
) -> ConsumerGroupDescription:
    validation.check_given_group_id(request.group_id)
    with core.reading("describe", "group", request.group_id) as connection:
        stored = group_rows.load(connection, request.group_id)
        foresight = core.coordinator.foresight(connection)
        group = None if stored is None else foresight.group(stored)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFoundError(
                f"there is no group {request.group_id!r} whose partitions the coordinator assigns"
            )
        to_id = log_topics.ids(connection)
        numbers = {topic for m in group.members for topic, _ in m.assigned | m.target}
        names = log_topics.by_number(connection, numbers)
        described = _described(group, lambda parts: _named(parts, names, to_id))
        parts = (part for m in described.members for part in (m.assignment, m.target_assignment))
        for topic in sorted({assigned.topic for part in parts for assigned in part}):
            core.authorizer.check(connection, "describe", "topic", topic)
        return described


def _consumer_group(
    core: Core, unit: Unit, group_id: str, stored: AnyGroup | None, request: MemberHeartbeat
) -> ConsumerGroup:
    """The group; for a joining member perhaps a new one, or a classic one that changes its protocol."""
    if isinstance(stored, ConsumerGroup):
        return stored
    if request.joins:
        topics = log_topics.numbers(unit)
        max_size = core.config.group_consumer_max_size
        return migration.upgraded(stored or Group(group_id), topics, max_size)
    raise GroupIdNotFoundError(
        f"there is no group {group_id!r} whose partitions the coordinator assigns; join again"
    )


def _leave(
    core: Core, unit: Unit, group: ConsumerGroup, request: MemberHeartbeat
) -> ConsumerGroupHeartbeat:
    now = core.clock.time_ms()
    member = migration.leaver(group, request.member_id, request.group_instance_id)
    left: AnyGroup = decisions.leave_for_a_while(group, member)
    if request.member_epoch == LEAVE:
        left = group_rows.without(unit, group, {member.member_id}, now)
    group_rows.record(unit, group, left, now)
    return ConsumerGroupHeartbeat(request.member_id, request.member_epoch, 0, None)


def _beat(
    core: Core,
    unit: Unit,
    stored: AnyGroup | None,
    group: ConsumerGroup,
    request: MemberHeartbeat,
) -> ConsumerGroupHeartbeat:
    now = core.clock.time_ms()
    known = group.member(request.member_id) or group.instance(request.group_instance_id)
    topics = _subscribed_topics(
        unit, group, request.subscribed_topic_names or (), _regex(request, known)
    )
    to_id = log_topics.ids(unit)
    request = replace(
        request,
        matched=_matched(core, unit, topics, request, known),
        owned=_owned(request.topic_partitions, known, to_id),
    )
    session_ms, interval_ms = group_configs.effective(unit, group.group_id, core.config)
    after = decisions.heartbeat(
        group,
        request,
        topics,
        now_ms=now,
        session_timeout_ms=session_ms,
        max_size=core.config.group_consumer_max_size,
    )
    group_rows.record(unit, stored, after, now)
    member = decisions.known_member(after, request.member_id)
    group_rows.renew_session(unit, group.group_id, member, now)
    before = group.member(request.member_id)
    assignment = None
    if request.is_full or before is None or before.assigned != member.assigned:
        names = {number: name for name, (number, _) in topics.items()}
        assignment = _named(member.assigned, names, to_id)
    return ConsumerGroupHeartbeat(member.member_id, member.member_epoch, interval_ms, assignment)


def _matched(
    core: Core, unit: Unit, topics: Topics, request: MemberHeartbeat, known: Member | None
) -> tuple[int, ...] | None:
    """The topics that match the member's regular expression and that its principal may describe."""
    regex = _regex(request, known)
    if not regex:
        return None
    names = linear_regex.matching(regex, tuple(topics))
    allowed = (
        name for name in sorted(names) if core.authorizer.allows(unit, "describe", "topic", name)
    )
    return tuple(sorted(topics[name][0] for name in allowed))


def _checked(beat: requests.ConsumerGroupHeartbeat) -> MemberHeartbeat:
    """The checked heartbeat, still without topic numbers and partitions. Raises InvalidRequestError."""
    if beat.group_id == "":
        raise InvalidRequestError("group_id: got an empty one, expected the id of a group")
    for name in ("member_id", "client_id", "client_host"):
        validation.check_name(name, getattr(beat, name))
    for name in ("group_instance_id", "rack_id", "subscribed_topic_regex", "server_assignor"):
        if getattr(beat, name) is not None:
            validation.check_name(name, getattr(beat, name))
    validation.check_int("member_epoch", beat.member_epoch, -(2**31))
    validation.check_int("rebalance_timeout_ms", beat.rebalance_timeout_ms, -1, 2**31 - 1)
    validation.check_int("owner_lock", beat.owner_lock, 0)
    names_given, owned = beat.subscribed_topic_names, None
    if names_given is not None:
        names_given = tuple(validation.check_texts("subscribed_topic_names", names_given))
    if beat.topic_partitions is not None:
        pairs = validation.check_mapping("topic_partitions", beat.topic_partitions).items()
        for topic_id, numbers in pairs:
            if not isinstance(topic_id, UUID):
                raise InvalidRequestError(
                    f"topic_partitions: got {topic_id!r:.80}, expected a UUID"
                )
            for number in validation.check_collection("topic_partitions", numbers):
                validation.check_int("topic_partitions", number, 0)
        owned = frozenset((_UNKNOWN_TOPIC, 0) for _, numbers in pairs if numbers)
    given = {field.name: getattr(beat, field.name) for field in fields(beat)}
    return MemberHeartbeat(**given | {"subscribed_topic_names": names_given, "owned": owned})


def _regex(request: MemberHeartbeat, known: Member | None) -> str:
    """The member's regular expression after this heartbeat; empty without one."""
    if request.subscribed_topic_regex is not None:
        return request.subscribed_topic_regex
    return "" if known is None else known.subscribed_topic_regex


def _subscribed_topics(
    unit: Unit, group: ConsumerGroup, more: Iterable[str], regex: str = ""
) -> Topics:
    """The topics that the members and `more` name; every topic if there is a regular expression."""
    if regex or any(member.subscribed_topic_regex for member in group.members):
        return log_topics.numbers(unit)
    names = {name for member in group.members for name in member.subscribed_topic_names}
    return log_topics.numbers(unit, names.union(more))


def _owned(
    given: Mapping[UUID, Collection[int]] | None,
    known: Member | None,
    to_id: Callable[[int], UUID],
) -> Partitions | None:
    """The partitions that the member reports as its own. Topics that it cannot own get one number."""
    if given is None:
        return None
    told = known.owned | known.target if known is not None else ()
    number_of = {to_id(number): number for number in {topic for topic, _ in told}}
    return frozenset(
        (number_of.get(topic_id, _UNKNOWN_TOPIC), int(number))
        for topic_id, numbers in given.items()
        for number in numbers
    )


def _named(
    partitions: Partitions, names: Mapping[int, str], to_id: Callable[[int], UUID]
) -> tuple[AssignedTopic, ...]:
    """The partitions by topic. Partitions of deleted topics are left out."""
    topics = (
        AssignedTopic(names[topic], to_id(topic), tuple(numbers))
        for topic, numbers in by_topic(partitions)
        if topic in names
    )
    return tuple(sorted(topics))


def _described(
    group: ConsumerGroup, named: Callable[[Partitions], tuple[AssignedTopic, ...]]
) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        group.group_id,
        group.state.value,
        group.group_epoch,
        group.assignment_epoch,
        decisions.assignor_of(group),
        tuple(
            ConsumerGroupMemberDescription(
                m.member_id,
                m.group_instance_id,
                m.rack_id,
                m.member_epoch,
                m.client_id,
                m.client_host,
                m.subscribed_topic_names,
                m.subscribed_topic_regex,
                named(m.assigned),
                named(m.target),
                bool(m.protocols),
            )
            for m in group.members
        ),
    )
