"""The log for operators: stored batches (kafka-dump-log.sh) and snapshots."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from eosdb.admin.timeline import reading
from eosdb.admin.timeline.reading import MAX_BINS, MAX_TRANSACTIONS, PartitionTimeline
from eosdb.broker.core import Core
from eosdb.coordinator.authorizer import CLUSTER
from eosdb.coordinator.groups.offsets import OWN
from eosdb.errors import InvalidRequestError, UnknownTopicIdError
from eosdb.events.kinds import BatchAppended, MarkerWritten
from eosdb.log import partition_rows, producer_rows
from eosdb.log.partition_rows import Partition
from eosdb.log.producer_state import sequence_of
from eosdb.log.reading import block, by_time
from eosdb.log.reading.block import ReadLimits
from eosdb.model.damage import reads
from eosdb.model.fetched import Block, Want
from eosdb.model.reports import LogDirectory, LoggedBatch, SnapshotEntry
from eosdb.model.validation import check_int, check_text, check_topic_partition
from eosdb.model.values import (
    NO_SEQUENCE,
    IsolationLevel,
    OffsetAndTimestamp,
    PartitionOffsets,
    SnapshotInfo,
    TopicPartition,
)
from eosdb.store import journal
from eosdb.store.schema.event_names import member

COLUMNS: Final = (
    "offset", "timestamp", "timestamp_type", "key", "value", "headers", "producer_id",
    "producer_epoch", "sequence",
)  # fmt: skip
"""The columns that `scan` has, named as in the view `committed_records`."""


def partition_offsets(core: Core) -> dict[TopicPartition, PartitionOffsets]:
    """Return log start, log end and last stable offset of every partition that the principal may
    describe, all from one snapshot."""
    with core.store.read() as connection:
        return {
            partition.topic_partition: partition.offsets()
            for partition in partition_rows.read_all(connection)
            if core.authorizer.allows(connection, "describe", "topic", partition.topic)
        }


def log_directory(core: Core) -> LogDirectory:
    """Return the path of the file and the bytes of records in each partition. Raises
    ClusterAuthorizationFailedError."""
    with core.reading("describe", "cluster", CLUSTER) as connection:
        partitions = partition_rows.read_all(connection)
    folder = os.path.dirname(core.store.path)
    disk = shutil.disk_usage(folder)
    sizes = {partition.topic_partition: partition.size_bytes for partition in partitions}
    return LogDirectory(folder, disk.total, disk.free, sizes)


_TRANSACTIONAL_ID: Final = "SELECT transactional_id FROM producer_ids WHERE producer_id = ?"
_POSITIONS: Final = (
    "SELECT group_id, committed_offset FROM group_offsets WHERE topic = ? AND partition = ? "
    "ORDER BY committed_offset, group_id"
)


def timeline(
    core: Core,
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

    The window is the offsets [start, end) that were appended in [since, until) (epoch ms); each bound is
    optional. `bins` are at most `max_bins` parts of the axis, of equal width. Each counts its records by
    the outcome of their transaction, and its markers (see `TimelineBin`). If a partition has more than
    `max_transactions` transactions, only so many are listed: the open ones, then the longest. Reads the
    partition once, in about 0.2 s for 20,000 transactions. Raises UnknownTopicOrPartitionError,
    TopicAuthorizationFailedError and InvalidRequestError.
    """
    from eosdb.admin.timeline.svg import Timelines

    window = reading.Window(by, start, end, since, until, max_transactions, max_bins)
    window.check()
    now_ms = core.clock.time_ms()
    tp = check_topic_partition(TopicPartition(topic, 0 if partition is None else partition))
    with core.reading("describe", "topic", topic) as connection:
        may_see = core.authorizer.describes(connection)

        @cache
        def name_of(producer_id: int) -> str | None:
            (name,) = connection.execute(_TRANSACTIONAL_ID, (producer_id,)).fetchone() or (None,)
            return name if name is not None and may_see("transactional_id", name) else None

        def groups(row: Partition) -> list[reading.OffsetMoved]:
            return [
                reading.OffsetMoved(*position)
                for position in connection.execute(_POSITIONS, row.topic_partition)
                if not position[0].startswith(OWN) and may_see("group", position[0])
            ]

        rows = [partition_rows.read(connection, tp)]
        if partition is None:
            rows = partition_rows.read_topic(connection, topic)
        return Timelines(
            reading.scan(connection, row, window, now_ms, groups(row), name_of) for row in rows
        )


