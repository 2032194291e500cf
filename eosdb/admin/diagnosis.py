"""Answers operators' questions: which transactions are open, what blocks a partition, how far groups are.

Everything is read in one snapshot, so the parts of an answer are consistent.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from typing import Final

from eosdb.admin import hanging
from eosdb.broker.core import Core
from eosdb.coordinator.foresight import Foresight
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.consumer_decisions import ConsumerGroup
from eosdb.coordinator.groups.rows import AnyGroup
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.log import partition_rows, topics
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import lag
from eosdb.model.protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from eosdb.model.protocol.members import Member
from eosdb.model.reports import Diagnosis, GroupPartition, GroupReport, OpenTransaction
from eosdb.model.validation import check_text, check_topic_partition
from eosdb.model.values import GroupState, OffsetAndMetadata, TopicPartition

_COLUMNS: Final = (
    "topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "start_offset",
    "last_timestamp", "start_time_ms",
)  # fmt: skip
_OPEN: Final = """
    SELECT p.topic, p.partition, s.producer_id, s.producer_epoch, s.coordinator_epoch,
        s.current_txn_start_offset, s.last_timestamp, coalesce(j.timestamp, s.last_append_time),
        i.transactional_id
    FROM partition_producers s
    JOIN partitions p ON p.partition_id = s.partition_id
    LEFT JOIN producer_ids i ON i.producer_id = s.producer_id
    LEFT JOIN records r ON r.partition_id = s.partition_id AND r."offset" = s.current_txn_start_offset
    LEFT JOIN eosdb_journal j ON j.position = r.position
    WHERE s.current_txn_start_offset >= 0
"""
_OF_PRODUCERS: Final = """transactional_id IN (
    SELECT i.transactional_id FROM producer_ids i WHERE i.producer_id IN (SELECT value FROM json_each(?))
)"""
_WAITING: Final = """
    SELECT count(*), coalesce(sum(EXISTS (
        SELECT 1 FROM partition_producers s
        WHERE s.partition_id = r.partition_id AND s.producer_id = r.producer_id
            AND s.current_txn_start_offset >= 0 AND s.current_txn_start_offset <= r."offset"
    )), 0)
    FROM records r
    WHERE r.partition_id = ? AND r."offset" >= ? AND r.is_transactional AND r.control IS NULL
"""
_PENDING: Final = """
    SELECT p.topic, p.partition, coalesce(i.transactional_id, '')
    FROM pending_group_offsets p LEFT JOIN producer_ids i ON i.producer_id = p.producer_id
    WHERE p.group_id = ? ORDER BY 1, 2, 3
