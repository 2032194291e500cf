"""Folds the log's events into its materialized tables, both live and at replay.

A projection reads the event and materialized state, but never records, the clock or settings: the records
may be gone at replay.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from eosdb.errors import CorruptDatabaseError
from eosdb.events import kinds
from eosdb.log import (
    json_views,
    lives,
    once,
    partition_rows,
    producer_rows,
    scheduled,
    topics,
    transaction_index,
)
from eosdb.log.partition_rows import Partition
from eosdb.log.producer_state import BatchMetadata, ProducerStateEntry, sequence_of
from eosdb.model.fetched import AbortedTransaction
from eosdb.model.values import PARTITIONS_MAX, TopicPartition
from eosdb.store.counters import set_counter
from eosdb.store.schema.newest import Statement
from eosdb.store.schema.row_checksum import signed
from eosdb.store.writing.table import Table
from eosdb.store.writing.unit import Folding

_TIME_INDEX_INTERVAL_BYTES: Final = 65_536
"""The bytes between two entries of the time index (Kafka: index.interval.bytes)."""
_TIME_INDEX: Final = Table("time_index", "partition_id timestamp offset", "partition_id timestamp")
_CUT_TIME_INDEX: Final = _TIME_INDEX.deletion('partition_id = ? AND "offset" <= ?')
_HORIZONS: Final = Table("delete_horizons", "partition_id offset since", "partition_id offset")
_CUT_HORIZONS: Final = _HORIZONS.deletion('partition_id = ? AND "offset" < ?')
_SNAPSHOTS_KEPT: Final = 2
_SNAPSHOTS: Final = Table(
    "snapshots", "partition_id snapshot_offset taken_time", "partition_id snapshot_offset"
)
_SNAPSHOT_ENTRIES: Final = Table(
    "snapshot_entries",
    "partition_id snapshot_offset producer_id producer_epoch first_sequence last_sequence last_offset "
    "offset_delta timestamp coordinator_epoch current_txn_first_offset",
    "partition_id snapshot_offset",
)
_SUPERSEDED: Final = _SNAPSHOTS.where(
    "partition_id = ? ORDER BY snapshot_offset DESC LIMIT -1 OFFSET ?"
)
_PARTITION_IDS: Final = Statement("SELECT partition_id FROM {partitions} WHERE topic_id = ?")
_FORGET_PARTITION: Final = tuple(
    Statement(f"DELETE FROM {{{table}}} WHERE partition_id = ?")
    for table in (
        "partition_producers",
        "transaction_index",
        "time_index",
        "delete_horizons",
        "snapshots",
        "snapshot_entries",
        "eosdb_scheduled",
        "eosdb_leader_epochs",
        "partitions",
    )
)


def batch_appended(unit: Folding, event: kinds.BatchAppended, position: int) -> None:
    partition = partition_rows.by_id(unit, event.partition_id)
    opens, end = False, event.base_offset + event.count
    if event.producer_id >= 0:
        entry = producer_rows.load(unit, event.partition_id, event.producer_id)
        known = entry is not None
        entry = entry or ProducerStateEntry(event.producer_id, event.producer_epoch)
        opens = event.is_transactional and entry.current_txn_first_offset < 0
        first = event.base_sequence
        last = first + event.count - 1 if first >= 0 else -1
        batch = BatchMetadata(first, last, event.base_offset, end - 1, event.max_timestamp)
        active_ms = event.timestamp
        if event.partition < 0:  # The producer is known until its last record is due.
            active_ms = max(active_ms, event.max_timestamp, entry.last_append_time)
        after = entry.after_append(event.producer_epoch, batch, event.is_transactional, active_ms)
        producer_rows.save(unit, event.partition_id, after, known=known)
    first_unstable = partition.first_unstable_offset
    if opens and first_unstable < 0:
        first_unstable = event.base_offset
    _grow(
        unit,
        partition,
        first_unstable,
        end,
        event.size,
        event.max_timestamp,
        event.max_timestamp_offset,
        partition.last_aborted_offset,
    )


def marker_written(unit: Folding, event: kinds.MarkerWritten, position: int) -> None:
    partition = partition_rows.by_id(unit, event.partition_id)
    entry = producer_rows.load(unit, event.partition_id, event.producer_id)
    known = entry is not None
    entry = entry or ProducerStateEntry(event.producer_id, event.producer_epoch)
    first_offset = entry.current_txn_first_offset
    after = entry.after_marker(event.producer_epoch, event.coordinator_epoch, event.timestamp)
    if event.partition < 0:
        after = after._replace(last_append_time=max(event.timestamp, entry.last_append_time))
    producer_rows.save(unit, event.partition_id, after, known=known)
    first_unstable, last_aborted = partition.first_unstable_offset, partition.last_aborted_offset
    if first_offset >= 0:
        first_unstable = producer_rows.first_open_offset(unit, event.partition_id)
        if event.control == "ABORT":
            stable = first_unstable if first_unstable >= 0 else event.offset + 1
            transaction_index.add(
                unit,
                event.partition_id,
                AbortedTransaction(event.producer_id, first_offset, event.offset, stable),
                last_aborted,
            )
            last_aborted = event.offset
    end, newest = event.offset + 1, event.timestamp
    _grow(unit, partition, first_unstable, end, 0, newest, event.offset, last_aborted)
    scheduled.decided(unit, event)


def _grow(
    unit: Folding,
    partition: Partition,
    first_unstable: int,
    log_end_offset: int,
    size: int,
    max_timestamp: int,
    max_timestamp_offset: int,
    last_aborted_offset: int,
) -> None:
    """Save the partition after an append, with its new first unstable offset, and add to the sparse time
    index. An index entry (t, o) says that no record below offset o is newer than t (Kafka: TimeIndex)."""
    (
        id_, topic_id, topic, number, start, end_before, _, _, size_before, newest, newest_at, indexed,
        pending, clean, snapshot, _, cleaned_sum,
    ) = partition  # fmt: skip
    if pending >= _TIME_INDEX_INTERVAL_BYTES and newest > indexed:
        unit.insert(_TIME_INDEX.rows, (id_, newest, end_before))
        indexed, pending = newest, 0
    if max_timestamp <= newest:
        max_timestamp, max_timestamp_offset = newest, newest_at
    first_unstable, stable = partition.stability(first_unstable, log_end_offset)
    # `tuple.__new__` takes a sixth of the time of `_replace`, and this runs for every append.
    grown = tuple.__new__(Partition, (
        id_, topic_id, topic, number, start, log_end_offset, stable, first_unstable, size_before + size,
        max_timestamp, max_timestamp_offset, indexed, pending + size, clean, snapshot,
        last_aborted_offset, cleaned_sum,
    ))  # fmt: skip
    partition_rows.save(unit, grown)


def log_start_offset_moved(unit: Folding, event: kinds.LogStartOffsetMoved, position: int) -> None:
    partition = partition_rows.by_id(unit, event.partition_id)
    moved = partition._replace(
        log_start_offset=event.log_start_offset,
        size_bytes=partition.size_bytes - event.size,
        cleaned_sum=signed(partition.cleaned_sum - event.cleaned_sum),
    )
    first, stable = moved.stability(partition.first_unstable_offset, partition.log_end_offset)
    partition_rows.save(
        unit, moved._replace(first_unstable_offset=first, last_stable_offset=stable)
    )
    below = (event.partition_id, event.log_start_offset)
    unit.execute(_CUT_TIME_INDEX, below)
    unit.execute(_CUT_HORIZONS, below)
    if event.reason != "delete_records":
        transaction_index.forget_below(unit, event.partition_id, event.log_start_offset)


def log_cleaned(unit: Folding, event: kinds.LogCleaned, position: int) -> None:
    partition = partition_rows.by_id(unit, event.partition_id)
    # Readers need an aborted transaction's marker to find its end, so both are forgotten together.
    last_aborted = transaction_index.forget(
        unit, event.partition_id, event.expired_horizons, partition.last_aborted_offset
    )
    cleaned = partition._replace(
        last_aborted_offset=last_aborted,
        clean_offset=max(partition.clean_offset, event.clean_offset),
        size_bytes=partition.size_bytes - event.size,
        cleaned_sum=signed(partition.cleaned_sum + event.passed_sum - event.removed_sum),
    )
    partition_rows.save(unit, cleaned)
    unit.executemany(
        _HORIZONS.insert,
        [(event.partition_id, offset, event.timestamp) for offset in event.horizons],
    )
    gone = [(event.partition_id, offset) for offset in event.expired_horizons]
    unit.executemany(_HORIZONS.delete, gone)
    unit.executemany(_TIME_INDEX.delete, [(event.partition_id, at) for at in event.unindexed])


def producers_expired(unit: Folding, event: kinds.ProducersExpired, position: int) -> None:
    for producer_id in event.producer_ids:
        producer_rows.forget(unit, event.partition_id, producer_id)


def snapshot_taken(unit: Folding, event: kinds.SnapshotTaken, position: int) -> None:
    partition_id = event.partition_id
    unit.execute(_SNAPSHOTS.insert, (partition_id, event.offset, event.timestamp))
    rows = []
    for entry in producer_rows.entries(unit, partition_id):
        last = entry.batches[-1] if entry.batches else None
        rows.append(
            (
                partition_id,
                event.offset,
                entry.producer_id,
                entry.producer_epoch,
                sequence_of(last.base_serial) if last else -1,
                sequence_of(last.last_serial) if last else -1,
                last.last_offset if last else -1,
                last.last_offset - last.base_offset if last else 0,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
        )
    unit.executemany(_SNAPSHOT_ENTRIES.insert, rows)
    superseded = unit.execute(_SUPERSEDED, (partition_id, _SNAPSHOTS_KEPT)).fetchall()
    for _, offset, _ in superseded:
        for table in (_SNAPSHOTS, _SNAPSHOT_ENTRIES):
            unit.execute(table.delete, (partition_id, offset))
    partition = partition_rows.by_id(unit, partition_id)
    partition_rows.save(unit, partition._replace(snapshot_offset=event.offset))


def topic_created(unit: Folding, event: kinds.TopicCreated, position: int) -> None:
    unit.execute(
        topics.TOPICS.insert,
        (
            event.topic_id,
            event.topic,
            event.partitions,
            json.dumps(event.config, sort_keys=True),
            event.timestamp,
        ),
    )
    set_counter(unit, "topic_id", event.topic_id)
    _insert_partitions(unit, event, 0, position)


def partitions_added(unit: Folding, event: kinds.PartitionsAdded, position: int) -> None:
    if event.first_partition >= 0:
        unit.execute(
            topics.SAVE_COUNT,
            (event.first_partition + event.partitions, event.topic_id),
        )
    _insert_partitions(unit, event, event.first_partition, position)


def _insert_partitions(
    unit: Folding, event: kinds.TopicCreated | kinds.PartitionsAdded, first: int, position: int
) -> None:
    # Limit the number of rows, because a damaged event may have any number of partitions.
    if first + event.partitions > PARTITIONS_MAX:
        raise CorruptDatabaseError(
            f"the event at position {position} makes {event.partitions} partitions of {event.topic!r}, "
            f"expected {PARTITIONS_MAX} at most"
        )
    for i in range(event.partitions):
        tp = TopicPartition(event.topic, first + i)
        partition_rows.insert(unit, event.first_partition_id + i, event.topic_id, tp)
        lives.partition_made(unit, event.first_partition_id + i)
    set_counter(unit, "partition_id", event.first_partition_id + event.partitions - 1)


def topic_config_altered(unit: Folding, event: kinds.TopicConfigAltered, position: int) -> None:
    partition_rows.save_config(unit, event.topic_id, event.config)


def topic_deleted(unit: Folding, event: kinds.TopicDeleted, position: int) -> None:
    ids = unit.execute(_PARTITION_IDS, (event.topic_id,)).fetchall()
    for statement in _FORGET_PARTITION:
        unit.executemany(statement, ids)
    unit.execute(topics.TOPICS.delete, (event.topic_id,))
    once.forget_keys(unit, event.topic)
    unit.forget()


HANDLERS: Final[dict[type[kinds.Event], Callable[[Folding, Any, int], None]]] = {
    kinds.BatchAppended: batch_appended,
    kinds.LifeBegan: lives.began,
    kinds.IdempotencyKeyUsed: once.key_used,
    kinds.IdempotencyKeysExpired: once.keys_expired,
    kinds.RecordsScheduled: scheduled.added,
    kinds.ScheduledRecordsRemoved: scheduled.removed,
    kinds.SinkBatchAppended: once.sink_batch_appended,
    kinds.SinksExpired: once.sinks_expired,
    kinds.ViewCreated: json_views.view_created,
    kinds.ViewDropped: json_views.view_dropped,
    kinds.MarkerWritten: marker_written,
    kinds.LogStartOffsetMoved: log_start_offset_moved,
    kinds.LogCleaned: log_cleaned,
    kinds.ProducersExpired: producers_expired,
    kinds.SnapshotTaken: snapshot_taken,
    kinds.TopicCreated: topic_created,
    kinds.PartitionsAdded: partitions_added,
    kinds.TopicConfigAltered: topic_config_altered,
    kinds.TopicDeleted: topic_deleted,
}
