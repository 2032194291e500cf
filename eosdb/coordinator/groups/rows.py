"""Groups and their members as rows, and the leases by which members stay alive.

What may happen is decided in `decisions` (pure); here the group is loaded and the decision recorded. A
session is a lease, neither an event nor folded from events: it says until when a member counts as alive,
is renewed by every request of the member, and means nothing for any other table.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import sqlite3
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from eosdb.coordinator.due import Due
from eosdb.coordinator.groups import decisions
from eosdb.coordinator.groups.decisions import Group, Member
from eosdb.events.kinds import GroupChanged, GroupMember
from eosdb.model.damage import parsed, reads
from eosdb.model.values import GroupState
from eosdb.store.schema.row_checksum import row_checksum
from eosdb.store.writing.unit import STEPS_PER_UNIT, Unit

_FIELDS: Final = [field.name for field in dataclasses.fields(Group)]
"""As the event has them, too."""
_IN_TABLE: Final = {"deadline_ms": "deadline"}
"""The field of Group that has another name there."""
_COLUMNS: Final = ", ".join(_IN_TABLE.get(field, field) for field in _FIELDS)
_SAVE: Final = (
    f"INSERT OR REPLACE INTO groups ({_COLUMNS}) VALUES ({', '.join('?' for _ in _FIELDS)})"
)
_BY_ID: Final = f"SELECT {_COLUMNS} FROM groups WHERE group_id = ?"
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
"""When the next session ends (a member is removed after that time, not at it)."""
NEXT_DEADLINE: Final = "SELECT deadline FROM groups WHERE deadline >= 0 ORDER BY deadline LIMIT 1"
"""When the next rebalance times out."""


def load(connection: Unit | sqlite3.Connection, group_id: str) -> Group | None:
    """The group as it is; None if nobody ever joined it."""
    row = connection.execute(_BY_ID, (group_id,)).fetchone()
    return None if row is None else _group(row)


def stored_members(source: Unit | sqlite3.Connection) -> list[tuple[str, str]]:
    """The groups that have members: their ids, and their members as they are stored."""
    return source.execute(_WITH_MEMBERS).fetchall()


@reads("groups")
def owner_locks(members: str) -> tuple[tuple[str, int], ...]:
    """The ids of the stored members that have locks, and the locks' numbers."""
    return tuple((m["member_id"], m["owner_lock"]) for m in parsed(members) if "owner_lock" in m)


def names(connection: sqlite3.Connection) -> list[str]:
    """Every group that has members or offsets."""
    rows = connection.execute(
        "SELECT group_id FROM groups UNION SELECT DISTINCT group_id FROM group_offsets "
        "UNION SELECT DISTINCT group_id FROM pending_group_offsets ORDER BY 1"
    )
    return [name for (name,) in rows]


@reads("groups")
def sizes(connection: sqlite3.Connection) -> dict[str, tuple[GroupState, int]]:
    """Each group that somebody ever joined: its state, and how many members it has."""
    rows = connection.execute("SELECT group_id, state, members FROM groups")
    return {
        group_id: (GroupState(state), 0 if members == "[]" else len(parsed(members)))
        for group_id, state, members in rows
    }


def record(unit: Unit, before: Group | None, after: Group, now_ms: int) -> None:
    """Carry out the decided change; the sessions of removed members are deleted with them."""
    if after == before:
        return
    fields = _fields(
        after, state=after.state.value, members=tuple(map(_group_member, after.members))
    )
    unit.record(GroupChanged(timestamp=now_ms, **fields))
    gone = {m.member_id for m in before.members} if before is not None else set()
    gone -= {m.member_id for m in after.members}
    end_sessions(unit, after.group_id, gone)
    if after.deadline_ms >= 0:
        unit.memos[Due].by(after.deadline_ms + 1)
    _end_waiting(unit, after, now_ms)


def save(unit: Unit, event: GroupChanged) -> None:
    """Projection only: the row of the group."""
    members = json.dumps([_row(member) for member in event.members], separators=(",", ":"))
    unit.execute(_SAVE, tuple(_fields(event, members=members).values()))


def forget(unit: Unit, group_id: str) -> None:
    """Projection only: the group has been deleted."""
    unit.execute("DELETE FROM groups WHERE group_id = ?", (group_id,))


def renew_session(unit: Unit, group_id: str, member: Member, now_ms: int) -> None:
    """The member is alive until its session timeout from now."""
    expires = now_ms + member.session_timeout_ms
    lease = (group_id, member.member_id, expires)
    unit.execute(_RENEW, (*lease, row_checksum(*lease)))
    unit.memos[Due].by(expires + 1)


def renew_while_waiting(unit: Unit, group: Group, member: Member, now_ms: int) -> None:
    """The member waits for others and cannot renew its session meanwhile, which is as long as the rebalance
    may take; then it begins (Kafka: hasSatisfiedHeartbeat)."""
    renew_session(unit, group.group_id, member, max(now_ms, group.deadline_ms))


def begin_sessions_again(unit: Unit, group: Group, now_ms: int) -> None:
    """All members of the group are taken for alive now; an id that was only given out is void."""
    unit.execute("DELETE FROM group_sessions WHERE group_id = ?", (group.group_id,))
    for member in group.members:
        renew_while_waiting(unit, group, member, now_ms)