def first_record_at(
    core: Core,
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
    with core.reading("describe", "topic", tp.topic) as connection:
        partition = partition_rows.read(connection, tp)
        return by_time.first_data_at(
            connection, partition, timestamp, read_committed=read_committed
        )


def history_mark(core: Core) -> str:
    """Return a mark for programs that store offsets outside the file: `history_departure` later tells
    whether the file still has this history."""
    with core.store.read() as connection:
        return str(journal.mark(connection))


def history_departure(core: Core, mark: str) -> str | None:
    """Return None if the file still has the history of the mark, otherwise why not: the path has
    another file, or an older copy. Raises InvalidRequestError for text that is not a mark."""
    with core.store.read() as connection:
        return journal.departure(connection, check_text("mark", mark))


def scan(
    core: Core,
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
    unknown = ", ".join(repr(column) for column in columns if column not in COLUMNS)
    if unknown or not columns:
        raise InvalidRequestError(
            f"columns: got {unknown or 'none'}, expected some of {', '.join(COLUMNS)}"
        )
    for found in read_blocks(
        core,
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
    core: Core,
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
        with core.reading("read", "topic", tp.topic) as connection:
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


def dump_log(core: Core, topic_partition: TopicPartition, offset: int = 0) -> Iterator[LoggedBatch]:
    """Yield the stored batches from the one that contains `offset`, each read on demand. Raises
    UnknownTopicOrPartitionError, UnknownTopicIdError if the topic is recreated meanwhile, and
    TopicAuthorizationFailedError."""
    tp = check_topic_partition(topic_partition)
    check_int("offset", offset, 0)
    partition_id = None
    while True:
        with core.reading("read", "topic", tp.topic) as connection:
            partition = _still(partition_rows.read(connection, tp), partition_id)
            partition_id = partition.partition_id
            batch = _next_batch(connection, partition, offset)
        if batch is None:
            return
        yield batch
        offset = batch.last_offset + 1


def list_snapshots(core: Core) -> list[SnapshotInfo]:
    """Return every stored producer-state snapshot."""
    with core.store.read() as connection:
        return producer_rows.kept(connection)


def describe_snapshot(
    core: Core, topic_partition: TopicPartition, offset: int | None = None
) -> list[SnapshotEntry]:
    """Return the state of each producer in the snapshot at `offset` (None: the newest). Raises
    InvalidRequestError if there is no such snapshot, and UnknownTopicOrPartitionError."""
    tp = check_topic_partition(topic_partition)
    with core.reading("describe", "topic", tp.topic) as connection:
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
    """Return the partition. Raises UnknownTopicIdError if its name had another id before."""
    if partition_id not in (None, partition.partition_id):
        raise UnknownTopicIdError(
            f"{partition.topic_partition}: the topic was deleted and recreated; read again"
        )
    return partition


_NEXT: Final = f"""
    SELECT b.timestamp, b.transactional_id, b.base_offset, b.count, b.base_sequence,
        r.producer_id, r.producer_epoch, b.is_transactional, b.control, b.size,
        iif(b.control IS NULL, {member(BatchAppended, "crc")}, -1),
        iif(b.control IS NULL, -1, {member(MarkerWritten, "coordinator_epoch")})
    FROM (
        SELECT position, producer_id, producer_epoch FROM records
        WHERE partition_id = ? AND "offset" >= ? ORDER BY "offset" LIMIT 1
    ) r
    JOIN record_batches b ON b.position = r.position JOIN eosdb_journal j ON j.position = r.position
"""


@reads("journal")
def _next_batch(
    connection: sqlite3.Connection, partition: Partition, offset: int
) -> LoggedBatch | None:
    """Return the stored batch that contains `offset`, or the first after it; None at the end.

    Records removed by retention or compaction are absent, but the batch keeps its original base and last
    offset.
    """
    row = connection.execute(_NEXT, (partition.partition_id, offset)).fetchone()
    if row is None:
        return None
    (
        append_time, transactional_id, base_offset, count, base_serial, producer_id,
        producer_epoch, is_transactional, control, size, crc, coordinator_epoch,
    ) = row  # fmt: skip
    last_offset = base_offset + count - 1
    found = block.read(
        connection,
        partition,
        max(base_offset, partition.log_start_offset),
        partition.log_end_offset,
        committed=False,
        want=Want.STORED,
        limits=ReadLimits(count, 2**62),
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
        is_control=control is not None,
        coordinator_epoch=coordinator_epoch,
        append_time=append_time,
        size=size,
        crc=crc,
        records=tuple(record for record in found.records() if record.offset <= last_offset),
    )
