"""When the next time-out or expiration comes due: a bound that every write compares with the clock."""

from __future__ import annotations

from typing import Final

from eosdb.config import BrokerConfig
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.log import producer_rows
from eosdb.store.writing.unit import Unit

MINUTE_MS: Final = 60_000


def next_due(unit: Unit, config: BrokerConfig, now_ms: int) -> int:
    """The time (ms) before which nothing is due."""
    limits = (
        (transaction_rows.NEXT_TIMEOUT, 1),
        (group_rows.NEXT_SESSION_END, 1),
        (group_rows.NEXT_DEADLINE, 1),
        (transaction_rows.OLDEST_IDLE, config.transactional_id_expiration_ms),
        (producer_rows.OLDEST_IDLE, config.producer_id_expiration_ms),
        (group_offsets.OLDEST, config.offsets_retention_minutes * MINUTE_MS),
    )
    # What begins to exist later is due no sooner than the shortest limit from now.
    due = now_ms + min(limit for _, limit in limits if limit > 1)
    for query, limit in limits:
        row = unit.execute(query).fetchone()
        if row is not None:
            due = min(due, row[0] + limit)
    return due
