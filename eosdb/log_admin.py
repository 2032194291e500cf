"""What operators look at in the log itself: stored batches (kafka-dump-log.sh) and snapshots."""

from __future__ import annotations

from collections.abc import Iterator

from eosdb.coordinator.request_handler import RequestHandler
from eosdb.errors import InvalidRequestError
from eosdb.log import dump, partitions, snapshots
from eosdb.model import SnapshotInfo, TopicPartition
from eosdb.reports import LoggedBatch, SnapshotEntry
from eosdb.validation import check_int, check_topic_partition


class LogAdmin(RequestHandler):
    """The part of `Database.admin` that is about stored batches and snapshots."""

    def dump_log(self, topic_partition: TopicPartition, offset: int = 0) -> Iterator[LoggedBatch]:
        """The stored batches from the one that holds `offset` on, read one by one.

        Raises UnknownTopicOrPartitionError and TopicAuthorizationFailedError.
        """
        tp = check_topic_partition(topic_partition)
        check_int("offset", offset, 0)
        while True:
            with self._store.read() as connection:
                self._authorizer.check(connection, "read", "topic", tp.topic)
                batch = dump.next_batch(connection, partitions.read(connection, tp), offset)
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
            partition_id = partitions.read(connection, tp).partition_id
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
