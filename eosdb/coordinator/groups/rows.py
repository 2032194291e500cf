"""The rows of groups and of their members' sessions.

`decisions` (pure) decide what happens; here the group is loaded and the decision recorded. A session is a
lease, neither an event nor folded from events: the time until which a member counts as alive, renewed by
each of its requests.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final

from eosdb.coordinator.due import Due
from eosdb.coordinator.groups import consumer_rows, departures
from eosdb.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember
from eosdb.coordinator.groups.decisions import Group, Member
from eosdb.coordinator.groups.departures import Removed
from eosdb.events.kinds import ConsumerGroupChanged, GroupChanged, GroupMember
from eosdb.log import topics as log_topics
from eosdb.model.damage import parsed, reads
from eosdb.model.protocol.consumer_protocol import PROTOCOL_TYPE
from eosdb.model.values import GroupState, GroupType
from eosdb.store.schema.row_checksum import row_checksum
from eosdb.store.schema.statement import Statement
from eosdb.store.writing.unit import STEPS_PER_UNIT, Folding, Unit

AnyGroup = Group | ConsumerGroup
"""A group of either protocol."""
_FIELDS: Final = [field.name for field in dataclasses.fields(Group)]
"""The columns, which are also the fields of the event."""
_IN_TABLE: Final = {"deadline_ms": "deadline"}
"""The field of Group whose column has another name."""
_COLUMNS: Final = ", ".join(_IN_TABLE.get(field, field) for field in _FIELDS)
_SAVE: Final = Statement(
    f"INSERT OR REPLACE INTO {{groups}} ({_COLUMNS}) VALUES ({', '.join('?' for _ in _FIELDS)})"
)
# decisions/0063: one row for a group of either protocol.
_SAVE_CONSUMER: Final = Statement(
    f"INSERT OR REPLACE INTO {{groups}} ({consumer_rows.COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_OF_BOTH: Final = f"{_COLUMNS}, group_type, assignment_epoch, metadata_hash"
_READ: Final = f"SELECT {_OF_BOTH} FROM {{groups}}"
_DELETE: Final = Statement("DELETE FROM {groups} WHERE group_id = ?")
_ALL: Final = Statement(_READ)
_BY_ID: Final = Statement(f"{_READ} WHERE group_id = ?")
# Every member has a lease; there may be many more groups without members.
_WITH_MEMBERS: Final = (
    "SELECT group_id, members FROM groups WHERE group_id IN (SELECT group_id FROM group_sessions)"
)
# decisions/0009: a lease, written by requests; no event records that it was renewed.
_RENEW: Final = (
    "INSERT INTO group_sessions (group_id, member_id, expires, checksum) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (group_id, member_id) "
    "DO UPDATE SET expires = excluded.expires, checksum = excluded.checksum"
)
_SHORTEN: Final = (
    "UPDATE group_sessions SET expires = ?, checksum = ? "
    "WHERE group_id = ? AND member_id = ? AND expires > ?"
)
NEXT_SESSION_END: Final = "SELECT expires FROM group_sessions ORDER BY expires LIMIT 1"
"""When the next session ends; its member is removed strictly after that time."""
NEXT_DEADLINE: Final = "SELECT deadline FROM groups WHERE deadline >= 0 ORDER BY deadline LIMIT 1"
"""When the next rebalance times out."""


def load(connection: Folding | sqlite3.Connection, group_id: str) -> AnyGroup | None:
    """The group; None if no member ever joined it."""
    row = connection.execute(_BY_ID, (group_id,)).fetchone()
    return None if row is None else _group(row)


def classic(group_id: str, group: AnyGroup | None) -> Group | None:
    """The group as one of the classic protocol; one of the other kind without its members."""
    if isinstance(group, ConsumerGroup):
        return Group(group_id, protocol_type=PROTOCOL_TYPE, generation_id=group.group_epoch)
    return group


def stored_members(source: Unit | sqlite3.Connection) -> list[tuple[str, str]]:
    """The ids of the groups that have members, each with the stored text of its members."""
    return source.execute(_WITH_MEMBERS).fetchall()


@reads("groups")
def owner_locks(members: str) -> tuple[tuple[str, int], ...]:
    """The ids of the members in the stored text that hold locks, and the locks' numbers."""
    return tuple((m["member_id"], m["owner_lock"]) for m in parsed(members) if "owner_lock" in m)


def names(connection: sqlite3.Connection) -> list[str]:
    """Every group that has members or offsets."""
    rows = connection.execute(
        "SELECT group_id FROM groups UNION SELECT DISTINCT group_id FROM group_offsets "
        "UNION SELECT DISTINCT group_id FROM pending_group_offsets ORDER BY 1"
    )
    return [name for (name,) in rows]


@reads("groups")
def load_all(connection: sqlite3.Connection) -> dict[str, AnyGroup]:
    """Every group that has ever had a member."""
    rows = connection.execute(_ALL)
    return {group.group_id: group for group in map(_group, rows)}


