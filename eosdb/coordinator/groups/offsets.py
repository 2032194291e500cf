"""Consumer offsets of groups, outside and inside transactions.

An offset sent to a transaction is pending: invisible until the transaction commits, dropped when it
aborts. When both a plain and a pending commit exist, the later *request* wins, not the later marker
(Kafka: OffsetMetadataManager.replayEndTransactionMarker).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from eosdb.errors import (
    ApiError,
    GroupIdNotFoundError,
    InvalidRequestError,
    OffsetMetadataTooLargeError,
    UnstableOffsetCommitError,
)
from eosdb.events.kinds import OffsetCommit, OffsetsDeleted
from eosdb.log import partition_rows
from eosdb.model.config import BrokerConfig
from eosdb.model.validation import check_int, check_mapping, check_text, check_topic_partition
from eosdb.model.values import GroupState, OffsetAndMetadata, TopicPartition
from eosdb.store.writing.unit import STEPS_PER_UNIT, Memo, Unit

OWN: Final = "__eosdb."
"""Groups whose offsets are eosdb's own notes; they never expire."""
NOTES: Final = "__eosdb"
"""Those, and the ones in which a relay shows how far it is."""
_PUT: Final = (
    "INSERT INTO group_offsets (group_id, topic, partition, committed_offset, leader_epoch, "
    "metadata, commit_timestamp, commit_position, retain_from) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (group_id, topic, partition) DO UPDATE SET "
    "committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch, "
    "metadata = excluded.metadata, commit_timestamp = excluded.commit_timestamp, "
    "commit_position = excluded.commit_position, retain_from = excluded.retain_from "
    "WHERE excluded.commit_position > commit_position"
)
_EXPIRABLE: Final = """
    FROM group_offsets g
    WHERE g.retain_from IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM pending_group_offsets p
        WHERE p.group_id = g.group_id AND p.topic = g.topic AND p.partition = g.partition
    )
"""
OLDEST: Final = f"SELECT g.retain_from {_EXPIRABLE} ORDER BY g.retain_from LIMIT 1"
"""When retention began for the offset that expires next."""
_EXPIRED: Final = (
    f"SELECT g.group_id, g.topic, g.partition {_EXPIRABLE} AND g.retain_from <= ? "
    f"ORDER BY g.retain_from LIMIT {STEPS_PER_UNIT}"
)
_IDLE: Final = f"""
    SELECT group_id FROM groups g
    WHERE state = '{GroupState.EMPTY.value}'
        AND NOT EXISTS (SELECT 1 FROM group_offsets o WHERE o.group_id = g.group_id)
        AND NOT EXISTS (SELECT 1 FROM pending_group_offsets p WHERE p.group_id = g.group_id)
"""
_PEND: Final = (
    "INSERT OR REPLACE INTO pending_group_offsets (producer_id, producer_epoch, group_id, topic, "
    'partition, "offset", leader_epoch, metadata, commit_timestamp, commit_position) '
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


P = TypeVar("P", OffsetCommit, TopicPartition)
Refused = dict[TopicPartition, ApiError]
"""What is refused partition by partition, as Kafka's answers have it."""


@dataclass(slots=True)
class _OffsetMemo(Memo):
    nothing_pending: set[int] = field(default_factory=set)
    """Producers without pending offsets."""


def check_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], refused: Refused | None = None
) -> tuple[OffsetCommit, ...]:
    """The offsets as an event has them. Raises InvalidRequestError and UnknownTopicOrPartitionError for
    values that cannot be offsets. Who asks partition by partition, as clients of Kafka do, may have Kafka
    keep any number; every client takes one below 0 for none."""
    lowest = 0 if refused is None else -(2**63)
    commits = []
    for key, value in check_mapping("offsets", offsets).items():
        tp = check_topic_partition(key)
        if not isinstance(value, OffsetAndMetadata):
            raise InvalidRequestError(f"{tp}: got {value!r:.80}, expected OffsetAndMetadata")
        check_int(f"{tp}: offset", value.offset, lowest)
        check_int(f"{tp}: leader_epoch", value.leader_epoch, -1)
        check_text(f"{tp}: metadata", value.metadata)
        commits.append(OffsetCommit.of(tp, value))
    return tuple(commits)


def accepted(
    items: Iterable[P], check: Callable[[P], object], refused: Refused | None
) -> tuple[P, ...]:
    """The offsets or partitions that `check` raises no ApiError for. It is noted in `refused`; raised where
    that is None: all or nothing."""
    found = []
    for item in items:
        try:
            check(item)
        except ApiError as error:
            if refused is None:
                raise
            refused[TopicPartition(*item[:2])] = error
        else:
            found.append(item)
    return tuple(found)


def check_exists(unit: Unit, item: OffsetCommit | TopicPartition) -> None:
    """Raises UnknownTopicOrPartitionError."""
    partition_rows.load(unit, TopicPartition(item.topic, item.partition))


