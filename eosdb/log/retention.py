"""Retention: the log start offset is advanced, and the records below it are deleted in steps.

One event in one unit advances the log start, at once: readers see no record below it. The rows are
deleted afterwards, a bounded number per unit; after a kill, the next round deletes the rest. As in Kafka
the upper bound is the high watermark, not the last stable offset.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from eosdb.errors import OffsetOutOfRangeError, PolicyViolationError
from eosdb.events.kinds import LogStartOffsetMoved
from eosdb.log import checksum
from eosdb.log.batch import OLDER_TIME, STORED_SIZE
from eosdb.log.partition_rows import Partition, find_by_id
from eosdb.model.records.failure_headers import POSTPONED
from eosdb.model.topic_config import TopicConfig
from eosdb.store import baseline
from eosdb.store.writing.unit import STEPS_PER_UNIT, Unit

ROWS_PER_UNIT: Final = 1_000
"""The most rows that one unit deletes. If each is a batch of its own, as many events go with them."""
BYTES_PER_UNIT: Final = 1024 * 1024
"""The most bytes that one unit deletes, in a few milliseconds."""
ROWS_PER_MOVE: Final = 5_000
"""The most offsets by which one event advances the log start, so that no unit counts a whole log."""
_ROWS_PER_REQUEST: Final = 50_000
"""The most offsets by which one event advances the log start for a waiting client, in a durable commit."""
_ORPHANS: Final = """
WITH RECURSIVE with_rows (id) AS (
    SELECT min(partition_id) FROM records
    UNION ALL
    SELECT (SELECT min(partition_id) FROM records WHERE partition_id > id) FROM with_rows
    WHERE id IS NOT NULL
)
SELECT id FROM with_rows WHERE id IS NOT NULL AND id NOT IN (SELECT partition_id FROM partitions)
"""
_MAY_STAY: Final = f"""EXISTS (
    SELECT 1 FROM records WHERE records.partition_id = partitions.partition_id
    AND "offset" = log_start_offset AND timestamp >= ? AND {OLDER_TIME} >= ?
)"""
"""SQL: the partition's first record is young enough to stay."""
INDEX_BELOW: Final = (
    "EXISTS (SELECT 1 FROM transaction_index a WHERE a.partition_id = partitions.partition_id "
    "AND last_offset < log_start_offset)"
)
"""SQL: the index of `partitions` has aborted transactions that end below the log start. `delete_records`
does not remove them."""
ROWS_BELOW: Final = (
    "EXISTS (SELECT 1 FROM records r WHERE r.partition_id = partitions.partition_id "
    'AND r."offset" < log_start_offset)'
)
"""SQL: deleted records of the partition still have rows."""
_HANDLED: Final = (
    "SELECT min(committed_offset) FROM group_offsets WHERE topic = ? AND partition = ?"
)


def delete_records(
    unit: Unit, partition: Partition, before_offset: int, config: TopicConfig, now_ms: int
) -> tuple[int, int]:
    """Kafka's DeleteRecords: advance the log start to `before_offset` (-1: the high watermark), by at
    most 50,000 records. Returns the log start offset and the target. Raises OffsetOutOfRangeError beyond
    the high watermark, and PolicyViolationError for a topic with cleanup.policy=compact."""
    if config.compact and not config.delete:
        raise PolicyViolationError(
            f"{partition.topic_partition}: cleanup.policy is compact, records are not deleted by "
            "offset; add delete to the policy first"
        )
    target = partition.log_end_offset if before_offset == -1 else before_offset
    if target > partition.log_end_offset or target < 0:
        raise OffsetOutOfRangeError(
            f"{partition.topic_partition}: got offset {before_offset}, expected -1 or an offset up to the "
            f"high watermark {partition.log_end_offset}"
        )
    if target <= partition.log_start_offset:
        return partition.log_start_offset, partition.log_start_offset
    reached = min(target, _end_of_move(unit, partition, _ROWS_PER_REQUEST))
    move_log_start(unit, partition, reached, "delete_records", now_ms)
    return reached, target


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
            cleaned_sum=checksum.between(
                unit,
                partition.partition_id,
                partition.log_start_offset,
                min(log_start_offset, partition.clean_offset),
            ),
        )
    )


def condition(config: TopicConfig, now_ms: int) -> tuple[str, list[int]] | None:
    """The SQL condition, with its parameters, that a partition with these settings meets if retention
    demands another log start. None if it never does."""
    ways: list[str] = []
    limits: list[int] = []
    if config.delete and config.retention_ms >= 0:
        ways.append(f"NOT {_MAY_STAY}")
        limits += [now_ms - config.retention_ms] * 2
    if config.delete and config.retention_bytes >= 0:
        ways.append("size_bytes > ?")
        limits.append(config.retention_bytes)
    return (f"({' OR '.join(ways)})", limits) if ways else None