def record(unit: Unit, before: AnyGroup | None, after: AnyGroup, now_ms: int) -> None:
    """Record the change as an event, and delete the sessions of removed members."""
    if after == before:
        return
    if isinstance(after, ConsumerGroup):
        known = before if isinstance(before, ConsumerGroup) else None
        unit.record(consumer_rows.change(known, after, now_ms))
    else:
        fields = _fields(
            after, state=after.state.value, members=tuple(map(_group_member, after.members))
        )
        unit.record(GroupChanged(timestamp=now_ms, **fields))
    gone = {m.member_id for m in before.members} if before is not None else set()
    gone -= {m.member_id for m in after.members}
    end_sessions(unit, after.group_id, gone)
    if after.deadline_ms >= 0:
        unit.memos[Due].by(after.deadline_ms + 1)
    _end_waiting(unit, before, after, now_ms)


def without(unit: Unit, group: AnyGroup, member_ids: Collection[str], now_ms: int) -> AnyGroup:
    """The group without these members; it may change over."""
    return departures.without(group, member_ids, partial(log_topics.by_number, unit), now_ms)


def save(unit: Folding, event: GroupChanged) -> None:
    """Projection only: save the row of the group."""
    members = json.dumps([_row(member) for member in event.members], separators=(",", ":"))
    unit.execute(_SAVE, tuple(_fields(event, members=members).values()))


def save_consumer(unit: Folding, event: ConsumerGroupChanged) -> ConsumerGroup:
    """Projection only: save the row of the group as it is after the event, which is returned."""
    before = load(unit, event.group_id)
    after = consumer_rows.changed(before if isinstance(before, ConsumerGroup) else None, event)
    unit.execute(_SAVE_CONSUMER, consumer_rows.row(after))
    return after


def forget(unit: Folding, group_id: str) -> None:
    """Projection only: delete the row of a deleted group."""
    unit.execute(_DELETE, (group_id,))


def renew_session(unit: Unit, group_id: str, member: Member | ConsumerMember, now_ms: int) -> None:
    """Extend the member's session to its session timeout from now."""
    expires = now_ms + member.session_timeout_ms
    lease = (group_id, member.member_id, expires)
    unit.execute(_RENEW, (*lease, row_checksum(*lease)))
    unit.memos[Due].by(expires + 1)


def renew_while_waiting(
    unit: Unit, group: AnyGroup, member: Member | ConsumerMember, now_ms: int
) -> None:
    """Extend the session of a member that waits for others, and sends no requests meanwhile, to its session
    timeout after the rebalance deadline (Kafka: hasSatisfiedHeartbeat). A member of a consumer group
    never waits."""
    until_ms = group.deadline_ms if isinstance(group, Group) else now_ms
    renew_session(unit, group.group_id, member, max(now_ms, until_ms))


def begin_sessions_again(unit: Unit, group: AnyGroup, now_ms: int) -> None:
    """Restart the sessions of all members now, and forget member ids that nobody has joined with."""
    unit.execute("DELETE FROM group_sessions WHERE group_id = ?", (group.group_id,))
    for member in group.members:
        renew_while_waiting(unit, group, member, now_ms)


def is_given_out(unit: Unit, group_id: str, member_id: str) -> bool:
    """Whether this member id was given out (MemberIdRequiredError): it has a session, perhaps no member."""
    lease = unit.execute(
        "SELECT 1 FROM group_sessions WHERE group_id = ? AND member_id = ?", (group_id, member_id)
    )
    return lease.fetchone() is not None


def _end_waiting(unit: Unit, before: AnyGroup | None, after: AnyGroup, now_ms: int) -> None:
    """Shorten the extended sessions of members that wait for nothing any more to their session timeout from
    now: those of a generation that is formed, those that are to join the next one, and those of a group
    that has changed over."""
    idle: Iterable[Member | ConsumerMember] = after.members
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
    """Begin sessions of members without one, as in a file that was restored to an earlier time."""
    rows = unit.execute(f"{_ALL} WHERE state <> '{GroupState.EMPTY.value}'").fetchall()
    for group in map(_group, rows):
        for member in group.members:
            expires = now_ms + member.session_timeout_ms
            lease = (group.group_id, member.member_id, expires)
            unit.execute(
                "INSERT OR IGNORE INTO group_sessions (group_id, member_id, expires, checksum) "
                "VALUES (?, ?, ?, ?)",
                (*lease, row_checksum(*lease)),
            )
            unit.memos[Due].by(expires + 1)


def first_ended_session(unit: Unit, now_ms: int) -> tuple[str, set[str]] | None:
    """A group with sessions that have ended, and the ids of their members."""
    row = unit.execute(
        "SELECT group_id FROM group_sessions WHERE expires < ? ORDER BY expires LIMIT 1", (now_ms,)
    ).fetchone()
    if row is None:
        return None
    ended = unit.execute(
        "SELECT member_id FROM group_sessions WHERE group_id = ? AND expires < ?", (row[0], now_ms)
    ).fetchall()
    return row[0], {member_id for (member_id,) in ended}


