"""Rows of producer state: read through the unit's memo, written back, listed. A snapshot has the state up
to an offset (exclusive)."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from eosdb.events.kinds import ProducersExpired, SnapshotTaken
from eosdb.log import partition_rows
from eosdb.log.partition_rows import find_by_id
from eosdb.log.producer_state import BatchMetadata, ProducerStateEntry, sequence_of
from eosdb.model.damage import parsed
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.reports import SnapshotEntry
from eosdb.model.values import ProducerState, SnapshotInfo
from eosdb.store.schema.newest import Statement
from eosdb.store.writing.table import TableOf
from eosdb.store.writing.unit import STEPS_PER_UNIT, TRANSACTIONS, Folding, Memo, Unit


def grown(connection: sqlite3.Connection) -> list[int]:
    """Return every partition that has grown since its last snapshot."""
    return [
        partition_id
        for (partition_id,) in connection.execute(
            "SELECT partition_id FROM partitions "
            "WHERE log_end_offset > snapshot_offset AND partition >= 0"
        )
    ]


def take(unit: Unit, partition_id: int, now_ms: int) -> int:
    """Take a snapshot of the partition if it has grown since the last one. Returns the number of
    snapshots."""
    partition = find_by_id(unit, partition_id)
    if partition is None or partition.log_end_offset <= partition.snapshot_offset:
        return 0
    unit.record(
        SnapshotTaken(
            timestamp=now_ms,
            topic=partition.topic,
            partition=partition.partition,
            partition_id=partition_id,
            offset=partition.log_end_offset,
        )
    )
    reach(Failpoint.SNAPSHOT_WRITTEN)
    return 1


_SNAPSHOTS: Final = """
    SELECT p.topic, p.partition, s.snapshot_offset,
        (
            SELECT count(*) FROM snapshot_entries e
            WHERE e.partition_id = s.partition_id AND e.snapshot_offset = s.snapshot_offset
        )
    FROM {} s JOIN partitions p USING (partition_id) WHERE s.snapshot_offset > 0 ORDER BY 1, 2, 3
"""


def newest(connection: sqlite3.Connection) -> list[SnapshotInfo]:
    return [SnapshotInfo(*row) for row in connection.execute(_SNAPSHOTS.format("partitions"))]


def kept(connection: sqlite3.Connection) -> list[SnapshotInfo]:
    """Return every stored snapshot: the newest two of each partition."""
    return [SnapshotInfo(*row) for row in connection.execute(_SNAPSHOTS.format("snapshots"))]


def snapshot_entries(
    connection: sqlite3.Connection, partition_id: int, snapshot_offset: int
) -> list[SnapshotEntry]:
    rows = connection.execute(
        "SELECT producer_id, producer_epoch, coordinator_epoch, current_txn_first_offset, "
        "first_sequence, last_sequence, last_offset, offset_delta, timestamp FROM snapshot_entries "
        "WHERE partition_id = ? AND snapshot_offset = ? ORDER BY producer_id",
        (partition_id, snapshot_offset),
    )
    return [SnapshotEntry(*row) for row in rows]


_IN_TABLE: Final = {"current_txn_first_offset": "current_txn_start_offset"}
"""Fields of ProducerStateEntry whose column has another name."""
_NAMES: Final = [_IN_TABLE.get(field, field) for field in ProducerStateEntry._fields[1:]]


def _entry(row: tuple[Any, ...]) -> ProducerStateEntry:
    *numbers, batches, _, _, _, producer_id = row
    of_each = tuple(BatchMetadata(*batch) for batch in parsed(batches))
    return ProducerStateEntry._make((producer_id, *numbers, of_each))


# The newest batch's last sequence and offset are for SQL readers.
PRODUCERS: Final = TableOf(
    "partition_producers", (*_NAMES, "last_sequence", "last_offset", "partition_id", "producer_id"),
    "partition_id producer_id", _entry,
)  # fmt: skip
_ALL: Final = PRODUCERS.where("partition_id = ? ORDER BY producer_id")
_OPEN: Final = Statement(
    "SELECT producer_id, current_txn_start_offset FROM {partition_producers} "
    "WHERE partition_id = ? AND current_txn_start_offset >= 0"
)
OLDEST_IDLE: Final = (
    "SELECT last_append_time FROM partition_producers WHERE current_txn_start_offset < 0 "
    "ORDER BY last_append_time LIMIT 1"
)
"""SQL: the last append time of the next producer to expire."""


@dataclass(slots=True)
class _ProducerMemo(Memo):
    entries: dict[tuple[int, int], ProducerStateEntry | None] = field(default_factory=dict)
    """By partition and producer; None if the partition does not know the producer."""
    unfinished: dict[int, dict[int, int]] = field(default_factory=dict)
    """By partition: the first offset of each producer's open transaction."""
    survives = TRANSACTIONS

    def forget_partitions(self, ids: set[int]) -> None:
        for key in [key for key in self.entries if key[0] in ids]:
            del self.entries[key]
        for partition_id in ids & self.unfinished.keys():
            del self.unfinished[partition_id]


