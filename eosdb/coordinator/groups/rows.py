"""The rows of groups and of their members' sessions.

This module loads a group and records what `decisions` (pure) decide. A session is a lease, which no event
records: a member counts as alive until its session ends, and each of its requests renews the session.

An event has only the changed members, because each member of a KIP-848 group moves to a new target by a
step of its own (decisions/0063). The row has all members, in the form of events.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Final

from eosdb.coordinator.due import Due
from eosdb.coordinator.groups import departures
from eosdb.coordinator.groups.consumer_decisions import ConsumerGroup
from eosdb.coordinator.groups.decisions import Group, merged
from eosdb.coordinator.groups.departures import Removed
from eosdb.events.encoding import members_json, members_of
from eosdb.events.kinds import GroupChanged
from eosdb.log import topics as log_topics
from eosdb.model.damage import reads
from eosdb.model.protocol.consumer_protocol import PROTOCOL_TYPE
from eosdb.model.protocol.members import Member
from eosdb.model.values import GroupState, GroupType
from eosdb.store.schema.row_checksum import row_checksum
from eosdb.store.writing.table import TableOf
from eosdb.store.writing.unit import STEPS_PER_UNIT, Folding, Unit

AnyGroup = Group | ConsumerGroup


# Cached: every heartbeat reads the members, but few change them.
_members_of: Final = lru_cache(maxsize=64)(members_of)


def _group(row: tuple[Any, ...]) -> AnyGroup:
    (
        id_, type_, state, protocol_type, protocol, generation, leader, deadline_ms, target_epoch, hash_,
        text,
    ) = row  # fmt: skip
    members = _members_of(text)
    if GroupType(type_) is GroupType.CONSUMER:
        return ConsumerGroup(id_, generation, target_epoch, hash_, members)
    return Group(
        id_, GroupState(state), protocol_type, protocol, generation, leader, members, deadline_ms
    )


# decisions/0063: groups of both protocols share a table.
GROUPS: Final = TableOf(
    "groups",
    "group_id group_type state protocol_type protocol_name generation_id leader deadline assignment_epoch "
    "metadata_hash members",
    "group_id",
    _group,
)


def change(before: AnyGroup | None, after: AnyGroup, now_ms: int) -> GroupChanged:
    """The event that changes `before` into `after`."""
    known = {} if before is None else {member.member_id: member for member in before.members}
    ids = {member.member_id for member in after.members}
    state: tuple[str, str | None, int, str | None]
    if isinstance(after, ConsumerGroup):
        kind, state = GroupType.CONSUMER, (PROTOCOL_TYPE, None, after.group_epoch, None)
        epochs = after.assignment_epoch, after.metadata_hash
    else:
        kind, epochs = GroupType.CLASSIC, (0, 0)
        state = after.protocol_type, after.protocol_name, after.generation_id, after.leader
    return GroupChanged(
        now_ms, after.group_id, kind.value, after.state.value, *state, after.deadline_ms, *epochs,
        tuple(m for m in after.members if known.get(m.member_id) != m),
        tuple(member_id for member_id in known if member_id not in ids),
    )  # fmt: skip


_NOT_EMPTY: Final = GROUPS.where(f"state <> '{GroupState.EMPTY.value}'")
# The query starts from sessions, because every member has a session, and many groups have no members.
_WITH_MEMBERS: Final = (
    "SELECT group_id, members FROM groups WHERE group_id IN (SELECT group_id FROM group_sessions)"
)
# decisions/0009: a heartbeat renews the lease in this table; no event in the journal records this.
_LEASE: Final = "INTO group_sessions (group_id, member_id, expires, checksum) VALUES (?, ?, ?, ?)"
_BEGIN: Final = f"INSERT OR IGNORE {_LEASE}"
_RENEW: Final = f"INSERT OR REPLACE {_LEASE}"
_SHORTEN: Final = (
    "UPDATE group_sessions SET expires = ?, checksum = ? "
    "WHERE group_id = ? AND member_id = ? AND expires > ?"
)
NEXT_SESSION_END: Final = "SELECT expires FROM group_sessions ORDER BY expires LIMIT 1"
"""When the next session ends. Its member is removed only after that time."""
NEXT_DEADLINE: Final = "SELECT deadline FROM groups WHERE deadline >= 0 ORDER BY deadline LIMIT 1"
"""When the next rebalance times out."""


def load(source: Folding | sqlite3.Connection, group_id: str) -> AnyGroup | None:
    """The group; None if no member ever joined it."""
    return GROUPS.find(source, group_id)


def classic(group_id: str, group: AnyGroup | None) -> Group | None:
    """The group, if it is classic. For a group of the new protocol, a classic group without members."""
    if isinstance(group, ConsumerGroup):
        return Group(group_id, protocol_type=PROTOCOL_TYPE, generation_id=group.group_epoch)
    return group


def stored_members(source: Unit | sqlite3.Connection) -> list[tuple[str, str]]:
    """The ids of the groups with members, and their members' stored text."""
    return source.execute(_WITH_MEMBERS).fetchall()