def check_metadata(commit: OffsetCommit, config: BrokerConfig) -> None:
    """Raises OffsetMetadataTooLargeError."""
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
    retain_from = None if _is_kept(unit, group_id) else timestamp
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
                retain_from,
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
    unit.memos[_OffsetMemo].nothing_pending.discard(producer_id)
    unit.executemany(
        _PEND,
        [
            (producer_id, producer_epoch, group_id, *c[:3], c.leader_epoch, c.metadata, timestamp,
             position)
            for c in offsets
        ],
    )  # fmt: skip


def complete_pending(unit: Unit, producer_id: int, *, committed: bool) -> None:
    """Projection only: the producer's transaction has ended."""
    if producer_id in unit.memos[_OffsetMemo].nothing_pending:
        return
    if committed:
        rows = unit.execute(
            'SELECT group_id, topic, partition, "offset", leader_epoch, metadata, '
            "commit_timestamp, commit_position FROM pending_group_offsets WHERE producer_id = ?",
            (producer_id,),
        ).fetchall()
        kept = {group_id: _is_kept(unit, group_id) for group_id in {row[0] for row in rows}}
        unit.executemany(_PUT, [(*row, None if kept[row[0]] else row[6]) for row in rows])
    unit.execute("DELETE FROM pending_group_offsets WHERE producer_id = ?", (producer_id,))
    unit.memos[_OffsetMemo].nothing_pending.add(producer_id)


def retain(unit: Unit, group_id: str, since_ms: int | None) -> None:
    """Projection only: the group became empty at `since_ms`, or (None) has members."""
    if since_ms is None:
        unit.execute(
            "UPDATE group_offsets SET retain_from = NULL "
            "WHERE group_id = ? AND retain_from IS NOT NULL",
            (group_id,),
        )
    elif not group_id.startswith(OWN):
        unit.execute(
            "UPDATE group_offsets SET retain_from = max(commit_timestamp, ?) WHERE group_id = ?",
            (since_ms, group_id),
        )


def _is_kept(unit: Unit, group_id: str) -> bool:
    """Whether the group's offsets do not expire: it has members, or is eosdb's own."""
    if group_id.startswith(OWN):
        return True
    return bool(
        unit.execute(
            "SELECT 1 FROM groups WHERE group_id = ? AND state <> ?",
            (group_id, GroupState.EMPTY.value),
        ).fetchone()
    )


def forget(unit: Unit, group_id: str, tps: Iterable[TopicPartition]) -> None:
    """Projection only: a tombstone removes the committed and the pending offset."""
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
    refused: Refused | None = None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The group's committed offsets; a partition without one is absent.

    UnstableOffsetCommitError when an asked partition has a pending offset is raised, or noted in `refused`;
    without `asked` only partitions with a committed offset count.
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
                error = UnstableOffsetCommitError(
                    f"group {group_id!r}: a transaction that has not ended holds an offset of {tp}; "
                    "ask again when it has"
                )
                if refused is None:
                    raise error
                refused[tp] = error
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
    """Remove offsets past their retention, counted from the commit or from when the group's last member
    left (OffsetExpirationConditionImpl). A group left without members and offsets is removed, too.

    Returns how many offsets.
    """
    rows = unit.execute(_EXPIRED, (now_ms - retention_ms,)).fetchall()
    by_group: dict[str, list[TopicPartition]] = {}
    for group_id, topic, partition in rows:
        by_group.setdefault(group_id, []).append(TopicPartition(topic, partition))
    for group_id, tps in sorted(by_group.items()):
        reason = "expired" if _has_more(unit, group_id, len(tps)) else "group expired"
        unit.record(
            OffsetsDeleted(
                timestamp=now_ms, group_id=group_id, partitions=tuple(sorted(tps)), reason=reason
            )
        )
    return len(rows)


def idle_groups(connection: sqlite3.Connection) -> list[str]:
    """Groups with neither members nor offsets (GroupMetadataManager.maybeDeleteGroup): those that never
    committed, and those whose topics were deleted."""
    return [group_id for (group_id,) in connection.execute(_IDLE)]


def forget_idle(unit: Unit, group_id: str, now_ms: int) -> int:
    """Remove such a group, if it still is one. Returns how many were removed."""
    if unit.execute(f"{_IDLE} AND group_id = ?", (group_id,)).fetchone() is None:
        return 0
    unit.record(
        OffsetsDeleted(timestamp=now_ms, group_id=group_id, partitions=(), reason="group expired")
    )
    return 1


def _has_more(unit: Unit, group_id: str, count: int) -> bool:
    """Whether the group has more than `count` offsets, committed or pending."""
    (found,) = unit.execute(
        "SELECT (SELECT count(*) FROM group_offsets WHERE group_id = ?) + "
        "(SELECT count(*) FROM pending_group_offsets WHERE group_id = ?)",
        (group_id, group_id),
    ).fetchone()
    return int(found) > count
