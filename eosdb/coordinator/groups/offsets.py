"""The committed offsets of groups, and the pending ones of open transactions.

A pending offset is invisible until its transaction commits, and dropped if it aborts. If offsets are also
committed outside of transactions, the later *request* wins, not the later marker (Kafka:
OffsetMetadataManager.replayEndTransactionMarker).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from eosdb.errors import (
    ApiError,
    GroupIdNotFoundError,
    InvalidRequestError,
    OffsetMetadataTooLargeError,
    UnstableOffsetCommitError,
)
from eosdb.events.kinds import (
    OffsetCommit,
    OffsetsCommitted,
    OffsetsDeleted,
    TopicDeleted,
    TxnOffsetsCommitted,
)
from eosdb.model import finished
from eosdb.model.config import INT32_MAX, BrokerConfig
from eosdb.model.requests import OffsetErrors
from eosdb.model.validation import check_int, check_mapping, check_text, check_topic_partition
from eosdb.model.values import GroupState, OffsetAndMetadata, TopicPartition
from eosdb.store.schema.newest import Statement
from eosdb.store.writing.table import Table
from eosdb.store.writing.unit import STEPS_PER_UNIT, TRANSACTIONS, Folding, Memo, Unit

OWN: Final = "__eosdb."
"""Prefix of groups with eosdb's own positions; their offsets never expire."""
NOTES: Final = "__eosdb"
"""Prefix of the groups with eosdb's own positions, and of relays' progress groups."""
_OFFSETS: Final = Table(
    "group_offsets",
    "group_id topic partition committed_offset leader_epoch metadata commit_timestamp "
    "commit_position retain_from",
    "group_id topic partition",
)
_PUT: Final = _OFFSETS.upsert("excluded.commit_position > commit_position")
_EXPIRABLE: Final = """
    FROM group_offsets g
    WHERE g.retain_from IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM pending_group_offsets p
        WHERE p.group_id = g.group_id AND p.topic = g.topic AND p.partition = g.partition
    )
"""
OLDEST: Final = f"SELECT g.retain_from {_EXPIRABLE} ORDER BY g.retain_from LIMIT 1"
"""SQL: the start of the retention of the offset that expires next."""
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
_PENDING: Final = Table(
    "pending_group_offsets",
    "producer_id producer_epoch group_id topic partition offset leader_epoch metadata "
    "commit_timestamp commit_position",
    "producer_id group_id topic partition",
)
_OF_PRODUCER: Final = _PENDING.where("producer_id = ?")
_END_PENDING: Final = _PENDING.deletion("producer_id = ?")
_END_RETENTION: Final = _OFFSETS.set(
    "retain_from = NULL", "group_id = ? AND retain_from IS NOT NULL"
)
# decisions/0093: a processor's offsets do not expire, because its results would be doubled.
_BEGIN_RETENTION: Final = _OFFSETS.set(
    "retain_from = max(commit_timestamp, ?)",
    f"group_id = ? AND NOT metadata GLOB '{finished.GLOB}'",
)
_STANDING: Final = (
    "SELECT committed_offset, metadata FROM group_offsets "
    "WHERE group_id = ? AND topic = ? AND partition = ?"
)
_HAS_MEMBERS: Final = Statement("SELECT 1 FROM {groups} WHERE group_id = ? AND state <> ?")
_FORGET: Final = (
    _OFFSETS.delete, _PENDING.deletion("group_id = ? AND topic = ? AND partition = ?"),
)  # fmt: skip
_FORGET_TOPIC: Final = _OFFSETS.deletion("topic = ?"), _PENDING.deletion("topic = ?")


P = TypeVar("P", OffsetCommit, TopicPartition)


@dataclass(slots=True)
class _OffsetMemo(Memo):
    nothing_pending: set[int] = field(default_factory=set)
    """Producer ids without pending offsets."""
    survives = TRANSACTIONS


