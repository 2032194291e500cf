"""Key compaction: the newest committed record of each key is retained, and offsets do not change.

The rules are those of Kafka's LogCleaner, per record instead of per segment. Only records below the last
stable offset and older than min.compaction.lag.ms are compacted. Aborted data is removed and supersedes
nothing.

A tombstone, or a marker without data, stays for delete.retention.ms after the first pass that met it, and
a later pass removes it. So a read_committed reader misses nothing. A scheduled record that was delivered or
cancelled is removed `retention.ms` after its due time, so that a restore still finds it.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from eosdb.events.kinds import LogCleaned
from eosdb.log import checksum
from eosdb.log.batch import OLDER_TIME, STORED_SIZE
from eosdb.log.partition_rows import Partition
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.topic_config import TopicConfig
from eosdb.store import baseline
from eosdb.store.writing.unit import Unit

_CANDIDATES: Final = f"""
CREATE TEMP TABLE candidates AS
SELECT
    r.partition_id, r."offset", r.timestamp, r.key,
    r.value IS NULL AND r.control IS NULL AS tombstone, r.control,
    {STORED_SIZE} AS size,
    r.is_transactional AND r.control IS NULL AND COALESCE(
        (
            SELECT a.first_offset <= r."offset" FROM transaction_index a
            WHERE a.partition_id = r.partition_id AND a.producer_id = r.producer_id
                AND a.last_offset > r."offset"
            ORDER BY a.last_offset LIMIT 1
        ),
        0
    ) AS aborted,
    r.control IS NOT NULL AND lag(r.control IS NULL, 1, 0)
        OVER (PARTITION BY r.producer_id, r.is_transactional ORDER BY r."offset") = 0
        AS empty_marker
FROM records r
WHERE r.partition_id = ? AND r."offset" >= ? AND r."offset" < ?
"""
_NEWEST: Final = """
CREATE TEMP TABLE newest AS
SELECT key, max("offset") AS "offset" FROM candidates
WHERE control IS NULL AND NOT aborted GROUP BY key
"""
_DOOMED: Final = """
CREATE TEMP TABLE doomed AS
SELECT c."offset", c.size, h."offset" AS horizon FROM candidates c
LEFT JOIN newest n ON n.key = c.key
LEFT JOIN (
    SELECT "offset", since <= ? AS is_over FROM delete_horizons WHERE partition_id = ?
) h ON h."offset" = c."offset"
WHERE CASE
    WHEN ? THEN c.timestamp NOT BETWEEN ? AND ? AND NOT EXISTS (
        SELECT 1 FROM eosdb_scheduled s WHERE s.partition_id = c.partition_id AND s."offset" = c."offset"
    )
    WHEN c.control IS NOT NULL THEN c.empty_marker AND h.is_over
    WHEN c.aborted THEN 1
    WHEN c."offset" < n."offset" THEN 1
    ELSE c.tombstone AND h.is_over