def ended_sessions(connection: sqlite3.Connection, now_ms: int) -> dict[str, set[str]]:
    """The members whose sessions have ended, by group."""
    ended: dict[str, set[str]] = {}
    for group_id, member_id in connection.execute(
        "SELECT group_id, member_id FROM group_sessions WHERE expires < ?", (now_ms,)
    ):
        ended.setdefault(group_id, set()).add(member_id)
    return ended


def first_overdue(unit: Unit, now_ms: int) -> str | None:
    """The id of a group whose rebalance has timed out."""
    row = unit.execute(
        "SELECT group_id FROM groups WHERE deadline >= 0 AND deadline < ? ORDER BY deadline LIMIT 1",
        (now_ms,),
    ).fetchone()
    return None if row is None else str(row[0])


def end_sessions(unit: Unit, group_id: str, member_ids: set[str]) -> None:
    """Delete the sessions of these member ids."""
    unit.executemany(
        "DELETE FROM group_sessions WHERE group_id = ? AND member_id = ?",
        [(group_id, member_id) for member_id in sorted(member_ids)],
    )


def altered_sessions(connection: sqlite3.Connection) -> list[str]:
    """For `verify`: sessions whose checksum does not match, since they cannot be compared with events."""
    return [
        f"group_sessions: row {lease} does not fit its checksum"
        for *lease, checksum in connection.execute(
            "SELECT group_id, member_id, expires, checksum FROM group_sessions"
        )
        if checksum != row_checksum(*lease)
    ]


def expire_members(
    unit: Unit, now_ms: int, dead: Mapping[str, Collection[str]], removed: list[Removed]
) -> int:
    """Remove members whose process has died (`dead`, by group) or whose session has ended, and end
    rebalances that have timed out. The removed members are added to `removed`.

    Returns the number of changed groups; STEPS_PER_UNIT if there may be more.
    """
    changed = 0
    for group_id in sorted(dead)[:STEPS_PER_UNIT]:
        _remove_members(unit, group_id, set(dead[group_id]), now_ms)
        removed += [Removed(group_id, member, "process_died") for member in sorted(dead[group_id])]
        changed += 1
    while changed < STEPS_PER_UNIT and (ended := first_ended_session(unit, now_ms)) is not None:
        _remove_members(unit, *ended, now_ms)
        group_id, members = ended
        removed += [Removed(group_id, member, "session_ended") for member in sorted(members)]
        changed += 1
    while changed < STEPS_PER_UNIT and (overdue := first_overdue(unit, now_ms)) is not None:
        before = load(unit, overdue)
        assert before is not None
        names = partial(log_topics.by_number, unit)
        after, late = departures.overdue(before, names, now_ms)
        record(unit, before, after, now_ms)
        removed += late
        changed += 1
    return changed


def _remove_members(unit: Unit, group_id: str, member_ids: set[str], now_ms: int) -> None:
    before = load(unit, group_id)
    if before is not None:
        record(unit, before, without(unit, before, member_ids, now_ms), now_ms)
    end_sessions(unit, group_id, member_ids)


def _fields(group: Group | GroupChanged, **changed: object) -> dict[str, Any]:
    return {name: getattr(group, name) for name in _FIELDS} | changed


def _group_member(member: Member) -> GroupMember:
    fields = {name: getattr(member, name) for name in GroupMember._fields}
    fields["protocols"] = tuple((name, _text(data)) for name, data in member.protocols)
    return GroupMember(**fields | {"assignment": _text(member.assignment)})


def _row(member: GroupMember) -> dict[str, Any]:
    """The stored form, without later fields that have their default, so that older rows look the same."""
    later = GroupMember._field_defaults
    row = member._asdict()
    return {name: row[name] for name in row if name not in later or row[name] != later[name]}


@reads("groups")
def _group(row: tuple[Any, ...]) -> AnyGroup:
    *columns, group_type, assignment_epoch, metadata_hash = row
    fields = dict(zip(_FIELDS, columns, strict=True))
    fields["state"] = GroupState(fields["state"])
    if GroupType(group_type) is GroupType.CONSUMER:
        epochs = (fields["generation_id"], assignment_epoch, metadata_hash)
        return ConsumerGroup(
            fields["group_id"], *epochs, consumer_rows.members_of(str(fields["members"]))
        )
    fields["members"] = tuple(map(_member, parsed(str(fields["members"]))))
    return Group(**fields)


def _member(stored: dict[str, Any]) -> Member:
    protocols = tuple((name, _bytes(data)) for name, data in stored["protocols"])
    return Member(**stored | {"protocols": protocols, "assignment": _bytes(stored["assignment"])})


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
