"""The log for operators: stored batches (kafka-dump-log.sh) and snapshots."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from eosdb.admin import consistent_cut, overview, storage
from eosdb.admin.timeline.reading import MAX_BINS, MAX_TRANSACTIONS, PartitionTimeline, Window
from eosdb.broker.core import RequestHandler
from eosdb.coordinator.authorizer import CLUSTER
from eosdb.coordinator.transactions.rows import COORDINATOR_EPOCH
from eosdb.errors import InvalidRequestError, UnknownTopicIdError
from eosdb.log import partition_rows, producer_rows
from eosdb.log.partition_rows import Partition
from eosdb.log.producer_state import sequence_of
from eosdb.log.reading import block, by_time
from eosdb.log.reading.block import Limits
from eosdb.model.damage import reads
from eosdb.model.fetched import Block, Want
from eosdb.model.overview import Overview
from eosdb.model.progress import Progress, report_progress
from eosdb.model.reports import LogDirectory, LoggedBatch, SnapshotEntry, StorageStats
from eosdb.model.validation import check_int, check_text, check_topic_partition
from eosdb.model.values import (
    NO_SEQUENCE,
    IsolationLevel,
    OffsetAndTimestamp,
    PartitionOffsets,
    SnapshotInfo,
    TopicPartition,
)
from eosdb.store import journal, wal

from .timeline import reading

COLUMNS: Final = (
    "offset", "timestamp", "timestamp_type", "key", "value", "headers", "producer_id",
    "producer_epoch", "sequence",
)  # fmt: skip
"""The columns that `scan` has, named as in the view `committed_records`."""
_LARGE_WAL: Final = 1 << 20


class LogAdmin(RequestHandler):
    """The part of `Database.admin` for stored batches and snapshots."""

    def partition_offsets(self) -> dict[TopicPartition, PartitionOffsets]:
        """Return log start, log end and last stable offset of every partition that the principal may
        describe, all from one snapshot."""
        with self._store.read() as connection:
            return {
                partition.topic_partition: partition.offsets()
                for partition in partition_rows.read_all(connection)
                if self._authorizer.allows(connection, "describe", "topic", partition.topic)
            }

    def overview(self) -> Overview:
        """Return figures of the file from one snapshot: of the partitions, groups, open transactions and
        dead letters that the principal may describe. The cost does not grow with the length of the
        history."""
        with self._store.read() as connection:
            may_see = self._authorizer.describes(connection)
            found = overview.read(
                connection, self._store.path, self._coordinator.foresight(connection), may_see
            )
        if found.wal_bytes < _LARGE_WAL:
            return found
        # After the snapshot above has ended: it would count as a reader too.
        return replace(found, wal_held_by=wal.readers(self._store.path))

    def _log_directory(self) -> LogDirectory:
        """Return the path of the file and the bytes of records in each partition. Raises
        ClusterAuthorizationFailedError."""
        with self._core.reading("describe", "cluster", CLUSTER) as connection:
            partitions = partition_rows.read_all(connection)
        folder = os.path.dirname(self._store.path)
        disk = shutil.disk_usage(folder)
        sizes = {partition.topic_partition: partition.size_bytes for partition in partitions}
        return LogDirectory(folder, disk.total, disk.free, sizes)

    def stats(self, *, on_progress: Progress | None = None) -> StorageStats:
        """Return what uses the space of the file: records, journal, indexes, state, free pages; per
        topic that the principal may describe; per transaction. Reads the journal and every index, not the
        records. `on_progress(done, total)` counts pages."""

        def work(report: Progress) -> StorageStats:
            with self._store.read() as connection:
                return storage.read(
                    connection,
                    lambda topic: self._authorizer.allows(connection, "describe", "topic", topic),
                    report,
                )

        return report_progress(on_progress, work)

    def consistent_cut(self) -> dict[TopicPartition, tuple[PartitionOffsets, int]]:
        """As `partition_offsets`, with the end offset up to which each partition can be read without
        seeing part of a transaction: its last stable offset, or less if a transaction below it is not
        yet fully readable in every partition. Data below these offsets never changes, and later cuts are
        never lower."""
        with self._store.read() as connection:
            return consistent_cut.read(connection, self._authorizer)

    def _transactions_in(
        self, topic_partition: TopicPartition, start: int, end: int
    ) -> list[dict[TopicPartition, tuple[int, int]]]:
        """Return the committed transactions with data in the offsets [start, end), each with its first
        and last data offset in every partition. Raises UnknownTopicOrPartitionError and
        TopicAuthorizationFailedError."""
        tp = check_topic_partition(topic_partition)
        check_int("start", start, 0)
        check_int("end", end, 0)
        with self._core.reading("describe", "topic", tp.topic) as connection:
            partition = partition_rows.read(connection, tp)
            return consistent_cut.transactions_in(connection, partition, start, end)

    def _first_record_at(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        *,
        isolation_level: IsolationLevel = "read_committed",
    ) -> OffsetAndTimestamp | None:
        """Return the first record at or after `timestamp` (ms) that a reader sees; None if there is
        none. Reads as of a time begin or end there.

        `Broker.list_offsets`, which is Kafka's, also finds markers and aborted records; on back-dated
        data it returns the first marker, because a marker has the current time. Raises
        InvalidRequestError, UnknownTopicOrPartitionError and TopicAuthorizationFailedError.
        """
        tp = check_topic_partition(topic_partition)
        read_committed = block.check_isolation_level(isolation_level)
        check_int("timestamp", timestamp, 0)
        with self._core.reading("describe", "topic", tp.topic) as connection:
            partition = partition_rows.read(connection, tp)
            return by_time.first_data_at(
                connection, partition, timestamp, read_committed=read_committed
            )

    def _history_mark(self) -> str:
        """Return a mark for programs that store offsets outside the file: `_history_departure` later tells
        whether the file still has this history."""
        with self._store.read() as connection:
            return str(journal.mark(connection))

    def _history_departure(self, mark: str) -> str | None:
        """Return None if the file still has the history of the mark, otherwise why not: the path has
        another file, or an older copy. Raises InvalidRequestError for text that is not a mark."""
        with self._store.read() as connection:
            return journal.departure(connection, check_text("mark", mark))

    def scan(
        self,
        topic_partition: TopicPartition,
        start: int,
        end: int,
        *,
        columns: Sequence[str] = COLUMNS,
        isolation_level: IsolationLevel = "read_committed",
        batch_size: int = 2_000,
        check_crcs: bool = True,
        skip_lost: bool = False,
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the data records in [start, end) as rows, in lists of at most `batch_size`, each read on
        demand; no snapshot is held in between.

        Raises InvalidRequestError for an unknown column or an end beyond the isolation level's bound;
        OffsetOutOfRangeError if the log begins after `start` or after the next offset to read
        (`skip_lost` continues at the log start instead); UnknownTopicOrPartitionError;
        TopicAuthorizationFailedError; and, unless `check_crcs` is False, CorruptRecordError.
        """
        check_int("batch_size", batch_size, 1)
        if not columns or any(column not in COLUMNS for column in columns):
            unknown = ", ".join(repr(column) for column in columns if column not in COLUMNS)
            raise InvalidRequestError(
                f"columns: got {unknown or 'none'}, expected some of {', '.join(COLUMNS)}"
            )
        for found in self.read_blocks(
            topic_partition,
            start,
            end,
            Want.DATA,
            isolation_level=isolation_level,
            batch_size=batch_size,
            check_crcs=check_crcs,
            skip_lost=skip_lost,
        ):
            if found.size:
                yield list(zip(*found.columns(columns), strict=True))

    def read_blocks(
        self,
        topic_partition: TopicPartition,
        start: int,
        end: int,
        want: Want,
        *,
        isolation_level: IsolationLevel = "read_committed",
        batch_size: int = 2_000,
        check_crcs: bool = True,
        skip_lost: bool = False,
    ) -> Iterator[Block]:
        """Yield the blocks behind `scan`, for readers that make something else of them. Blocks may
        be empty. Raises UnknownTopicIdError if the topic is recreated meanwhile."""
        tp = check_topic_partition(topic_partition)
        committed = block.check_isolation_level(isolation_level)
        at = check_int("start", start, 0)
        check_int("end", end, 0)
        partition_id: int | None = None
        while True:
            with self._core.reading("read", "topic", tp.topic) as connection:
                partition = _still(partition_rows.read(connection, tp), partition_id)
                partition_id = partition.partition_id
                if skip_lost:
                    at = min(max(at, partition.log_start_offset), end)
                block.check_range(partition, at, end, read_committed=committed)
                found = block.read(
                    connection,
                    partition,
                    at,
                    end,
                    committed=committed,
                    want=want,
                    limits=block.part_of(partition, batch_size),
                    check_crcs=check_crcs,
                )
            yield found
            at = found.stop
            if at >= end:
                return

    def timeline(
        self,
        topic: str,
        partition: int | None = None,
        *,
        by: str = "offset",
        start: int | None = None,
        end: int | None = None,
        since: int | None = None,
        until: int | None = None,
        max_transactions: int = MAX_TRANSACTIONS,
        max_bins: int = MAX_BINS,
    ) -> tuple[PartitionTimeline, ...]:
        """Return the transactions of one partition, or of all, along its offsets or, with `by="time"`,
        along the time of their append.

        The window is the offsets [start, end) that were appended in [since, until) (epoch ms); each
        bound is optional. `bins` are at most `max_bins` parts of the axis, of equal width. Each counts
        its records by the outcome of their transaction, and its markers (see `TimelineBin`). If a
        partition has more than `max_transactions` transactions, only so many are listed: the open ones,
        then the longest. Reads the partition once, in about 0.2 s for 20,000 transactions. Raises
        UnknownTopicOrPartitionError, TopicAuthorizationFailedError and InvalidRequestError.
        """
        from eosdb.admin.timeline.svg import Timelines

        window = Window(by, start, end, since, until, max_transactions, max_bins)
        window.check()
        now_ms = self._clock.time_ms()
        with self._store.read() as connection:
            found = reading.read(connection, self._authorizer, window, now_ms, topic, partition)
            return Timelines(found)

    def dump_log(self, topic_partition: TopicPartition, offset: int = 0) -> Iterator[LoggedBatch]:
        """Yield the stored batches from the one that contains `offset`, each read on demand. Raises
        UnknownTopicOrPartitionError, UnknownTopicIdError if the topic is recreated meanwhile, and
        TopicAuthorizationFailedError."""
        tp = check_topic_partition(topic_partition)
        check_int("offset", offset, 0)
        elections, partition_id = _Elections(), None
        while True:
            with self._core.reading("read", "topic", tp.topic) as connection:
                partition = _still(partition_rows.read(connection, tp), partition_id)
                partition_id = partition.partition_id
                batch = _next_batch(connection, partition, offset, elections)
            if batch is None:
                return
            yield batch
            offset = batch.last_offset + 1

    def list_snapshots(self) -> list[SnapshotInfo]:
        """Return every stored producer-state snapshot."""
        with self._store.read() as connection:
            return producer_rows.kept(connection)

    def describe_snapshot(
        self, topic_partition: TopicPartition, offset: int | None = None
    ) -> list[SnapshotEntry]:
        """Return the state of each producer in the snapshot at `offset` (None: the newest). Raises
        InvalidRequestError if there is no such snapshot, and UnknownTopicOrPartitionError."""
        tp = check_topic_partition(topic_partition)
        with self._core.reading("describe", "topic", tp.topic) as connection:
            partition_id = partition_rows.read(connection, tp).partition_id
            kept = [
                info.offset
                for info in producer_rows.kept(connection)
                if (info.topic, info.partition) == tp
            ]
            wanted = max(kept, default=-1) if offset is None else offset
            if wanted not in kept:
                raise InvalidRequestError(
                    f"{tp}: there is no snapshot"
                    + ("" if offset is None else f" at offset {offset}")
                    + (
                        f"; there are some at {', '.join(map(str, kept))}"
                        if kept
                        else "; `eosdb housekeeping` takes those that are due"
                    )
                )
            return producer_rows.snapshot_entries(connection, partition_id, wanted)


