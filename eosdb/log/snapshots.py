"""Producer-state snapshots: a partition's producer state as of an offset (exclusive)."""

from __future__ import annotations

import sqlite3

from eosdb.events.kinds import SnapshotTaken
from eosdb.log.partition_rows import find_by_id
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.reports import SnapshotEntry
from eosdb.model.values import SnapshotInfo
from eosdb.store.writing.unit import Unit


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


def newest(connection: sqlite3.Connection) -> list[SnapshotInfo]:
    rows = connection.execute(
        """
        SELECT p.topic, p.partition, p.snapshot_offset,
            (
                SELECT count(*) FROM snapshot_entries e
                WHERE e.partition_id = p.partition_id AND e.snapshot_offset = p.snapshot_offset
            )
        FROM partitions p WHERE p.snapshot_offset > 0 ORDER BY p.topic, p.partition
        """
    )
    return [SnapshotInfo(*row) for row in rows]


def kept(connection: sqlite3.Connection) -> list[SnapshotInfo]:
    """Return every stored snapshot: the newest two of each partition."""
    rows = connection.execute(
        """
        SELECT p.topic, p.partition, s.snapshot_offset,
            (
                SELECT count(*) FROM snapshot_entries e
                WHERE e.partition_id = s.partition_id AND e.snapshot_offset = s.snapshot_offset
            )
        FROM snapshots s JOIN partitions p ON p.partition_id = s.partition_id
        ORDER BY 1, 2, 3
        """
    )
    return [SnapshotInfo(*row) for row in rows]


def entries(
    connection: sqlite3.Connection, partition_id: int, snapshot_offset: int
) -> list[SnapshotEntry]:
    rows = connection.execute(
        "SELECT producer_id, producer_epoch, coordinator_epoch, current_txn_first_offset, "
        "first_sequence, last_sequence, last_offset, offset_delta, timestamp FROM snapshot_entries "
        "WHERE partition_id = ? AND snapshot_offset = ? ORDER BY producer_id",
        (partition_id, snapshot_offset),
    )
    return [SnapshotEntry(*row) for row in rows]
