"""What a clock that was ahead has left: transactions, rebalances and sessions that would end long after
their time is over.

A clock that goes forward ends them early, as in Kafka. When it goes back, what was begun meanwhile seems to
begin in the future, and if its process is dead it would hold up readers and members until then: days, for
an abort after a minute. So it begins again now. Nobody who is alive notices.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Final

from eosdb.coordinator.due import Due
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.decisions import Group
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.decisions import begun_again
from eosdb.store.writing.unit import STEPS_PER_UNIT, Unit

_TOLERANCE_MS: Final = 60_000
"""How far ahead is not looked at: two programs never read the same time."""
# The last ones to end, which their indexes find in one step: when these are not ahead, none is for long.
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
    """Whether there is something to begin again."""
    return _transaction(source, now_ms) is not None or _group(source, now_ms) is not None


def begin_again(unit: Unit, now_ms: int) -> int:
    """Returns how many transactions and groups: STEPS_PER_UNIT when there may be more."""
    count = 0
    while count < STEPS_PER_UNIT and (name := _transaction(unit, now_ms)) is not None:
        current = transaction_rows.load(unit, name)
        assert current is not None
        transaction_rows.record(unit, current, begun_again(current, now_ms), now_ms)
        count += 1
    while count < STEPS_PER_UNIT and (name := _group(unit, now_ms)) is not None:
        found = group_rows.load(unit, name) or Group(name)
        if found.deadline_ms > now_ms + _longest(found):
            later = replace(found, deadline_ms=now_ms + _longest(found))
            group_rows.record(unit, found, later, now_ms)
            found = later
        group_rows.begin_sessions_again(unit, found, now_ms)
        count += 1
    unit.memos[Due].time_ms = None
    return count


def _transaction(source: Source, now_ms: int) -> str | None:
    row = source.execute(_TRANSACTION).fetchone()
    return str(row[0]) if row is not None and row[1] > now_ms + _TOLERANCE_MS else None


def _group(source: Source, now_ms: int) -> str | None:
    """One of the group whose rebalance, or whose member's session, ends last."""
    for query in (_REBALANCE, _SESSION):
        row = source.execute(query).fetchone()
        if row is not None and row[1] > now_ms + _TOLERANCE_MS:
            name, ends_ms = str(row[0]), int(row[1])
            found = group_rows.load(source, name) or Group(name)
            # Who waits has a session as long as the rebalance may take, and then its own.
            sessions = max((m.session_timeout_ms for m in found.members), default=0)
            if ends_ms > now_ms + _TOLERANCE_MS + _longest(found) + sessions:
                return name
    return None


def _longest(group: Group) -> int:
    """How long a rebalance of the group takes at the most."""
    return max((member.rebalance_timeout_ms for member in group.members), default=0)
