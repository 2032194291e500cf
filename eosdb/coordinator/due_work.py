"""The work that is due by time alone: when the next is, and its steps inside a unit.

A clock that jumps forward ends transactions and sessions early, as in Kafka. If it goes back later, start
times from in between are in the future, and those transactions and sessions would time out days late. So
due work sets such start times to the current time. Living owners are not affected.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from eosdb.coordinator.due import Due
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.decisions import Group
from eosdb.coordinator.groups.departures import Removed
from eosdb.coordinator.groups.rows import AnyGroup
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.decisions import begun_again
from eosdb.log import producer_rows, scheduled
from eosdb.model.config import BrokerConfig
from eosdb.model.protocol.members import NO_DEADLINE
from eosdb.store.writing.unit import STEPS_PER_UNIT, Unit

Source = Unit | sqlite3.Connection
_MINUTE_MS: Final = 60_000
_BOUNDS: Final = (
    transaction_rows.NEXT_TIMEOUT,
    group_rows.NEXT_SESSION_END,
    group_rows.NEXT_DEADLINE,
    scheduled.NEXT_DUE,
    transaction_rows.OLDEST_IDLE,
    producer_rows.OLDEST_IDLE,
    group_offsets.OLDEST,
)
_NEXT: Final = f"SELECT ({'), ('.join(_BOUNDS)})"
"""The times from which each kind of due work counts."""
_HOLDING: Final = (
    transaction_rows.NEXT_TIMEOUT,
    scheduled.NEXT_DUE,
    transaction_rows.OLDEST_DECIDED,
)
_NEXT_FOR_READERS: Final = f"SELECT ({'), ('.join(_HOLDING)})"
_DECIDED_MS: Final = 10_000
"""A transaction that was decided this long ago, and is not complete, has lost its process."""
_TOLERANCE_MS: Final = 60_000
"""Tolerated difference: the clocks of two processes never agree exactly."""
# A start time in the future shows that the clock was set back. An index gives the transaction with the
# latest deadline: if its start time is not in the future, no other one is far in the future.
_TRANSACTION: Final = (
    "SELECT transactional_id, start_time FROM transactional_ids "
    f"WHERE state {transaction_rows.IS_ONGOING} ORDER BY start_time + timeout_ms DESC LIMIT 1"
)
_REBALANCE: Final = (
    "SELECT group_id, deadline FROM groups WHERE deadline >= 0 ORDER BY deadline DESC LIMIT 1"
)
_SESSION: Final = "SELECT group_id, expires FROM group_sessions ORDER BY expires DESC LIMIT 1"


def begin_again(unit: Unit, now_ms: int) -> int:
    """Set start times in the future to now. Returns how many; STEPS_PER_UNIT if more may be left."""
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
    """The group with the latest deadline or session end, if no deadline that begins now is that late."""
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
    """The group with its rebalance deadline or revocation deadlines counted from now."""
    if isinstance(group, Group):
        return replace(group, deadline_ms=now_ms + _longest(group))
    members = (
        member._replace(revoke_by_ms=now_ms + member.rebalance_timeout_ms)
        for member in group.members
        if member.revoke_by_ms != NO_DEADLINE
    )
    return group.with_members(members)


def _longest(group: AnyGroup) -> int:
    return max((member.rebalance_timeout_ms for member in group.members), default=0)


def remove(
    unit: Unit, config: BrokerConfig, now_ms: int, dead: Mapping[str, Collection[str]]
) -> tuple[dict[str, int], list[Removed]]:
    """Remove expired rows, and the `dead` members by group. Returns counts, all 0 when nothing is left,
    and the removed members."""
    unit.memos[Due].time_ms = None
    ids_ms, producers_ms, offsets_ms = _expirations(config)
    removed = {
        "expired_transactional_ids": transaction_rows.expire(unit, now_ms, ids_ms),
        "expired_producers": producer_rows.expire(unit, now_ms, producers_ms),
        "expired_offsets": group_offsets.expire(unit, now_ms, offsets_ms),
    }
    changed, members = group_rows.expire_members(unit, now_ms, dead)
    return removed | {"changed_groups": changed}, members


def _expirations(config: BrokerConfig) -> tuple[int, int, int]:
    """After how long (ms) transactional ids, producers and offsets expire."""
    return (
        config.transactional_id_expiration_ms,
        config.producer_id_expiration_ms,
        config.offsets_retention_minutes * _MINUTE_MS,
    )


def next_due(source: Source, config: BrokerConfig, now_ms: int) -> int:
    """The time (ms) before which nothing is due in the current state of the file."""
    if _transaction(source, now_ms) is not None or _group(source, now_ms) is not None:
        return now_ms  # Start times in the future must be set to now.
    expirations = _expirations(config)
    limits = (1, 1, 1, 0, *expirations)
    found: tuple[int | None, ...] = source.execute(_NEXT).fetchone()
    times = [time + limit for time, limit in zip(found, limits, strict=True) if time is not None]
    # Expirations that begin later are due after this time. Other new due times lower the bound (`Due.by`).
    return min([now_ms + min(expirations), *times])


def next_for_readers(connection: sqlite3.Connection) -> int | None:
    """When a scheduled record is delivered next, or a transaction of a dead producer ends; None for
    neither."""
    found = connection.execute(_NEXT_FOR_READERS).fetchone()
    limits = (1, 0, _DECIDED_MS)
    times = [time + limit for time, limit in zip(found, limits, strict=True) if time is not None]
    return min(times, default=None)
