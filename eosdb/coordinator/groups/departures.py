"""How a group of either protocol changes when members leave or are late: pure decisions.

Writes remove members by these rules. Readers use the same rules to show the removals of the next write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from eosdb.coordinator.groups import consumer_decisions, decisions, migration
from eosdb.coordinator.groups.consumer_decisions import ConsumerGroup
from eosdb.coordinator.groups.decisions import Group

CAUSES: Final = {
    "session_ended": "its session has ended",
    "process_died": "its process has died",
    "did_not_rejoin": "it has not joined again in time",
    "did_not_revoke": "it has not given up partitions in time",
}


class Removed(NamedTuple):
    group_id: str
    member_id: str
    reason: str

    @property
    def cause(self) -> str:
        return CAUSES[self.reason]


Names = Callable[[], Mapping[int, str]]
"""Returns the topics by number, for groups that change their protocol."""


def without(
    group: Group | ConsumerGroup, member_ids: Collection[str], names: Names, now_ms: int
) -> Group | ConsumerGroup:
    if isinstance(group, Group):
        return decisions.leave(group, member_ids, now_ms)
    return migration.remove(group, member_ids, names(), now_ms)


def overdue(
    group: Group | ConsumerGroup, names: Names, now_ms: int
) -> tuple[Group | ConsumerGroup, list[Removed]]:
    """The group after its deadline, and the removed members."""
    if isinstance(group, ConsumerGroup):
        late = consumer_decisions.overdue(group, now_ms)
        after, reason = without(group, late, names, now_ms), "did_not_revoke"
    else:
        after, reason = decisions.overdue(group, now_ms), "did_not_rejoin"
    gone = {m.member_id for m in group.members} - {m.member_id for m in after.members}
    return after, [Removed(group.group_id, member, reason) for member in sorted(gone)]


def foreseen(
    group: Group | ConsumerGroup, gone: Mapping[str, Collection[str]], names: Names, now_ms: int
) -> tuple[Group | ConsumerGroup, tuple[Removed, ...]]:
    """The group after the next write's due removals, and the removed members. `gone` maps the
    reason of a removal to member ids, in the order of the removals."""
    removed = list[Removed]()
    for reason, ids in gone.items():
        if ids:
            removed += _of(group, ids, reason)
            group = without(group, ids, names, now_ms)
    while 0 <= group.deadline_ms < now_ms:
        before = group
        group, late = overdue(group, names, now_ms)
        removed += late
        if group == before:
            break
    return group, tuple(removed)


def _of(group: Group | ConsumerGroup, ids: Collection[str], reason: str) -> Iterator[Removed]:
    members = (member.member_id for member in group.members)
    return (Removed(group.group_id, member, reason) for member in members if member in ids)
