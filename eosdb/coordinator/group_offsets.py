"""Consumer offsets of groups, outside and inside transactions.

An offset sent to a transaction is pending: invisible until the transaction commits, dropped when it
aborts. When both a plain and a pending commit exist, the later *request* wins, not the later marker
(Kafka: OffsetMetadataManager.replayEndTransactionMarker).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from eosdb.config import BrokerConfig
from eosdb.errors import (
    GroupIdNotFoundError,
    InvalidRequestError,
    OffsetMetadataTooLargeError,
    UnstableOffsetCommitError,
)
from eosdb.events import OffsetCommit, OffsetsDeleted
from eosdb.log import partitions
from eosdb.model import OffsetAndMetadata, TopicPartition
from eosdb.store.unit import Unit
from eosdb.validation import check_int, check_mapping, check_text, check_topic_partition

_PUT: Final = (
    "INSERT INTO group_offsets (group_id, topic, partition, committed_offset, leader_epoch, "
    "metadata, commit_timestamp, commit_position) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (group_id, topic, partition) DO UPDATE SET "
    "committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch, "
    "metadata = excluded.metadata, commit_timestamp = excluded.commit_timestamp, "
    "commit_position = excluded.commit_position "
    "WHERE excluded.commit_position > commit_position"
)
OLDEST: Final = """
    SELECT g.commit_timestamp FROM group_offsets g
    WHERE substr(g.group_id, 1, 8) <> '__eosdb.' AND NOT EXISTS (
        SELECT 1 FROM pending_group_offsets p
        WHERE p.group_id = g.group_id AND p.topic = g.topic AND p.partition = g.partition
    )
    ORDER BY g.commit_timestamp LIMIT 1
"""
"""The commit time of the offset that expires next."""
_PEND: Final = (
    "INSERT OR REPLACE INTO pending_group_offsets (producer_id, producer_epoch, group_id, topic, "
    'partition, "offset", leader_epoch, metadata, commit_timestamp, commit_position) '
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def check_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> tuple[OffsetCommit, ...]:
    """The offsets as an event carries them. Raises InvalidRequestError and
    UnknownTopicOrPartitionError for values that can be no offsets."""
    commits = []
    for key, value in check_mapping("offsets", offsets).items():
        tp = check_topic_partition(key)
        if not isinstance(value, OffsetAndMetadata):
            raise InvalidRequestError(f"{tp}: got {value!r:.80}, expected OffsetAndMetadata")
        check_int(f"{tp}: offset", value.offset, 0)
        check_int(f"{tp}: leader_epoch", value.leader_epoch, -1)
        check_text(f"{tp}: metadata", value.metadata)
        commits.append(OffsetCommit.of(tp, value))
    return tuple(commits)


def check_stored(unit: Unit, offsets: Sequence[OffsetCommit], config: BrokerConfig) -> None:
    """Raises UnknownTopicOrPartitionError and OffsetMetadataTooLargeError; all or nothing."""
    for commit in offsets:
        partitions.load(unit, TopicPartition(commit.topic, commit.partition))
        size = len(commit.metadata.encode())
        if size > config.offset_metadata_max_bytes:
            raise OffsetMetadataTooLargeError(
                f"{commit.topic}-{commit.partition}: the metadata has {size} bytes, "
                f"offset.metadata.max.bytes is {config.offset_metadata_max_bytes}"
            )


def exists(connection: Unit | sqlite3.Connection, group_id: str) -> bool:
    return any(
        connection.execute(
            f"SELECT 1 FROM {table} WHERE group_id = ? LIMIT 1", (group_id,)
        ).fetchone()
        for table in ("group_offsets", "pending_group_offsets", "groups")
    )


def put(
    unit: Unit, group_id: str, offsets: Iterable[OffsetCommit], timestamp: int, position: int
) -> None:
    """Projection only: committed offsets."""
    unit.executemany(
        _PUT,
        [
            (
                group_id,
                c.topic,
                c.partition,
                c.offset,
                c.leader_epoch,
                c.metadata,
                timestamp,
                position,
            )
            for c in offsets
        ],
    )


def pend(
    unit: Unit,
    producer_id: int,
    producer_epoch: int,
    group_id: str,
    offsets: Iterable[OffsetCommit],
    timestamp: int,
    position: int,
) -> None:
    """Projection only: offsets inside a transaction."""
    unit.executemany(
        _PEND,
        [
            (producer_id, producer_epoch, group_id, *c[:3], c.leader_epoch, c.metadata, timestamp,
             position)
            for c in offsets
        ],
    )  # fmt: skip


def settle_pending(unit: Unit, producer_id: int, *, committed: bool) -> None:
    """Projection only: the producer's transaction has ended."""
    if committed:
        rows = unit.execute(
            'SELECT group_id, topic, partition, "offset", leader_epoch, metadata, '
            "commit_timestamp, commit_position FROM pending_group_offsets WHERE producer_id = ?",
            (producer_id,),
        ).fetchall()
        unit.executemany(_PUT, rows)
    unit.execute("DELETE FROM pending_group_offsets WHERE producer_id = ?", (producer_id,))


