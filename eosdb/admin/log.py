"""What operators look at in the log itself: stored batches (kafka-dump-log.sh) and snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from eosdb.admin import consistent_cut, dump, timeline
from eosdb.admin.timeline import MAX_BINS, MAX_TRANSACTIONS, PartitionTimeline
from eosdb.broker.handler import RequestHandler
from eosdb.errors import InvalidRequestError
from eosdb.log import fetch, partition_rows, scan, snapshots
from eosdb.model.reports import LoggedBatch, SnapshotEntry
from eosdb.model.values import PartitionOffsets, SnapshotInfo, TopicPartition
from eosdb.store import history
from eosdb.validation import check_int, check_text, check_topic_partition


class LogAdmin(RequestHandler):
    """The part of `Database.admin` that is about stored batches and snapshots."""

    def partition_offsets(self) -> dict[TopicPartition, PartitionOffsets]:
        """Where every partition that the principal may describe begins, ends and becomes readable, all as
        of one instant."""
        with self._store.read() as connection:
            return {
                partition.topic_partition: partition.offsets()
                for partition in partition_rows.read_all(connection)
                if self._authorizer.allows(connection, "describe", "topic", partition.topic)
            }

    def consistent_cut(self) -> dict[TopicPartition, tuple[PartitionOffsets, int]]:
        """The same, and for each partition how far all can be read so that no transaction is seen in part:
        its last stable offset, or less when a transaction that another partition shows is not whole there
        yet. What is below never changes, and later cuts are never lower."""
        with self._store.read() as connection:
            ends = consistent_cut.consistent_ends(connection)
            return {
                partition.topic_partition: (partition.offsets(), ends[partition.partition_id])
                for partition in partition_rows.read_all(connection)
                if self._authorizer.allows(connection, "describe", "topic", partition.topic)
            }

    def history_mark(self) -> str:
        """A short text for whoever keeps offsets outside of the file: `history_departure` tells by it later
        whether they still are offsets of this file and of what has happened in it."""
        with self._store.read() as connection:
            return history.mark(connection)

    def history_departure(self, mark: str) -> str | None:
        """None when what was so at the mark has stayed so; else why it has not: the path has another file
        now, or an older copy. Raises InvalidRequestError for what is no mark."""
        with self._store.read() as connection:
            return history.departure(connection, check_text("mark", mark))

    def scan(
        self,
        topic_partition: TopicPartition,
        start: int,
        end: int,
        *,
        columns: Sequence[str] = scan.COLUMNS,
        isolation_level: str = "read_committed",
        batch_size: int = 2_000,
        check_crcs: bool = True,
        skip_lost: bool = False,
    ) -> Iterator[list[tuple[Any, ...]]]:
        """The data records in [start, end) as rows, in lists of at most `batch_size`, each read when it is
        asked for: in between nothing is held.

        Raises InvalidRequestError for an unknown column or an end behind what the isolation level allows,
        OffsetOutOfRangeError when the log begins behind `start`, or behind what is to come next (unless
        `skip_lost` says to go on at the log start), UnknownTopicOrPartitionError,
        TopicAuthorizationFailedError and, unless `check_crcs` is False, CorruptRecordError.
        """
        tp = check_topic_partition(topic_partition)
        read_committed = fetch.check_isolation_level(isolation_level)
        at = check_int("start", start, 0)
        check_int("end", end, 0)
        check_int("batch_size", batch_size, 1)
        while True:
            with self._store.read() as connection:
                self._authorizer.check(connection, "read", "topic", tp.topic)
                partition = partition_rows.read(connection, tp)
                if skip_lost:
                    at = min(max(at, partition.log_start_offset), end)
                rows, at = scan.part(
                    connection,
                    partition,
                    at,
                    end,
                    columns,
                    read_committed=read_committed,
                    max_rows=batch_size,
                    check_crcs=check_crcs,
                )
            if rows:
                yield rows
            if at >= end:
                return

    def timeline(
        self,
        topic: str,
        partition: int | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        max_transactions: int = MAX_TRANSACTIONS,
        max_bins: int = MAX_BINS,
    ) -> tuple[PartitionTimeline, ...]:
        """Transactions along the offsets [start, end) of one partition, or of all by number.

        Of more than `max_transactions` in a partition only totals come, and bins, which always do.
        Raises UnknownTopicOrPartitionError, TopicAuthorizationFailedError and InvalidRequestError.
        """
        timeline.check_window(start, end, max_transactions, max_bins)
        window = (start, end, max_transactions, max_bins)
        with self._store.read() as connection:
            return tuple(timeline.read(connection, self._authorizer, topic, partition, *window))

    def dump_log(self, topic_partition: TopicPartition, offset: int = 0) -> Iterator[LoggedBatch]:
        """The stored batches from the one that holds `offset` on, read one by one.

        Raises UnknownTopicOrPartitionError and TopicAuthorizationFailedError.
        """
        tp = check_topic_partition(topic_partition)
        check_int("offset", offset, 0)
        while True:
            with self._store.read() as connection:
                self._authorizer.check(connection, "read", "topic", tp.topic)
                batch = dump.next_batch(connection, partition_rows.read(connection, tp), offset)
            if batch is None:
                return
            yield batch
            offset = batch.last_offset + 1

    def list_snapshots(self) -> list[SnapshotInfo]:
        """Every producer-state snapshot that is kept."""
        with self._store.read() as connection:
            return snapshots.kept(connection)

    def describe_snapshot(
        self, topic_partition: TopicPartition, offset: int | None = None
    ) -> list[SnapshotEntry]:
        """What the snapshot at `offset` (None: the newest) tells of each producer.

        Raises InvalidRequestError when there is no such snapshot, and UnknownTopicOrPartitionError.
        """
        tp = check_topic_partition(topic_partition)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "topic", tp.topic)
            partition_id = partition_rows.read(connection, tp).partition_id
            kept = [
                info.offset
                for info in snapshots.kept(connection)
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
                        else "; take one with `eosdb snapshots take`"
                    )
                )
            return snapshots.entries(connection, partition_id, wanted)