"""


def read_open(
    core: Core,
    connection: sqlite3.Connection,
    foresight: Foresight,
    partition: Partition | None = None,
) -> list[OpenTransaction]:
    """Return the transactions open in the partition, or in all that the principal may describe, ordered by
    their first offset."""
    epoch = transaction_rows.epoch(connection)
    narrowed = "" if partition is None else " AND s.partition_id = ?"
    rows = connection.execute(
        f"{_OPEN}{narrowed} ORDER BY 1, 2, 6",
        () if partition is None else (partition.partition_id,),
    ).fetchall()
    # Transactions are looked up by producer id, because `json_each` cuts a text at a NUL character.
    producers = json.dumps([row[2] for row in rows])
    by_id = {
        metadata.transactional_id: metadata
        for metadata in transaction_rows.read_where(connection, _OF_PRODUCERS, (producers,))
    }
    may_see, found = core.authorizer.describes(connection), list[OpenTransaction]()
    for *stored, transactional_id in rows:
        if not may_see("topic", stored[0]):
            continue
        metadata = by_id.get(transactional_id)
        is_orphan = metadata is not None and foresight.is_orphan(metadata)
        opened = OpenTransaction(**dict(zip(_COLUMNS, stored, strict=True)))
        reason = hanging.judge(opened, metadata, epoch, foresight.now_ms, is_orphan=is_orphan)
        found.append(hanging.judged(opened, metadata, reason))
    return found


def diagnose(core: Core, topic_partition: TopicPartition, group_id: str | None = None) -> Diagnosis:
    """Diagnose why a reader of the partition, or this group, is stuck. Raises UnknownTopicOrPartitionError
    and the authorization errors."""
    tp = check_topic_partition(topic_partition)
    with core.reading("describe", "topic", tp.topic) as connection:
        if group_id is not None:
            check_text("group_id", group_id)
            core.authorizer.check(connection, "describe", "group", group_id)
        partition = partition_rows.read(connection, tp)
        lso, foresight = partition.last_stable_offset, core.coordinator.foresight(connection)
        holders = read_open(core, connection, foresight, partition)
        behind = lag.measure(connection, partition, lso, read_committed=True)
        _, waiting_open = connection.execute(_WAITING, (partition.partition_id, lso)).fetchone()
        report = None if group_id is None else group_report(connection, group_id, foresight)
    standing = [p for p in report.partitions if (p.topic, p.partition) == tp] if report else []
    return Diagnosis(
        topic=tp.topic,
        partition=tp.partition,
        now_ms=foresight.now_ms,
        offsets=partition.offsets(),
        holder=holders[0] if holders else None,
        others_open=max(len(holders) - 1, 0),
        waiting_committed=behind.held_back - waiting_open,
        waiting_open=waiting_open,
        group=standing[0] if standing else None,
        group_state=None if report is None else report.state,
        group_due=() if report is None else report.due,
    )


def group_report(
    connection: sqlite3.Connection, group_id: str, foresight: Foresight
) -> GroupReport:
    """Report on a group. An unknown group is `Dead` and has no partitions, as in Kafka."""
    stored = group_rows.load(connection, group_id)
    group = None if stored is None else foresight.group(stored)
    committed = {
        TopicPartition(topic, number): OffsetAndMetadata(offset, metadata)
        for topic, number, offset, metadata in connection.execute(
            "SELECT topic, partition, committed_offset, metadata FROM group_offsets "
            "WHERE group_id = ?",
            (group_id,),
        )
    }
    pending: dict[TopicPartition, list[str]] = {}
    for topic, number, transactional_id in connection.execute(_PENDING, (group_id,)):
        pending.setdefault(TopicPartition(topic, number), []).append(transactional_id)
    names = topics.by_number(connection)
    assigned = readers(group, names)
    # Members that have left still count here; the next write removes them from the stored group.
    tps = sorted(committed.keys() | pending.keys() | readers(stored, names).keys())
    reports = []
    for tp in tps:
        partition = partition_rows.find(connection, tp)
        if partition is None:
            continue
        at = committed.get(tp, OffsetAndMetadata(-1))
        reader = assigned.get(tp)
        reports.append(
            GroupPartition(
                group_id=group_id,
                topic=tp.topic,
                partition=tp.partition,
                committed_offset=at.offset,
                metadata=at.metadata,
                log_end_offset=partition.log_end_offset,
                lag=lag.of_group(connection, partition, at),
                pending=tuple(pending.get(tp, ())),
                member_id=None if reader is None else reader.member_id,
                client_id=None if reader is None else reader.client_id,
                client_host=None if reader is None else reader.client_host or None,
            )
        )
    absent = GroupState.EMPTY if tps else GroupState.DEAD
    return GroupReport(
        group_id=group_id,
        state=(absent if group is None else group.state).value,
        members=0 if group is None else len(group.members),
        partitions=tuple(reports),
        due=() if stored is None else foresight.of_group(stored),
    )


def readers(group: AnyGroup | None, names: Mapping[int, str]) -> dict[TopicPartition, Member]:
    """Return the member that has each partition; empty if the group's protocol type is not "consumer".
    `names` are the topics' names by number."""
    assigned: dict[TopicPartition, Member] = {}
    if isinstance(group, ConsumerGroup):
        return {
            TopicPartition(names[topic], partition): member
            for member in group.members
            for topic, partition in member.assigned
            if topic in names
        }
    if group is None or group.protocol_type != PROTOCOL_TYPE:
        return assigned
    for member in group.members:
        with contextlib.suppress(ValueError):
            assigned |= dict.fromkeys(decode_assignment(member.assignment), member)
    return assigned