def _still(partition: Partition, partition_id: int | None) -> Partition:
    """The partition. Raises UnknownTopicIdError if another one had its name in an earlier snapshot."""
    if partition_id not in (None, partition.partition_id):
        raise UnknownTopicIdError(
            f"{partition.topic_partition}: the topic was deleted and recreated; read again"
        )
    return partition


_NEXT: Final = """
    SELECT b.position, b.timestamp, b.transactional_id, b.base_offset, b.count, b.base_sequence,
        r.producer_id, r.producer_epoch, b.is_transactional, b.control, b.size,
        ifnull(json_extract(j.detail, '$.crc'), -1), json_extract(j.detail, '$.coordinator_epoch')
    FROM (
        SELECT position, producer_id, producer_epoch FROM records
        WHERE partition_id = ? AND "offset" >= ? ORDER BY "offset" LIMIT 1
    ) r
    JOIN record_batches b ON b.position = r.position JOIN journal j ON j.position = r.position
"""
_ELECTIONS: Final = (
    "SELECT position, json_extract(detail, '$.epoch') FROM journal "
    "WHERE kind = 'CoordinatorElected' AND position > ? AND position <= ? ORDER BY position"
)

_AT_BASELINE: Final = (
    "SELECT b.position, c.value FROM eosdb_baseline b JOIN eosdb_baseline_counters c "
    f"ON c.name = '{COORDINATOR_EPOCH}' WHERE b.position > 0"
)


