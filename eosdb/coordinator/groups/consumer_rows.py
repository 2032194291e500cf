"""The stored form of a consumer group whose partitions the coordinator assigns: its event, which names what
has changed, and its row, which has all of it.

An event has the changed members alone, because each member of a group moves to a new target by a step of
its own (decisions/0063).
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from eosdb.coordinator.groups.consumer_decisions import (
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Partitions,
)
from eosdb.events.kinds import ConsumerGroupChanged, ConsumerGroupMember, TopicShare
from eosdb.model.damage import parsed
from eosdb.model.protocol.consumer_protocol import PROTOCOL_TYPE
from eosdb.model.values import GroupType

COLUMNS: Final = (
    "group_id, state, protocol_type, generation_id, members, deadline, group_type, "
    "assignment_epoch, metadata_hash"
)
_SHARES: Final = ("assigned", "pending_revocation", "target")
_DEFAULTS: Final = {
    "group_instance_id": None, "rack_id": None, "subscribed_topic_regex": "", "matched": (),
    "server_assignor": None, "pending_revocation": (), "revoke_by_ms": -1, "owner_lock": 0,
    "protocols": (),
}  # fmt: skip
"""Values that the row of a member omits."""


def change(before: ConsumerGroup | None, after: ConsumerGroup, now_ms: int) -> ConsumerGroupChanged:
    """The event that changes `before` into `after`."""
    known = {} if before is None else {member.member_id: member for member in before.members}
    ids = {member.member_id for member in after.members}
    return ConsumerGroupChanged(
        timestamp=now_ms,
        group_id=after.group_id,
        group_epoch=after.group_epoch,
        assignment_epoch=after.assignment_epoch,
        metadata_hash=after.metadata_hash,
        members=tuple(_event(m) for m in after.members if known.get(m.member_id) != m),
        removed=tuple(member_id for member_id in known if member_id not in ids),
    )


def changed(before: ConsumerGroup | None, event: ConsumerGroupChanged) -> ConsumerGroup:
    """The group after the event. Raises KeyError if a removed member is not in it."""
    members = before.members if before is not None else ()
    return ConsumerGroup(
        event.group_id, event.group_epoch, event.assignment_epoch, event.metadata_hash, members
    ).with_members((_member(each._asdict()) for each in event.members), event.removed)


def row(group: ConsumerGroup) -> tuple[object, ...]:
    stored = [
        {k: v for k, v in _event(m)._asdict().items() if k not in _DEFAULTS or v != _DEFAULTS[k]}
        for m in group.members
    ]
    members = json.dumps(stored, separators=(",", ":"))
    return (
        group.group_id,
        group.state.value,
        PROTOCOL_TYPE,
        group.group_epoch,
        members,
        group.deadline_ms,
        GroupType.CONSUMER.value,
        group.assignment_epoch,
        group.metadata_hash,
    )


@lru_cache(maxsize=64)  # Every heartbeat reads the group; few change it.
def members_of(text: str) -> tuple[ConsumerMember, ...]:
    return tuple(map(_member, parsed(text)))


def _event(member: ConsumerMember) -> ConsumerGroupMember:
    fields = {name: getattr(member, name) for name in ConsumerGroupMember._fields}
    fields |= {name: shares(fields[name]) for name in _SHARES}
    fields["protocols"] = tuple(
        (name, base64.b64encode(data).decode()) for name, data in member.protocols
    )
    return ConsumerGroupMember(**fields | {"state": member.state.value})


def _member(stored: dict[str, Any]) -> ConsumerMember:
    """The member of an event or of a row."""
    fields: dict[str, Any] = _DEFAULTS | stored
    fields |= {name: _partitions(fields[name]) for name in _SHARES}
    fields |= {name: tuple(fields[name]) for name in ("subscribed_topic_names", "matched")}
    fields["protocols"] = tuple(
        (name, base64.b64decode(data)) for name, data in fields["protocols"]
    )
    return ConsumerMember(**fields | {"state": MemberState(fields["state"])})


def shares(partitions: Partitions) -> tuple[TopicShare, ...]:
    by_topic: defaultdict[int, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        by_topic[topic].append(partition)
    return tuple(TopicShare(topic, tuple(numbers)) for topic, numbers in by_topic.items())


def _partitions(stored: Iterable[tuple[int, Iterable[int]]]) -> Partitions:
    return frozenset((topic, partition) for topic, numbers in stored for partition in numbers)
