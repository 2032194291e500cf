"""Retention: the log start moves up, and what lies below it is deleted in steps.

Moving the log start is one event and one unit, and decides everything: readers see no record below
it from then on. The rows go afterwards, a bounded number per unit; a kill in between leaves rows
that the next round removes. Bounded by the high watermark, not by the last stable offset, as in
Kafka.
"""

from __future__ import annotations

from typing import Final

from eosdb.config import TopicConfig
from eosdb.errors import OffsetOutOfRangeError, PolicyViolationError
from eosdb.events import LogStartOffsetMoved
from eosdb.log.batch import STORED_SIZE
from eosdb.log.partitions import Partition
from eosdb.store.unit import Unit

ROWS_PER_UNIT: Final = 20_000


def delete_records(
    unit: Unit, partition: Partition, before_offset: int, config: TopicConfig, now_ms: int
) -> int:
    """Kafka's DeleteRecords: move the log start up to `before_offset` (-1: the high watermark).

    Returns the log start offset. Raises OffsetOutOfRangeError beyond the high watermark, and
    PolicyViolationError for a topic that is only compacted.
    """
    if config.compact and not config.delete:
        raise PolicyViolationError(
            f"{partition.topic_partition}: cleanup.policy is compact, records are not deleted by "
            "offset; add delete to the policy first"
        )
    target = partition.log_end_offset if before_offset == -1 else before_offset
    if target > partition.log_end_offset or target < 0:
        raise OffsetOutOfRangeError(
            f"{partition.topic_partition}: got offset {before_offset}, expected -1 or one up to the "
            f"high watermark {partition.log_end_offset}"
        )
    if target <= partition.log_start_offset:
        return partition.log_start_offset
    move_log_start(unit, partition, target, "delete_records", now_ms)
    return target


def move_log_start(
    unit: Unit, partition: Partition, log_start_offset: int, reason: str, now_ms: int
) -> None:
    (size,) = unit.execute(
        f"SELECT COALESCE(sum({STORED_SIZE}), 0) FROM records "
        'WHERE partition_id = ? AND "offset" >= ? AND "offset" < ?',
        (partition.partition_id, partition.log_start_offset, log_start_offset),
    ).fetchone()
    unit.record(
        LogStartOffsetMoved(
            timestamp=now_ms,
            topic=partition.topic,
            partition=partition.partition,
            partition_id=partition.partition_id,
            log_start_offset=log_start_offset,
            size=size,
            reason=reason,
        )
    )


def due_log_start(
    unit: Unit, partition: Partition, config: TopicConfig, now_ms: int
) -> tuple[int, str] | None:
    """Where retention.ms and retention.bytes put the log start, and which of them; None: as it
    is."""
    if not config.delete:
        return None
    by_time = _by_time(unit, partition, config.retention_ms, now_ms)
    by_size = _by_size(unit, partition, config.retention_bytes)
    target, reason = max((by_time, "retention.ms"), (by_size, "retention.bytes"))
    return (target, reason) if target > partition.log_start_offset else None


def _by_time(unit: Unit, partition: Partition, retention_ms: int, now_ms: int) -> int:
    """The first offset whose record is young enough to stay; all before it go."""
    if retention_ms < 0 or partition.log_start_offset == partition.log_end_offset:
        return partition.log_start_offset
    row = unit.execute(
        'SELECT "offset" FROM records WHERE partition_id = ? AND "offset" >= ? AND timestamp >= ? '
        'ORDER BY "offset" LIMIT 1',
        (partition.partition_id, partition.log_start_offset, now_ms - retention_ms),
    ).fetchone()
    return partition.log_end_offset if row is None else int(row[0])


def _by_size(unit: Unit, partition: Partition, retention_bytes: int) -> int:
    """The first offset of the newest records that fit into `retention_bytes`."""
    excess = partition.size_bytes - retention_bytes
    if retention_bytes < 0 or excess <= 0:
        return partition.log_start_offset
    for offset, size in unit.execute(
        f'SELECT "offset", {STORED_SIZE} FROM records WHERE partition_id = ? AND "offset" >= ? '
        'ORDER BY "offset"',
        (partition.partition_id, partition.log_start_offset),
    ):
        if size > excess:
            return int(offset)
        excess -= size
        if excess <= 0:
            return int(offset) + 1
    return partition.log_end_offset


def delete_rows(unit: Unit) -> int:
    """Delete up to ROWS_PER_UNIT rows below a log start or of a deleted topic. 0: none are left."""
    deleted = 0
    for partition_id, log_start_offset in unit.execute(
        "SELECT partition_id, log_start_offset FROM partitions WHERE log_start_offset > 0"
    ).fetchall():
        if deleted >= ROWS_PER_UNIT:
            break
        deleted += _delete(unit, partition_id, log_start_offset, ROWS_PER_UNIT - deleted)
    if deleted < ROWS_PER_UNIT:
        for partition_id in _orphans(unit):
            deleted += _delete(unit, partition_id, 2**63 - 1, ROWS_PER_UNIT - deleted)
            if deleted >= ROWS_PER_UNIT:
                break
    return deleted


def _delete(unit: Unit, partition_id: int, below: int, limit: int) -> int:
    return unit.execute(
        "DELETE FROM records WHERE rowid IN (SELECT rowid FROM records "
        'WHERE partition_id = ? AND "offset" < ? ORDER BY "offset" LIMIT ?)',
        (partition_id, below, limit),
    ).rowcount


def _orphans(unit: Unit) -> list[int]:
    """Partitions that have rows but are no more: a walk over the index by skipping, not a scan."""
    found: list[int] = []
    last = -1
    while True:
        (partition_id,) = unit.execute(
            "SELECT min(partition_id) FROM records WHERE partition_id > ?", (last,)
        ).fetchone()
        if partition_id is None:
            return found
        last = partition_id
        if not unit.execute(
            "SELECT 1 FROM partitions WHERE partition_id = ?", (partition_id,)
        ).fetchone():
            found.append(partition_id)