def check_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], lowest: int = 0
) -> tuple[OffsetCommit, ...]:
    """The offsets in the form of an event. Raises InvalidRequestError and UnknownTopicOrPartitionError for
    invalid values and for offsets below `lowest`."""
    commits = []
    for key, value in check_mapping("offsets", offsets).items():
        tp = check_topic_partition(key)
        if not isinstance(value, OffsetAndMetadata):
            raise InvalidRequestError(f"{tp}: got {value!r:.80}, expected OffsetAndMetadata")
        check_int(f"{tp}: offset", value.offset, lowest)
        check_int(f"{tp}: leader_epoch", value.leader_epoch, -1, INT32_MAX)
        check_text(f"{tp}: metadata", value.metadata)
        commits.append(OffsetCommit.of(tp, value))
    return tuple(commits)


def judged(items: Iterable[P], check: Callable[[P], object], *, each: bool) -> OffsetErrors:
    """Check the items. Returns the error or None for each; without `each`, the first error is raised."""
    errors: OffsetErrors = {}
    for item in items:
        error: ApiError | None = None
        try:
            check(item)
        except ApiError as refusal:
            if not each:
                raise
            error = refusal
        errors[TopicPartition(*item[:2])] = error
    return errors


def passed(items: Iterable[P], errors: OffsetErrors) -> tuple[P, ...]:
    return tuple(item for item in items if errors[TopicPartition(*item[:2])] is None)


def check_metadata(commit: OffsetCommit, config: BrokerConfig) -> None:
    """Raise OffsetMetadataTooLargeError if the metadata is longer than the broker accepts."""
    size, most = len(commit.metadata.encode()), config.offset_metadata_max_bytes
    if size > most and not (size <= finished.SIZE_MAX and finished.is_processors(commit.metadata)):
        raise OffsetMetadataTooLargeError(
            f"{commit.topic}-{commit.partition}: the metadata has {size} bytes, "
            f"offset.metadata.max.bytes is {most}"
        )


def settled(unit: Unit, group_id: str, commits: Iterable[OffsetCommit]) -> list[OffsetCommit]:
    """The commits as they are stored: with what the group has finished beyond their offsets."""
    return [_settled(unit, group_id, commit) for commit in commits]


def _settled(unit: Unit, group_id: str, commit: OffsetCommit) -> OffsetCommit:
    if finished.is_processors(commit.metadata):
        return commit
    row = unit.execute(_STANDING, (group_id, commit.topic, commit.partition)).fetchone()
    if row is None or not row[1]:
        return commit
    standing, given = OffsetAndMetadata(*row), OffsetAndMetadata(commit.offset, commit.metadata)
    after = finished.settled(standing, given)
    if group_id.startswith(OWN) and not given.metadata and given.offset >= standing.offset:
        after = standing  # A replay of dead letters lists what it has sent beyond its offset.
    return commit._replace(metadata=after.metadata)


def exists(connection: Unit | sqlite3.Connection, group_id: str) -> bool:
    return any(
        connection.execute(
            f"SELECT 1 FROM {table} WHERE group_id = ? LIMIT 1", (group_id,)
        ).fetchone()
        for table in ("group_offsets", "pending_group_offsets", "groups")
    )


def committed(unit: Folding, event: OffsetsCommitted, position: int) -> None:
    since = None if _is_kept(unit, event.group_id) else event.timestamp
    rows = [(event.group_id, *one, event.timestamp, position) for one in event.offsets]
    unit.executemany(_PUT, [(*row, _retained(since, row[5])) for row in rows])


def txn_committed(unit: Folding, event: TxnOffsetsCommitted, position: int) -> None:
    unit.memos[_OffsetMemo].nothing_pending.discard(event.producer_id)
    group = event.producer_id, event.producer_epoch, event.group_id
    commit = event.timestamp, position
    unit.executemany(_PENDING.replace, [(*group, *offset, *commit) for offset in event.offsets])


def complete_pending(unit: Folding, producer_id: int, *, committed: bool) -> None:
    """Projection only: commit or drop the pending offsets of the producer's transaction."""
    if producer_id in unit.memos[_OffsetMemo].nothing_pending:
        return
    if committed:
        rows = [row[2:] for row in unit.execute(_OF_PRODUCER, (producer_id,))]
        kept = {group_id: _is_kept(unit, group_id) for group_id in {row[0] for row in rows}}
        unit.executemany(
            _PUT, [(*row, _retained(None if kept[row[0]] else row[6], row[5])) for row in rows]
        )
    unit.execute(_END_PENDING, (producer_id,))
    unit.memos[_OffsetMemo].nothing_pending.add(producer_id)