def is_given_out(unit: Unit, group_id: str, member_id: str) -> bool:
    """Whether this member id was given out, to be joined with: a lease that may have no member yet."""
    found = unit.execute(
        "SELECT 1 FROM group_sessions WHERE group_id = ? AND member_id = ?", (group_id, member_id)
    )
    return found.fetchone() is not None


def _end_waiting(unit: Unit, group: Group, now_ms: int) -> None:
    """Those who waited have their answer: their sessions are as long as all others."""
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return
    for member in group.members:
        expires = now_ms + member.session_timeout_ms
        lease = (group.group_id, member.member_id)
        unit.execute(_SHORTEN, (expires, row_checksum(*lease, expires), *lease, expires))
        unit.memos[Due].by(expires + 1)


def begin_sessions(unit: Unit, now_ms: int) -> None:
    """Members without a lease get one: those of a file that was restored to an earlier time."""
    rows = unit.execute(
        f"SELECT {_COLUMNS} FROM groups WHERE state <> '{GroupState.EMPTY.value}'"
    ).fetchall()
    for found in map(_group, rows):
        for member in found.members:
            expires = now_ms + member.session_timeout_ms
            lease = (found.group_id, member.member_id, expires)
            unit.execute(
                "INSERT OR IGNORE INTO group_sessions (group_id, member_id, expires, checksum) "
                "VALUES (?, ?, ?, ?)",
                (*lease, row_checksum(*lease)),
            )
            unit.memos[Due].by(expires + 1)


def first_ended_session(unit: Unit, now_ms: int) -> tuple[str, set[str]] | None:
    """A group whose members' sessions have ended, and those members."""
    row = unit.execute(
        "SELECT group_id FROM group_sessions WHERE expires < ? ORDER BY expires LIMIT 1", (now_ms,)
    ).fetchone()
    if row is None:
        return None
    ended = unit.execute(
        "SELECT member_id FROM group_sessions WHERE group_id = ? AND expires < ?", (row[0], now_ms)
    ).fetchall()
    return row[0], {member_id for (member_id,) in ended}


def first_overdue(unit: Unit, now_ms: int) -> str | None:
    """A group whose rebalance has timed out."""
    row = unit.execute(
        "SELECT group_id FROM groups WHERE deadline >= 0 AND deadline < ? ORDER BY deadline LIMIT 1",
        (now_ms,),
    ).fetchone()
    return None if row is None else str(row[0])


def end_sessions(unit: Unit, group_id: str, member_ids: set[str]) -> None:
    """Delete the leases of members that were removed, or never were members."""
    unit.executemany(
        "DELETE FROM group_sessions WHERE group_id = ? AND member_id = ?",
        [(group_id, member_id) for member_id in sorted(member_ids)],
    )


def altered_sessions(connection: sqlite3.Connection) -> list[str]:
    """For `verify`: leases, which come from no event, that do not fit their checksum."""
    return [
        f"group_sessions: row {lease} does not fit its checksum"
        for *lease, checksum in connection.execute(
            "SELECT group_id, member_id, expires, checksum FROM group_sessions"
        )
        if checksum != row_checksum(*lease)
    ]


class Removed(NamedTuple):
    """A member that is out of its group, and why."""

    group_id: str
    member_id: str
    reason: str


def expire_members(
    unit: Unit, now_ms: int, dead: Mapping[str, Collection[str]], removed: list[Removed]
) -> int:
    """Remove members whose process died (`dead`, by group) or whose session ended, and end rebalances that
    timed out; `removed` gets those who are out.

    Returns how many groups changed: STEPS_PER_UNIT when there may be more.
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
        after = decisions.overdue(before, now_ms)
        record(unit, before, after, now_ms)
        gone = {m.member_id for m in before.members} - {m.member_id for m in after.members}
        removed += [Removed(overdue, member, "did_not_rejoin") for member in sorted(gone)]
        changed += 1
    return changed


def _remove_members(unit: Unit, group_id: str, member_ids: set[str], now_ms: int) -> None:
    before = load(unit, group_id)
    if before is not None:
        record(unit, before, decisions.leave(before, member_ids, now_ms), now_ms)
    end_sessions(unit, group_id, member_ids)


def _fields(group: Group | GroupChanged, **changed: object) -> dict[str, Any]:
    return {name: getattr(group, name) for name in _FIELDS} | changed


def _group_member(member: Member) -> GroupMember:
    fields = {name: getattr(member, name) for name in GroupMember._fields}
    fields["protocols"] = tuple((name, _text(data)) for name, data in member.protocols)
    return GroupMember(**fields | {"assignment": _text(member.assignment)})


def _row(member: GroupMember) -> dict[str, Any]:
    """As it has always been written, for members without what was added later."""
    later = GroupMember._field_defaults
    row = member._asdict()
    return {name: row[name] for name in row if name not in later or row[name] != later[name]}


@reads("groups")
def _group(row: tuple[Any, ...]) -> Group:
    fields = dict(zip(_FIELDS, row, strict=True))
    fields["state"] = GroupState(fields["state"])
    fields["members"] = tuple(map(_member, parsed(str(fields["members"]))))
    return Group(**fields)


def _member(stored: dict[str, Any]) -> Member:
    protocols = tuple((name, _bytes(data)) for name, data in stored["protocols"])
    return Member(**stored | {"protocols": protocols, "assignment": _bytes(stored["assignment"])})


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
