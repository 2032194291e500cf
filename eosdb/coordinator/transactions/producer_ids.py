"""Producer ids: never reused, taken from durably allocated blocks (ProducerIdManager).

A database object holds one block in memory. It reads the next free id and allocates its next block in one
unit, so no two processes get the same block. Closing the database loses the unused ids of its block.

`producer_ids` stores the transactional id of a producer id as long as a record of it exists. A
transactional id belongs to one of 50 coordinator partitions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

from eosdb.errors import ProducerIdsExhaustedError
from eosdb.events.kinds import ProducerIdBlockAllocated, ProducerIdsForgotten
from eosdb.model.clock import Clock
from eosdb.model.config import INT64_MAX
from eosdb.store.counters import counter
from eosdb.store.store import Store
from eosdb.store.writing.unit import STEPS_PER_UNIT, Unit

PARTITIONS: Final = 50
"""transaction.state.log.num.partitions and offsets.topic.num.partitions; a constant of the format."""


def partition_for(key: str) -> int:
    """The coordinator partition of a transactional id or group id. Java's `String.hashCode` over UTF-16
    units, its absolute value (0 for -2**31), modulo 50 (Kafka: Utils.abs,
    TransactionStateManager.partitionFor)."""
    data = key.encode("utf-16-le", "surrogatepass")
    value = 0
    for i in range(0, len(data), 2):
        value = (31 * value + (data[i] | data[i + 1] << 8)) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return (0 if signed == -(2**31) else abs(signed)) % PARTITIONS


NEXT_PRODUCER_ID: Final = "next_producer_id"
BLOCK_VERSION: Final = "producer_id_block_version"
_PAGE: Final = """
SELECT i.producer_id, NOT EXISTS (
    SELECT 1 FROM transactional_ids t WHERE t.producer_id = i.producer_id
    OR t.transactional_id = i.transactional_id
    AND i.producer_id IN (t.previous_producer_id, t.next_producer_id)
) AND NOT EXISTS (SELECT 1 FROM pending_group_offsets o WHERE o.producer_id = i.producer_id)
FROM (SELECT * FROM producer_ids WHERE producer_id >= ? ORDER BY producer_id LIMIT ?) i
ORDER BY i.producer_id
"""
_HAS_RECORDS: Final = """
SELECT EXISTS (
    SELECT 1 FROM partitions p CROSS JOIN records r
    WHERE r.partition_id = p.partition_id AND r.producer_id = ? AND r.sequence >= 0
)
"""
_IS_STORED: Final = "SELECT 1 FROM producer_ids WHERE producer_id = ?"


class ProducerIdManager:
    """Gives out ids of the block in memory, to any thread. If two allocate a block at once, one is lost."""

    def __init__(self, store: Store, clock: Clock, block_size: int) -> None:
        self._store = store
        self._clock = clock
        self._block_size = block_size
        self.left: Iterator[int] = iter(())
        """The unused ids of the block. No lock guards it, because `next` is a single call into C."""

    def next(self) -> int:
        """A producer id that was never used. Raises ProducerIdsExhaustedError."""
        fresh = next(self.left, None)
        if fresh is None:
            fresh, self.left = self._store.write(self.within, tells=False)
        return fresh

    def within(self, unit: Unit) -> tuple[int, Iterator[int]]:
        """Return a producer id that was never used, and the `left` ids once the unit is committed. Raises
        ProducerIdsExhaustedError."""
        fresh = next(self.left, None)
        if fresh is not None:
            return fresh, self.left
        first, size = counter(unit, NEXT_PRODUCER_ID), self._block_size
        if first > INT64_MAX - size:
            raise ProducerIdsExhaustedError(
                f"the next producer id would be {first}, a block of {size} does not fit below 2**63; this "
                "file can have no further producers, start a new file"
            )
        version = counter(unit, BLOCK_VERSION) + 1
        unit.record(ProducerIdBlockAllocated(self._clock.time_ms(), first, size, version))
        return first, iter(range(first + 1, first + size))


# -- unused producer ids ---------------------------------------------------------------------------


def left_over(connection: sqlite3.Connection, first: int) -> tuple[list[int], int | None]:
    """Check STEPS_PER_UNIT stored producer ids from `first` on. Returns the ids without a transactional id
    and without data, which can never get a record again, and the id to continue at (None at the end)."""
    rows = connection.execute(_PAGE, (first, STEPS_PER_UNIT)).fetchall()
    gone = [
        id_
        for id_, is_retired in rows
        if is_retired and not connection.execute(_HAS_RECORDS, (id_,)).fetchone()[0]
    ]
    return gone, rows[-1][0] + 1 if len(rows) == STEPS_PER_UNIT else None


def forget(unit: Unit, ids: Sequence[int], now_ms: int) -> None:
    """Forget these ids, if they are still stored."""
    stored = tuple([id_ for id_ in ids if unit.execute(_IS_STORED, (id_,)).fetchone()])
    if stored:
        unit.record(ProducerIdsForgotten(now_ms, stored))