def retain(unit: Folding, group_id: str, since_ms: int | None) -> None:
    """Projection only: begin the retention of the group's offsets at `since_ms`, when the group becomes
    empty. None ends the retention."""
    if since_ms is None:
        unit.execute(_END_RETENTION, (group_id,))
    elif not group_id.startswith(OWN):
        unit.execute(_BEGIN_RETENTION, (since_ms, group_id))


def _retained(since_ms: int | None, metadata: str) -> int | None:
    return None if finished.is_processors(metadata) else since_ms


def _is_kept(unit: Folding, group_id: str) -> bool:
    """Whether the group's offsets do not expire, because it has members or belongs to eosdb."""
    if group_id.startswith(OWN):
        return True
    return bool(unit.execute(_HAS_MEMBERS, (group_id, GroupState.EMPTY.value)).fetchone())


def forget(unit: Folding, event: OffsetsDeleted) -> None:
    """Projection only: delete the committed and pending offsets of these partitions."""
    for statement in _FORGET:
        unit.executemany(statement, [(event.group_id, *tp) for tp in event.partitions])


def topic_deleted(unit: Folding, event: TopicDeleted, position: int) -> None:
    for statement in _FORGET_TOPIC:
        unit.execute(statement, (event.topic,))


def fetch(
    connection: sqlite3.Connection, group_id: str, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The group's committed offsets; None asks for all partitions. Partitions without one are absent."""
    return {
        TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata, leader_epoch)
        for topic, partition, offset, metadata, leader_epoch in connection.execute(
            "SELECT topic, partition, committed_offset, metadata, leader_epoch FROM group_offsets "
            "WHERE group_id = ? ORDER BY topic, partition",
            (group_id,),
        )
        if partitions is None or (topic, partition) in partitions
    }


def pending(
    connection: sqlite3.Connection, group_id: str
) -> dict[TopicPartition, UnstableOffsetCommitError]:
    """The partitions with an offset of the group in an open transaction."""
    tps = connection.execute(
        "SELECT topic, partition FROM pending_group_offsets WHERE group_id = ?", (group_id,)
    )
    return {
        (tp := TopicPartition(*row)): UnstableOffsetCommitError(
            f"group {group_id!r}: a transaction that has not ended holds an offset of {tp}; "
            "try again when it has"
        )
        for row in tps
    }


def delete(
    unit: Unit, group_id: str, tps: Sequence[TopicPartition] | None, reason: str, now_ms: int
) -> None:
    """Delete offsets of the group, None for all. Raises GroupIdNotFoundError."""
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
    """Delete expired offsets; returns how many. A group left with neither members nor offsets is deleted,
    too. Retention runs from the commit or, if later, from when the group became empty
    (OffsetExpirationConditionImpl)."""
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
    """Groups with neither members nor offsets (GroupMetadataManager.maybeDeleteGroup): they never
    committed, or their topics were deleted."""
    return [group_id for (group_id,) in connection.execute(_IDLE)]


def forget_idle(unit: Unit, group_id: str, now_ms: int) -> int:
    """Delete the group if it still has neither members nor offsets. Returns how many it deleted."""
    if unit.execute(f"{_IDLE} AND group_id = ?", (group_id,)).fetchone() is None:
        return 0
    unit.record(
        OffsetsDeleted(timestamp=now_ms, group_id=group_id, partitions=(), reason="group expired")
    )
    return 1


def _has_more(unit: Unit, group_id: str, count: int) -> bool:
    """Whether the group has more than `count` committed or pending offsets."""
    (total,) = unit.execute(
        "SELECT (SELECT count(*) FROM group_offsets WHERE group_id = ?) + "
        "(SELECT count(*) FROM pending_group_offsets WHERE group_id = ?)",
        (group_id, group_id),
    ).fetchone()
    return int(total) > count