END
"""
_NEW_HORIZONS: Final = """
SELECT c."offset" FROM candidates c
LEFT JOIN delete_horizons h ON h.partition_id = ? AND h."offset" = c."offset"
LEFT JOIN doomed d ON d."offset" = c."offset"
WHERE d."offset" IS NULL AND h."offset" IS NULL AND (c.tombstone OR c.empty_marker)
ORDER BY c."offset"
"""
_UNINDEXED: Final = """
SELECT timestamp FROM (
    SELECT partition_id, timestamp, "offset",
        lag("offset", 1, 0) OVER (ORDER BY timestamp) AS before
    FROM time_index WHERE partition_id = ?
) t
WHERE t."offset" <= ? AND NOT EXISTS (
    SELECT 1 FROM records r WHERE r.partition_id = t.partition_id
    AND r."offset" >= t.before AND r."offset" < t."offset"
    AND NOT EXISTS (SELECT 1 FROM doomed d WHERE d."offset" = r."offset")
)
ORDER BY timestamp LIMIT 5000
"""
_FROM_DOOMED: Final = (
    'FROM records WHERE partition_id = ? AND "offset" IN (SELECT "offset" FROM doomed)'
)
_REMOVED: Final = f'SELECT "offset", checksum {_FROM_DOOMED}'
_HORIZON_REACHED: Final = (
    "SELECT 1 FROM delete_horizons WHERE partition_id = ? AND since <= ? LIMIT 1"
)
_DELIVERED: Final = "SELECT 1 FROM records WHERE partition_id = ? AND timestamp <= ? LIMIT 1"
_TEMPORARY: Final = ("candidates", "newest", "doomed")


def applies(partition: Partition, config: TopicConfig) -> bool:
    return config.compact or partition.partition < 0


def _horizon(partition: Partition, config: TopicConfig, now_ms: int) -> int:
    if partition.partition >= 0:
        return now_ms - config.delete_retention_ms
    return now_ms - config.retention_ms if config.retention_ms >= 0 else -1


def clean(unit: Unit, partition: Partition, config: TopicConfig, now_ms: int) -> int:
    """Run a pass over the partition if one is due. Returns the number of removed records."""
    if not is_due(unit, partition, config, now_ms):
        return 0
    end = _clean_end(unit, partition, config, now_ms)
    partition_id, horizon = partition.partition_id, _horizon(partition, config, now_ms)
    for table in _TEMPORARY:
        unit.execute(f"DROP TABLE IF EXISTS temp.{table}")
    unit.execute(_CANDIDATES, (partition_id, partition.log_start_offset, end))
    unit.execute(_NEWEST)
    unit.execute("CREATE INDEX temp.newest_key ON newest (key)")
    is_scheduled = partition.partition < 0
    unit.execute(_DOOMED, (horizon, partition_id, is_scheduled, horizon + 1, now_ms))
    unit.execute('CREATE UNIQUE INDEX temp.doomed_offset ON doomed ("offset")')
    removed, size = unit.execute("SELECT count(*), COALESCE(sum(size), 0) FROM doomed").fetchone()
    horizons = tuple(offset for (offset,) in unit.execute(_NEW_HORIZONS, (partition_id,)))
    expired = tuple(
        offset
        for (offset,) in unit.execute(
            'SELECT horizon FROM doomed WHERE horizon IS NOT NULL ORDER BY "offset"'
        )
    )
    unindexed = tuple(timestamp for (timestamp,) in unit.execute(_UNINDEXED, (partition_id, end)))
    if removed or horizons or end > partition.clean_offset:
        unit.record(
            LogCleaned(
                timestamp=now_ms,
                topic=partition.topic,
                partition=partition.partition,
                partition_id=partition_id,
                clean_offset=end,
                removed=removed,
                size=size,
                horizons=horizons,
                expired_horizons=expired,
                unindexed=unindexed,
                passed_sum=_passed_sum(unit, partition, end),
                removed_sum=checksum.of(unit.execute(_REMOVED, (partition_id,))),
            )
        )
        deleted = unit.execute(
            f'DELETE {_FROM_DOOMED} RETURNING "offset", position', (partition_id,)
        ).fetchall()
        baseline.forget_events(unit, partition_id, deleted)
        reach(Failpoint.COMPACTION_CLEANED)
    for table in _TEMPORARY:
        unit.execute(f"DROP TABLE temp.{table}")
    return int(removed)


# decisions/0074: an event stores sums of the passed and the removed records, so the rest can be checked.
def _passed_sum(unit: Unit, partition: Partition, end: int) -> int:
    """Return the sum of the records that no earlier pass has counted."""
    first = max(partition.clean_offset, partition.log_start_offset)
    return checksum.between(unit, partition.partition_id, first, max(end, partition.clean_offset))


def is_due(
    connection: Unit | sqlite3.Connection, partition: Partition, config: TopicConfig, now_ms: int
) -> bool:
    """Whether there is new data since the last pass, or a delete horizon has been reached."""
    if not applies(partition, config):
        return False
    end = _clean_end(connection, partition, config, now_ms)
    if end <= partition.log_start_offset or end > partition.clean_offset:
        return end > partition.log_start_offset
    horizon = (partition.partition_id, _horizon(partition, config, now_ms))
    query = _DELIVERED if partition.partition < 0 else _HORIZON_REACHED
    return connection.execute(query, horizon).fetchone() is not None


def _clean_end(
    connection: Unit | sqlite3.Connection, partition: Partition, config: TopicConfig, now_ms: int
) -> int:
    """Return the end of the pass: the first record that is too young, or the last stable offset."""
    if config.min_compaction_lag_ms == 0 or partition.partition < 0:
        return partition.last_stable_offset
    newest_ms = now_ms - config.min_compaction_lag_ms
    row = connection.execute(
        'SELECT "offset" FROM records WHERE partition_id = ? AND "offset" >= ? AND "offset" < ? '
        f'AND timestamp > ? AND {OLDER_TIME} > ? ORDER BY "offset" LIMIT 1',
        (
            partition.partition_id,
            partition.log_start_offset,
            partition.last_stable_offset,
            newest_ms,
            newest_ms,
        ),
    ).fetchone()
    return partition.last_stable_offset if row is None else int(row[0])
