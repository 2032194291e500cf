"""The requests about one partition's log: Fetch, ListOffsets and DeleteRecords, checked and authorised."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from eosdb.broker.handler import RequestHandler
from eosdb.log import fetch, lag, partition_rows, retention
from eosdb.model.reports import Lag
from eosdb.model.values import (
    FetchedData,
    FetchResult,
    OffsetAndTimestamp,
    PartitionOffsets,
    TopicPartition,
)
from eosdb.store.writing.unit import Unit
from eosdb.validation import check_int, check_topic_partition

T = TypeVar("T")


class LogRequests(RequestHandler):
    """What the broker does with requests that name one partition."""

    def fetch(
        self,
        topic_partition: TopicPartition,
        offset: int,
        isolation_level: str,
        max_records: int,
        max_bytes: int,
        check_crcs: bool,
    ) -> FetchResult:
        """Records from `offset` on; under read_committed up to the last stable offset."""
        limits = (max_records, max_bytes)
        return self._fetch(
            fetch.fetch, topic_partition, offset, isolation_level, *limits, check_crcs
        )

    def fetch_data(
        self,
        topic_partition: TopicPartition,
        offset: int,
        isolation_level: str,
        max_records: int,
        max_bytes: int,
        check_crcs: bool,
    ) -> FetchedData:
        """What a reader is to see of it, column by column."""
        limits = (max_records, max_bytes)
        return self._fetch(
            fetch.fetch_data, topic_partition, offset, isolation_level, *limits, check_crcs
        )

    def _fetch(
        self,
        read: Callable[..., T],
        topic_partition: TopicPartition,
        offset: int,
        isolation_level: str,
        max_records: int,
        max_bytes: int,
        check_crcs: bool,
    ) -> T:
        tp = check_topic_partition(topic_partition)
        read_committed = fetch.check_isolation_level(isolation_level)
        check_int("offset", offset, -(2**63))
        check_int("max_records", max_records, 1)
        check_int("max_bytes", max_bytes, 0)
        with self._store.read() as connection:
            self._authorizer.check(connection, "read", "topic", tp.topic)
            return read(
                connection,
                partition_rows.read(connection, tp),
                offset,
                read_committed=read_committed,
                max_records=max_records,
                max_bytes=max_bytes,
                check_crcs=bool(check_crcs),
            )

    def list_offsets(
        self, topic_partition: TopicPartition, timestamp: int, isolation_level: str
    ) -> OffsetAndTimestamp:
        """The first offset at or after a time (ms), or one of the special ones."""
        tp = check_topic_partition(topic_partition)
        read_committed = fetch.check_isolation_level(isolation_level)
        check_int("timestamp", timestamp, -3)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "topic", tp.topic)
            partition = partition_rows.read(connection, tp)
            return fetch.list_offset(
                connection, partition, timestamp, read_committed=read_committed
            )

    def offsets(self, topic_partition: TopicPartition) -> PartitionOffsets:
        """Where the partition begins, ends, and becomes readable."""
        tp = check_topic_partition(topic_partition)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "topic", tp.topic)
            return partition_rows.read(connection, tp).offsets()

    def lag(self, topic_partition: TopicPartition, offset: int, isolation_level: str) -> Lag:
        """What lies between the offset and the end of the log."""
        tp = check_topic_partition(topic_partition)
        read_committed = fetch.check_isolation_level(isolation_level)
        check_int("offset", offset, 0)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "topic", tp.topic)
            partition = partition_rows.read(connection, tp)
            return lag.measure(connection, partition, offset, read_committed=read_committed)

    def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        """Move the log start; the rows below it go in units of their own."""
        tp = check_topic_partition(topic_partition)
        check_int("before_offset", before_offset, -(2**63))

        def delete(unit: Unit) -> tuple[int, int]:
            self._authorizer.check(unit, "delete", "topic", tp.topic)
            partition = partition_rows.load(unit, tp)
            config = partition_rows.config(unit, partition.topic_id, self._config)
            now = self._clock.time_ms()
            moved_to = retention.delete_records(unit, partition, before_offset, config, now)
            return partition.partition_id, moved_to

        partition_id, log_start_offset = self._coordinator.write(delete)
        write = functools.partial(self._store.write, sync=False)
        retention.delete_all_rows(write, [partition_id])
        return log_start_offset
