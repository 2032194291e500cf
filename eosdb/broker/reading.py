"""The requests of readers: Fetch, ListOffsets, Metadata, waiting for new records; and DeleteRecords."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TypeVar
from uuid import UUID

from eosdb.broker.handler import RequestHandler
from eosdb.broker.waiting import Listener
from eosdb.errors import EosdbError, InvalidTopicExceptionError, in_doubt
from eosdb.log import partition_rows, retention, topics
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import by_time, ends, fetch, lag
from eosdb.model.fetched import FetchedColumns, FetchedData, FetchResult
from eosdb.model.reports import Lag
from eosdb.model.validation import check_int, check_text, check_topic_name, check_topic_partition
from eosdb.model.values import (
    IsolationLevel,
    OffsetAndTimestamp,
    PartitionOffsets,
    TopicMetadata,
    TopicPartition,
)
from eosdb.store.schema import file_id
from eosdb.store.writing.unit import Unit

T = TypeVar("T")


class ReadRequests(RequestHandler):
    """The part of `Broker` for readers."""

    def fetch(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        max_records: int = 500,
        max_bytes: int = 52_428_800,
        check_crcs: bool = True,
    ) -> FetchResult:
        """Records from `offset` on, control records and aborted data included.

        Under read_committed they end at the last stable offset, and `aborted_transactions` lists the
        transactions to filter out. At least one record is returned if there is one. Raises
        OffsetOutOfRangeError, UnknownTopicOrPartitionError, TopicAuthorizationFailedError and, unless
        `check_crcs` is False, CorruptRecordError if the first record fails its checksum.
        """
        return self._fetch(
            fetch.fetch,
            topic_partition,
            offset,
            isolation_level,
            max_records=max_records,
            max_bytes=max_bytes,
            check_crcs=check_crcs,
        )

    def fetch_columns(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        max_records: int = 500,
        max_bytes: int = 52_428_800,
        check_crcs: bool = True,
        as_batches: bool = False,
    ) -> FetchedColumns:
        """What `fetch` returns, as columns: for callers that forward very many records. With `as_batches`
        they may come as record batches of at most `max_bytes` instead."""
        return self._fetch(
            partial(fetch.fetch_columns, as_batches=as_batches),
            topic_partition,
            offset,
            isolation_level,
            max_records=max_records,
            max_bytes=max_bytes,
            check_crcs=check_crcs,
        )

    def fetch_data(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        max_records: int = 500,
        max_bytes: int = 52_428_800,
        check_crcs: bool = True,
        topic_id: UUID | None = None,
    ) -> FetchedData:
        """The records of `fetch` as columns, for callers that read very many records, such as consumers:
        without control records and, under read_committed, without aborted data.

        Records that are left out count towards `max_records`, so the result may have fewer records, even
        none, although more follow at `next_offset`. Raises UnknownTopicIdError if the topic's id is not
        `topic_id`.
        """
        return self._fetch(
            fetch.fetch_data,
            topic_partition,
            offset,
            isolation_level,
            max_records=max_records,
            max_bytes=max_bytes,
            check_crcs=check_crcs,
            topic_id=topic_id,
        )

    def _fetch(
        self,
        read: Callable[..., T],
        topic_partition: TopicPartition,
        offset: int,
        isolation_level: IsolationLevel,
        *,
        max_records: int,
        max_bytes: int,
        check_crcs: bool,
        topic_id: UUID | None = None,
    ) -> T:
        tp = check_topic_partition(topic_partition)
        read_committed = fetch.check_isolation_level(isolation_level)
        check_int("offset", offset, -(2**63))
        check_int("max_records", max_records, 1)
        check_int("max_bytes", max_bytes, 0)
        with self._store.read() as connection:
            self._authorizer.check(connection, "read", "topic", tp.topic)
            partition = partition_rows.read(connection, tp)
            if topic_id is not None:
                topics.check_id(connection, partition.topic_id, topic_id)
            return read(
                connection,
                partition,
                offset,
                read_committed=read_committed,
                max_records=max_records,
                max_bytes=max_bytes,
                check_crcs=bool(check_crcs),
            )

    def idle(
        self, positions: Mapping[TopicPartition, int], *, isolation_level: IsolationLevel
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Those partitions that have nothing to read at these positions, with their offsets. What may not
        or cannot be read is left out: `fetch` raises why."""
        read_committed = fetch.check_isolation_level(isolation_level)
        with self._store.read() as connection:
            may_read = cache(partial(self._authorizer.allows, connection, "read", "topic"))
            return {
                partition.topic_partition: partition.offsets()
                for partition in ends.idle(connection, positions, read_committed=read_committed)
                if may_read(partition.topic)
            }

    def have_moved(self, listed: str, *, isolation_level: IsolationLevel) -> bool:
        """Whether for this isolation level any of the partitions in `ends.listed` ends elsewhere, or is
        gone. Who hears of it reads them, and is authorized then."""
        read_committed = fetch.check_isolation_level(isolation_level)
        with self._store.read() as connection:
            return ends.have_moved(connection, listed, read_committed=read_committed)

    def list_offsets(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> OffsetAndTimestamp:
        """The first offset at or after a time (ms), or EARLIEST, LATEST, MAX_TIMESTAMP. Raises
        InvalidRequestError, UnknownTopicOrPartitionError and TopicAuthorizationFailedError."""
        tp = check_topic_partition(topic_partition)
        read_committed = fetch.check_isolation_level(isolation_level)
        check_int("timestamp", timestamp, -3)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "topic", tp.topic)
            partition = partition_rows.read(connection, tp)
            return by_time.list_offset(
                connection, partition, timestamp, read_committed=read_committed
            )

    def offsets(self, topic_partition: TopicPartition) -> PartitionOffsets:
        """The log start, high watermark and last stable offset. Raises UnknownTopicOrPartitionError and
        TopicAuthorizationFailedError."""
        tp = check_topic_partition(topic_partition)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "topic", tp.topic)
            return partition_rows.read(connection, tp).offsets()

    def lag(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        isolation_level: IsolationLevel = "read_committed",
    ) -> Lag:
        """How many records a reader at `offset` can get now, how many more the last stable offset holds
        back, and how many offsets are markers or aborted data. Raises InvalidRequestError,
        UnknownTopicOrPartitionError and TopicAuthorizationFailedError."""
        tp = check_topic_partition(topic_partition)
        read_committed = fetch.check_isolation_level(isolation_level)
        check_int("offset", offset, 0)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "topic", tp.topic)
            partition = partition_rows.read(connection, tp)
            return lag.measure(connection, partition, offset, read_committed=read_committed)

    def topics(self) -> list[str]:
        """The names of all topics the principal may describe."""
        return list(self.topic_partitions())

    def topic_partitions(self) -> dict[str, int]:
        """All topics the principal may describe, and how many partitions each has."""
        with self._store.read() as connection:
            return {
                name: count
                for name, count in topics.partition_counts(connection)
                if self._authorizer.allows(connection, "describe", "topic", name)
            }

    def every_partition_count(self) -> dict[str, int]:
        """How many partitions every topic has, for requests that need a right on the cluster and none on
        topics. No authorization is checked."""
        with self._store.read() as connection:
            return dict(topics.partition_counts(connection))

    def topic_metadata(self) -> list[TopicMetadata]:
        """All topics the principal may describe, with their ids."""
        with self._store.read() as connection:
            return [
                topic
                for topic in topics.metadata(connection)
                if self._authorizer.allows(connection, "describe", "topic", topic.name)
            ]

    def topic_names(self) -> dict[UUID, str]:
        """The names of all topics by their ids, for requests that name topics by id. No
        authorization is checked: the request that uses the names is authorized itself."""
        with self._store.read() as connection:
            return topics.names(connection)

    def topic(self, name: str, *, may_create: bool = True) -> TopicMetadata:
        """One topic; it is created if absent, given `may_create` and auto_create_topics_enable. Raises
        UnknownTopicOrPartitionError, InvalidTopicExceptionError and TopicAuthorizationFailedError."""
        check_text("topic", name, InvalidTopicExceptionError)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "topic", name)
            matches = topics.metadata(connection, name)
            if matches:
                return matches[0]
            check_topic_name(name)
            if not (may_create and self._config.auto_create_topics_enable):
                raise topics.unknown(connection, name)
        self._coordinator.write(lambda unit: self._core.ensure_topic(unit, name))
        return self.topic(name, may_create=may_create)

    def cluster_id(self) -> str:
        """The id of the file, which Kafka's clients see as the cluster id."""
        with self._store.read() as connection:
            return file_id.read(connection)

    def partitions_for(self, topic: str) -> int:
        """How many partitions the topic has; with auto_create_topics_enable it is created if absent."""
        return self.topic(topic).partitions

    def data_version(self) -> int:
        """A number that changes with every commit to the file, by any process."""
        return self._store.data_version()

    def wait_for_change(
        self, version: int, timeout_ms: int, cancelled: Callable[[], bool] = lambda: False
    ) -> int:
        """Wait until `data_version` differs from `version`, and return it.

        Returns after `timeout_ms` at the latest, and soon after `cancelled` returns True. Waiting costs
        almost nothing.
        """
        with self.listener() as listener:
            return listener.wait(version, timeout_ms, cancelled)

    def listener(self) -> Listener:
        """A listener that can be reused, for callers that would call `wait_for_change` repeatedly."""
        return Listener(self._store, self._clock)

    def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        """Delete records below an offset (-1: all). Returns the log start offset.

        Raises OffsetOutOfRangeError, PolicyViolationError, UnknownTopicOrPartitionError,
        UnknownTopicIdError if the topic is recreated meanwhile, and TopicAuthorizationFailedError.
        """
        tp = check_topic_partition(topic_partition)
        check_int("before_offset", before_offset, -(2**63))
        reached: int | None = None
        target = before_offset
        met: dict[str, int] = {}

        def delete(unit: Unit) -> tuple[Partition, tuple[int, int]]:
            self._authorizer.check(unit, "delete", "topic", tp.topic)
            done = f"its records below offset {reached} had been deleted, and none of a newer topic"
            topics.check_still_there(unit, met, done)
            partition = partition_rows.load(unit, tp)
            config = partition_rows.config(unit, partition.topic_id, self._config)
            now = self._clock.time_ms()
            return partition, retention.delete_records(unit, partition, target, config, now)

        while reached != target:  # In units that do not grow with the log.
            try:
                partition, (reached, target) = self._coordinator.write(delete)
                met[tp.topic] = partition.topic_id
            except EosdbError as error:
                if reached is not None:
                    in_doubt(error)  # A part has been deleted; the rest is deleted by another call.
                raise
        self._delete_rows([partition.partition_id])
        return target
