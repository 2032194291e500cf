"""Repairs transactions, rebalances and sessions whose start is in the future, after a clock was ahead.

A clock that jumps forward ends them early, as in Kafka. If it goes back afterwards, those that began
meanwhile would time out perhaps days late. With dead processes they would block readers and members until
then. So their times restart now; living owners are not affected.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Final

from eosdb.coordinator.due import Due
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.decisions import NO_DEADLINE, Group
from eosdb.coordinator.groups.rows import AnyGroup
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.decisions import begun_again
from eosdb.store.writing.unit import STEPS_PER_UNIT, Unit

_TOLERANCE_MS: Final = 60_000
"""Tolerated difference: the clocks of two processes never agree exactly."""
# The last one to end, found by an index in one step. If it is not ahead, no other is by much.
_TRANSACTION: Final = (
    "SELECT transactional_id, start_time FROM transactional_ids "
    f"WHERE state {transaction_rows.IS_ONGOING} ORDER BY start_time + timeout_ms DESC LIMIT 1"
)
_REBALANCE: Final = (
    "SELECT group_id, deadline FROM groups WHERE deadline >= 0 ORDER BY deadline DESC LIMIT 1"
)
_SESSION: Final = "SELECT group_id, expires FROM group_sessions ORDER BY expires DESC LIMIT 1"

Source = Unit | sqlite3.Connection


def is_any(source: Source, now_ms: int) -> bool:
    """Whether a transaction, rebalance or session has a time in the future."""
    return _transaction(source, now_ms) is not None or _group(source, now_ms) is not None


def begin_again(unit: Unit, now_ms: int) -> int:
    """Restart the times that are in the future. Returns how many; STEPS_PER_UNIT if more may be left."""
    count = 0
    while count < STEPS_PER_UNIT and (name := _transaction(unit, now_ms)) is not None:
        current = transaction_rows.load(unit, name)
        assert current is not None
        transaction_rows.record(unit, current, begun_again(current, now_ms), now_ms)
        count += 1
    while count < STEPS_PER_UNIT and (name := _group(unit, now_ms)) is not None:
        group = group_rows.load(unit, name) or Group(name)
        if group.deadline_ms > now_ms + _longest(group):
            before, group = group, _with_deadlines(group, now_ms)
            group_rows.record(unit, before, group, now_ms)
        group_rows.begin_sessions_again(unit, group, now_ms)
        count += 1
    unit.memos[Due].time_ms = None
    return count


def _transaction(source: Source, now_ms: int) -> str | None:
    row = source.execute(_TRANSACTION).fetchone()
    return str(row[0]) if row is not None and row[1] > now_ms + _TOLERANCE_MS else None


def _group(source: Source, now_ms: int) -> str | None:
    """The group with the last rebalance deadline or session end, if that is in the future."""
    for query in (_REBALANCE, _SESSION):
        row = source.execute(query).fetchone()
        if row is not None and row[1] > now_ms + _TOLERANCE_MS:
            name, ends_ms = str(row[0]), int(row[1])
            group = group_rows.load(source, name) or Group(name)
            # A rebalance extends the session of a waiting member.
            sessions = max((m.session_timeout_ms for m in group.members), default=0)
            if ends_ms > now_ms + _TOLERANCE_MS + _longest(group) + sessions:
                return name
    return None


def _with_deadlines(group: AnyGroup, now_ms: int) -> AnyGroup:
    """The group with its deadlines, for the rebalance or for giving up partitions, counted from now."""
    if isinstance(group, Group):
        return replace(group, deadline_ms=now_ms + _longest(group))
    members = (
        replace(member, revoke_by_ms=now_ms + member.rebalance_timeout_ms)
        for member in group.members
        if member.revoke_by_ms != NO_DEADLINE
    )
    return group.with_members(members)


def _longest(group: AnyGroup) -> int:
    return max((member.rebalance_timeout_ms for member in group.members), default=0)