def forget(unit: Unit, group_id: str, tps: Iterable[TopicPartition]) -> None:
    """Projection only: a tombstone takes the committed and the pending offset."""
    for table in ("group_offsets", "pending_group_offsets"):
        unit.executemany(
            f"DELETE FROM {table} WHERE group_id = ? AND topic = ? AND partition = ?",
            [(group_id, *tp) for tp in tps],
        )


def forget_topic(unit: Unit, topic: str) -> None:
    """Projection only: the topic has been deleted."""
    for table in ("group_offsets", "pending_group_offsets"):
        unit.execute(f"DELETE FROM {table} WHERE topic = ?", (topic,))


def fetch(
    connection: sqlite3.Connection,
    group_id: str,
    asked: Sequence[TopicPartition] | None,
    *,
    require_stable: bool,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The group's committed offsets; a partition without one is absent.

    Raises UnstableOffsetCommitError when an asked partition has a pending offset; without `asked`
    only partitions that have a committed offset are looked at.
    """
    found = {
        TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata, leader_epoch)
        for topic, partition, offset, metadata, leader_epoch in connection.execute(
            "SELECT topic, partition, committed_offset, metadata, leader_epoch FROM group_offsets "
            "WHERE group_id = ? ORDER BY topic, partition",
            (group_id,),
        )
        if asked is None or (topic, partition) in asked
    }
    if require_stable:
        for topic, partition in connection.execute(
            "SELECT topic, partition FROM pending_group_offsets WHERE group_id = ?", (group_id,)
        ):
            tp = TopicPartition(topic, partition)
            if tp in (found if asked is None else asked):
                raise UnstableOffsetCommitError(
                    f"group {group_id!r}: a transaction that has not ended holds an offset of {tp}; "
                    "ask again when it has"
                )
    return found


def delete(
    unit: Unit, group_id: str, tps: Sequence[TopicPartition] | None, reason: str, now_ms: int
) -> None:
    """Delete offsets of the group (None: all). Raises GroupIdNotFoundError."""
    if not exists(unit, group_id):
        raise GroupIdNotFoundError(f"there is no group {group_id!r}")
    if tps is None:
        tps = [
            TopicPartition(*row)
            for row in unit.execute(
                "SELECT topic, partition FROM group_offsets WHERE group_id = ? UNION "
                "SELECT topic, partition FROM pending_group_offsets WHERE group_id = ?",
                (group_id, group_id),
            )
        ]
    unit.record(
        OffsetsDeleted(timestamp=now_ms, group_id=group_id, partitions=tuple(tps), reason=reason)
    )


def expire(unit: Unit, now_ms: int, retention_ms: int) -> int:
    """Forget offsets committed so long ago, unless a transaction holds a new one. Returns how
    many."""
    rows = unit.execute(
        """
        SELECT g.group_id, g.topic, g.partition FROM group_offsets g
        WHERE g.commit_timestamp <= ? AND substr(g.group_id, 1, 8) <> '__eosdb.'
        AND NOT EXISTS (
            SELECT 1 FROM pending_group_offsets p
            WHERE p.group_id = g.group_id AND p.topic = g.topic AND p.partition = g.partition
        )
        ORDER BY g.group_id LIMIT 10000
        """,
        (now_ms - retention_ms,),
    ).fetchall()
    by_group: dict[str, list[TopicPartition]] = {}
    for group_id, topic, partition in rows:
        by_group.setdefault(group_id, []).append(TopicPartition(topic, partition))
    for group_id, tps in by_group.items():
        unit.record(
            OffsetsDeleted(
                timestamp=now_ms, group_id=group_id, partitions=tuple(tps), reason="expired"
            )
        )
    return len(rows)
