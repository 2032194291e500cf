"""Expiration: when something expires next, and one round of removals."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from eosdb.coordinator import ahead
from eosdb.coordinator.due import Due
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.departures import Removed
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.log import producer_rows
from eosdb.model.config import BrokerConfig
from eosdb.store.writing.unit import Unit

MINUTE_MS: Final = 60_000


@dataclass(slots=True)
class Expired:
    """Counts of one round's completions, aborts and removals."""

    recovered: int = 0
    aborted: int = 0
    transactional_ids: int = 0
    producers: int = 0
    offsets: int = 0
    groups: int = 0

    def add(self, removed: tuple[int, int, int, int]) -> None:
        self.transactional_ids += removed[0]
        self.producers += removed[1]
        self.offsets += removed[2]
        self.groups += removed[3]


def remove(
    unit: Unit,
    config: BrokerConfig,
    now_ms: int,
    dead: Mapping[str, Collection[str]],
    removed: list[Removed],
) -> tuple[int, int, int, int]:
    """Remove expired rows, and the `dead` members by group. Adds the removed members to `removed`.
    Returns the numbers of removed transactional ids, producers and offsets, and of changed groups: all 0
    when nothing is left."""
    unit.memos[Due].time_ms = None
    return (
        transaction_rows.expire(unit, now_ms, config.transactional_id_expiration_ms),
        producer_rows.expire(unit, now_ms, config.producer_id_expiration_ms),
        group_offsets.expire(unit, now_ms, config.offsets_retention_minutes * MINUTE_MS),
        group_rows.expire_members(unit, now_ms, dead, removed),
    )


def next_due(source: Unit | sqlite3.Connection, config: BrokerConfig, now_ms: int) -> int:
    if ahead.is_any(source, now_ms):
        return now_ms
    limits = (
        (transaction_rows.NEXT_TIMEOUT, 1),
        (group_rows.NEXT_SESSION_END, 1),
        (group_rows.NEXT_DEADLINE, 1),
        (transaction_rows.OLDEST_IDLE, config.transactional_id_expiration_ms),
        (producer_rows.OLDEST_IDLE, config.producer_id_expiration_ms),
        (group_offsets.OLDEST, config.offsets_retention_minutes * MINUTE_MS),
    )
    # Anything that begins later is due no sooner than the shortest limit from now.
    due = now_ms + min(limit for _, limit in limits if limit > 1)
    for query, limit in limits:
        row = source.execute(query).fetchone()
        if row is not None:
            due = min(due, row[0] + limit)
    return due