class _Elections:
    """Coordinator epochs by journal position, read as needed. A marker written under the current epoch does
    not store it."""

    def __init__(self) -> None:
        self._until = 0
        self._found: list[tuple[int, int]] = []

    def epoch_at(self, connection: sqlite3.Connection, position: int) -> int:
        """Return the coordinator epoch at the position; -1 if the journal does not tell."""
        if not self._until:
            self._found += connection.execute(_AT_BASELINE)
        if position > self._until:
            self._found += connection.execute(_ELECTIONS, (self._until, position))
            self._until = position
        before = [epoch for at, epoch in self._found if at < position]
        return before[-1] if before else -1


@reads("journal")
def _next_batch(
    connection: sqlite3.Connection, partition: Partition, offset: int, elections: _Elections
) -> LoggedBatch | None:
    """Return the stored batch that contains `offset`, or the first after it; None at the end.

    Records removed by retention or compaction are absent, but the batch keeps its original base and last
    offset.
    """
    row = connection.execute(_NEXT, (partition.partition_id, offset)).fetchone()
    if row is None:
        return None
    (
        position, append_time, transactional_id, base_offset, count, base_serial, producer_id,
        producer_epoch, is_transactional, control, size, crc, coordinator_epoch,
    ) = row  # fmt: skip
    is_control = control is not None
    if is_control and coordinator_epoch is None:
        coordinator_epoch = elections.epoch_at(connection, position)
    last_offset = base_offset + count - 1
    found = block.read(
        connection,
        partition,
        max(base_offset, partition.log_start_offset),
        partition.log_end_offset,
        committed=False,
        want=Want.STORED,
        limits=Limits(count, 2**62),
    )
    return LoggedBatch(
        base_offset=base_offset,
        last_offset=last_offset,
        count=count,
        base_sequence=sequence_of(base_serial),
        last_sequence=sequence_of(base_serial + count - 1) if base_serial >= 0 else NO_SEQUENCE,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional_id=transactional_id,
        is_transactional=bool(is_transactional),
        is_control=is_control,
        coordinator_epoch=coordinator_epoch if is_control else -1,
        append_time=append_time,
        size=size,
        crc=crc,
        records=tuple(record for record in found.records() if record.offset <= last_offset),
    )