def due_log_start(
    connection: Unit | sqlite3.Connection, partition: Partition, config: TopicConfig, now_ms: int
) -> tuple[int, str] | None:
    """Return the log start that retention demands, at most ROWS_PER_MOVE further, and the setting:
    retention.ms or retention.bytes. None if nothing changes. Call again after the move."""
    if not config.delete:
        return None
    end = _end_of_move(connection, partition, ROWS_PER_MOVE)
    by_time = _by_time(connection, partition, end, config.retention_ms, now_ms)
    by_size = _by_size(connection, partition, end, config.retention_bytes)
    target, reason = max((by_time, "retention.ms"), (by_size, "retention.bytes"))
    if partition.topic.startswith(POSTPONED):
        # decisions/0091: a postponed record stays until its group has handled it.
        (handled,) = connection.execute(_HANDLED, partition.topic_partition).fetchone()
        target = min(target, handled or 0)
    return (target, reason) if target > partition.log_start_offset else None


def _end_of_move(connection: Unit | sqlite3.Connection, partition: Partition, rows: int) -> int:
    row = connection.execute(
        'SELECT "offset" FROM records WHERE partition_id = ? AND "offset" >= ? '
        'ORDER BY "offset" LIMIT 1 OFFSET ?',
        (partition.partition_id, partition.log_start_offset, rows),
    ).fetchone()
    return partition.log_end_offset if row is None else int(row[0])


def _by_time(
    connection: Unit | sqlite3.Connection,
    partition: Partition,
    end: int,
    retention_ms: int,
    now_ms: int,
) -> int:
    """Return the first offset before `end` whose record is young enough to stay."""
    if retention_ms < 0 or partition.log_start_offset == partition.log_end_offset:
        return partition.log_start_offset
    oldest_ms = now_ms - retention_ms
    row = connection.execute(
        'SELECT "offset" FROM records WHERE partition_id = ? AND "offset" >= ? AND "offset" < ? '
        f'AND timestamp >= ? AND {OLDER_TIME} >= ? ORDER BY "offset" LIMIT 1',
        (partition.partition_id, partition.log_start_offset, end, oldest_ms, oldest_ms),
    ).fetchone()
    return end if row is None else int(row[0])


def _by_size(
    connection: Unit | sqlite3.Connection, partition: Partition, end: int, retention_bytes: int
) -> int:
    """Return the first offset of the newest records before `end` that fit into `retention_bytes`."""
    excess = partition.size_bytes - retention_bytes
    if retention_bytes < 0 or excess <= 0:
        return partition.log_start_offset
    for offset, size in connection.execute(
        f'SELECT "offset", {STORED_SIZE} FROM records WHERE partition_id = ? AND "offset" >= ? '
        'AND "offset" < ? ORDER BY "offset"',
        (partition.partition_id, partition.log_start_offset, end),
    ):
        if size > excess:
            return int(offset)
        excess -= size
        if excess <= 0:
            return int(offset) + 1
    return end


def cut_index(unit: Unit, partition_id: int, now_ms: int) -> int:
    """Cut the transaction index at the log start. Returns 1 if there was something to cut, otherwise 0."""
    partition = find_by_id(unit, partition_id)
    below = f"SELECT 1 FROM partitions WHERE partition_id = ? AND {INDEX_BELOW}"
    if partition is None or unit.execute(below, (partition_id,)).fetchone() is None:
        return 0
    move_log_start(unit, partition, partition.log_start_offset, "transaction index", now_ms)
    return 1


def orphans(connection: sqlite3.Connection) -> list[int]:
    """The deleted partitions that still have rows, by a skip scan over the index."""
    return [partition_id for (partition_id,) in connection.execute(_ORPHANS)]


def delete_in_parts(
    write: Callable[[Callable[[Unit], int]], int], partition_ids: Sequence[int]
) -> Iterator[None]:
    """Delete the rows below the log start of these partitions, or all rows of deleted partitions, in
    bounded parts, each in a unit of `write`. Yields after each."""
    for first in range(0, len(partition_ids), STEPS_PER_UNIT):
        some = partition_ids[first : first + STEPS_PER_UNIT]
        while write(functools.partial(_delete_rows, partition_ids=some)):
            yield


def _delete_rows(unit: Unit, partition_ids: Sequence[int]) -> int:
    """Delete some rows of these partitions. Returns how many; 0 when none is left."""
    deleted, room = 0, BYTES_PER_UNIT
    for partition_id in partition_ids:
        partition = find_by_id(unit, partition_id)
        below = 2**63 - 1 if partition is None else partition.log_start_offset
        rows, size = _delete(unit, partition_id, below, ROWS_PER_UNIT - deleted, room)
        deleted, room = deleted + rows, room - size
        if deleted == ROWS_PER_UNIT or room <= 0:
            break
    return deleted


def _delete(unit: Unit, partition_id: int, below: int, rows: int, room: int) -> tuple[int, int]:
    """Delete the partition's first rows: at most `rows`, of at most `room` bytes. Returns their number
    and size."""
    assert 0 < rows <= ROWS_PER_UNIT, rows
    assert 0 < room <= BYTES_PER_UNIT, room
    last, size = -1, 0
    for offset, stored in unit.execute(
        f'SELECT "offset", {STORED_SIZE} FROM records WHERE partition_id = ? AND "offset" < ? '
        'ORDER BY "offset" LIMIT ?',
        (partition_id, below, rows),
    ):
        last, size = offset, size + stored
        if size >= room:
            break
    if last < 0:
        return 0, 0
    deleted = unit.execute(
        'DELETE FROM records WHERE partition_id = ? AND "offset" <= ? RETURNING "offset", position',
        (partition_id, last),
    ).fetchall()
    baseline.forget_events(unit, partition_id, deleted)
    return len(deleted), size