@lru_cache(maxsize=1_000)  # Cached for the check for dead processes (every 200 ms).
@reads("groups")
def owner_locks(members: str) -> tuple[tuple[str, int], ...]:
    """The member ids and lock numbers of the members that hold locks."""
    return tuple((m.member_id, m.owner_lock) for m in _members_of(members) if m.owner_lock)


def names(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute(
        "SELECT group_id FROM groups UNION SELECT DISTINCT group_id FROM group_offsets "
        "UNION SELECT DISTINCT group_id FROM pending_group_offsets ORDER BY 1"
    )
    return [name for (name,) in rows]


def load_all(connection: sqlite3.Connection) -> dict[str, AnyGroup]:
    return {group.group_id: group for group in GROUPS.read(connection, GROUPS.select)}


def record(unit: Unit, before: AnyGroup | None, after: AnyGroup, now_ms: int) -> None:
    """Record the change as an event, and delete the sessions of removed members."""
    if after == before:
        return
    unit.record(change(before, after, now_ms))
    gone = {m.member_id for m in before.members} if before is not None else set()
    gone -= {m.member_id for m in after.members}
    end_sessions(unit, after.group_id, gone)
    if after.deadline_ms >= 0:
        unit.memos[Due].by(after.deadline_ms + 1)
    _end_waiting(unit, before, after, now_ms)


def without(unit: Unit, group: AnyGroup, member_ids: Collection[str], now_ms: int) -> AnyGroup:
    """The group without these members; its protocol may change."""
    return departures.without(group, member_ids, partial(log_topics.by_number, unit), now_ms)


def save(unit: Folding, event: GroupChanged) -> None:
    """Projection only: save the group after the event."""
    before = load(unit, event.group_id)
    members = merged(() if before is None else before.members, event.members, event.removed)
    unit.execute(GROUPS.replace, (*event[1:-2], members_json(members)))


def forget(unit: Folding, group_id: str) -> None:
    unit.execute(GROUPS.delete, (group_id,))


def renew_session(
    unit: Unit,
    group_id: str,
    member: Member,
    now_ms: int,
    statement: str = _RENEW,
) -> None:
    """Extend the member's session to its session timeout from now."""
    expires = now_ms + member.session_timeout_ms
    lease = (group_id, member.member_id, expires)
    unit.execute(statement, (*lease, row_checksum(*lease)))
    unit.memos[Due].by(expires + 1)


def renew_while_waiting(unit: Unit, group: AnyGroup, member: Member, now_ms: int) -> None:
    """Extend the session of a waiting member past the rebalance deadline, because the member sends nothing
    while it waits (Kafka: hasSatisfiedHeartbeat). Members of the new protocol never wait."""
    until_ms = group.deadline_ms if isinstance(group, Group) else now_ms
    renew_session(unit, group.group_id, member, max(now_ms, until_ms))


def begin_sessions_again(unit: Unit, group: AnyGroup, now_ms: int) -> None:
    """Restart the sessions of all members now, and forget member ids that never joined."""
    unit.execute("DELETE FROM group_sessions WHERE group_id = ?", (group.group_id,))
    for member in group.members:
        renew_while_waiting(unit, group, member, now_ms)


def is_given_out(unit: Unit, group_id: str, member_id: str) -> bool:
    """Whether this member id was given out (MemberIdRequiredError). Such an id has a session, even if no
    member has joined with it."""
    lease = unit.execute(
        "SELECT 1 FROM group_sessions WHERE group_id = ? AND member_id = ?", (group_id, member_id)
    )
    return lease.fetchone() is not None


def _end_waiting(unit: Unit, before: AnyGroup | None, after: AnyGroup, now_ms: int) -> None:
    """Shorten extended sessions to the session timeout when their members no longer wait: the generation
    is formed, the member must rejoin, or the group has changed its protocol."""
    idle: Iterable[Member] = after.members
    if isinstance(after, ConsumerGroup):
        idle = after.members if isinstance(before, Group) else ()
    elif after.state is GroupState.PREPARING_REBALANCE:
        begins = before is None or before.state is not after.state
        idle = [m for m in after.members if not m.has_joined] if begins else ()
    for member in idle:
        expires = now_ms + member.session_timeout_ms
        lease = (after.group_id, member.member_id)
        unit.execute(_SHORTEN, (expires, row_checksum(*lease, expires), *lease, expires))
        unit.memos[Due].by(expires + 1)


def begin_sessions(unit: Unit, now_ms: int) -> None:
    """Begin a session for each member without a session, as in a restored file."""
    for group in [*GROUPS.read(unit, _NOT_EMPTY)]:
        for member in group.members:
            renew_session(unit, group.group_id, member, now_ms, _BEGIN)


def ended_sessions(source: Unit | sqlite3.Connection, now_ms: int) -> dict[str, set[str]]:
    """The members with expired sessions by group, the oldest first."""
    ended: dict[str, set[str]] = {}
    for group_id, member_id in source.execute(
        "SELECT group_id, member_id FROM group_sessions WHERE expires < ? ORDER BY expires",
        (now_ms,),
    ):
        ended.setdefault(group_id, set()).add(member_id)
    return ended


def first_overdue(unit: Unit, now_ms: int) -> str | None:
    """A group whose rebalance has timed out."""
    row = unit.execute(
        "SELECT group_id FROM groups WHERE deadline >= 0 AND deadline < ? ORDER BY deadline LIMIT 1",
        (now_ms,),
    ).fetchone()
    return None if row is None else str(row[0])


def end_sessions(unit: Unit, group_id: str, member_ids: Collection[str]) -> None:
    unit.executemany(
        "DELETE FROM group_sessions WHERE group_id = ? AND member_id = ?",
        [(group_id, member_id) for member_id in sorted(member_ids)],
    )


def altered_sessions(connection: sqlite3.Connection) -> list[str]:
    """For `verify`: sessions with a wrong checksum. No event records sessions, so no replay checks them."""
    return [
        f"group_sessions: row {lease} does not fit its checksum"
        for *lease, checksum in connection.execute(
            "SELECT group_id, member_id, expires, checksum FROM group_sessions"
        )
        if checksum != row_checksum(*lease)
    ]


def expire_members(
    unit: Unit, now_ms: int, dead: Mapping[str, Collection[str]]
) -> tuple[int, list[Removed]]:
    """Remove members whose process died (`dead`, by group) or whose session ended, and end overdue
    rebalances. Returns the number of changed groups, STEPS_PER_UNIT if more may be due, and the removed
    members."""
    changed, removed = 0, list[Removed]()
    for reason, group_id, members in islice(_gone(unit, now_ms, dead), STEPS_PER_UNIT):
        before = load(unit, group_id)
        if before is not None:
            record(unit, before, without(unit, before, members, now_ms), now_ms)
        end_sessions(unit, group_id, members)
        removed += [Removed(group_id, member, reason) for member in sorted(members)]
        changed += 1
    while changed < STEPS_PER_UNIT and (overdue := first_overdue(unit, now_ms)) is not None:
        before = load(unit, overdue)
        assert before is not None
        names = partial(log_topics.by_number, unit)
        after, late = departures.overdue(before, names, now_ms)
        record(unit, before, after, now_ms)
        removed += late
        changed += 1
    return changed, removed


def _gone(
    unit: Unit, now_ms: int, dead: Mapping[str, Collection[str]]
) -> Iterator[tuple[str, str, Collection[str]]]:
    """Yield each reason for a removal, the group, and the ids of its members. The sessions are read after
    the dead members have been removed."""
    yield from (("process_died", *entry) for entry in sorted(dead.items()))
    yield from (("session_ended", *entry) for entry in ended_sessions(unit, now_ms).items())