def load(unit: Folding, partition_id: int, producer_id: int) -> ProducerStateEntry | None:
    """Return the partition's state of the producer; None without one."""
    key = (partition_id, producer_id)
    memo = unit.memos[_ProducerMemo].entries
    try:
        return memo[key]
    except KeyError:
        pass
    memo[key] = entry = PRODUCERS.find(unit, *key)
    return entry


def save(unit: Folding, partition_id: int, entry: ProducerStateEntry, *, known: bool) -> None:
    """Write the entry; `known` says whether the partition had one for this producer."""
    key = (partition_id, entry.producer_id)
    statement = PRODUCERS.update if known else PRODUCERS.insert
    unit.save("partition_producers", key, statement, _row, (partition_id, entry))
    memo = unit.memos[_ProducerMemo]
    memo.entries[key] = entry
    unfinished = memo.unfinished.get(partition_id)
    if unfinished is not None:
        if entry.current_txn_first_offset >= 0:
            unfinished[entry.producer_id] = entry.current_txn_first_offset
        else:
            unfinished.pop(entry.producer_id, None)


def _row(saved: tuple[int, ProducerStateEntry]) -> tuple[object, ...]:
    partition_id, entry = saved
    producer_id, *numbers, batches = entry
    newest = (sequence_of(entry.last_serial), entry.last_offset)
    return (*numbers, f"[{','.join(map(_text, batches))}]", *newest, partition_id, producer_id)


@lru_cache(4_096)  # Cached: a new version of a row repeats most of its batches.
def _text(batch: BatchMetadata) -> str:
    return "[%d,%d,%d,%d,%d]" % batch


def forget(unit: Folding, partition_id: int, producer_id: int) -> None:
    unit.execute(PRODUCERS.delete, (partition_id, producer_id))
    memo = unit.memos[_ProducerMemo]
    memo.entries.pop((partition_id, producer_id), None)
    memo.unfinished.pop(partition_id, None)


def first_open_offset(unit: Folding, partition_id: int) -> int:
    """Return the first offset of the partition's oldest open transaction; -1 if none is open."""
    known = unit.memos[_ProducerMemo].unfinished
    unfinished = known.get(partition_id)
    if unfinished is None:
        unfinished = known[partition_id] = dict(unit.execute(_OPEN, (partition_id,)))
    return min(unfinished.values()) if unfinished else -1


def entries(
    connection: Folding | sqlite3.Connection, partition_id: int
) -> list[ProducerStateEntry]:
    return [*PRODUCERS.read(connection, _ALL, (partition_id,))]


def expire(unit: Unit, now_ms: int, expiration_ms: int) -> int:
    """Expire producers without an open transaction that did not append for `expiration_ms`."""
    rows = unit.execute(
        "SELECT partition_id, producer_id FROM partition_producers "
        "WHERE current_txn_start_offset < 0 AND last_append_time <= ? "
        f"ORDER BY last_append_time LIMIT {STEPS_PER_UNIT}",
        (now_ms - expiration_ms,),
    ).fetchall()
    by_partition: dict[int, list[int]] = {}
    for partition_id, producer_id in rows:
        by_partition.setdefault(partition_id, []).append(producer_id)
    for partition_id, producer_ids in by_partition.items():
        partition = partition_rows.by_id(unit, partition_id)
        unit.record(
            ProducersExpired(
                timestamp=now_ms,
                topic=partition.topic,
                partition=partition.partition,
                partition_id=partition_id,
                producer_ids=tuple(producer_ids),
            )
        )
    return len(rows)


def describe(connection: sqlite3.Connection, partition_id: int) -> list[ProducerState]:
    """The result of Kafka's DescribeProducers for one partition."""
    return [
        ProducerState(
            entry.producer_id,
            entry.producer_epoch,
            sequence_of(entry.last_serial),
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for entry in entries(connection, partition_id)
    ]
