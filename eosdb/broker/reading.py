"""The requests of readers: Fetch, ListOffsets, Metadata, waiting for new records; and DeleteRecords."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any
from uuid import UUID

from eosdb.broker.asking import Answering, Write, answers
from eosdb.broker.waiting import Listener
from eosdb.errors import EosdbError, InvalidTopicExceptionError, in_doubt
from eosdb.log import partition_rows, retention, topics
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import block as reading
from eosdb.log.reading import by_time, ends, lag
from eosdb.log.reading.block import Limits
from eosdb.model import requests
from eosdb.model.fetched import Block, FetchResult, Want
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


class ReadRequests(Answering):
    """The part of `Broker` for readers."""

    @answers(requests.Fetch)
    def fetch(self, request: requests.Fetch) -> FetchResult:
        block = self._fetch(request, Want.STORED)
        bounds = block.bounds
        return FetchResult(
            block.records(),
            bounds.high_watermark,
            bounds.last_stable_offset,
            bounds.log_start_offset,
            list(block.aborted),
            block.stop,
        )

    @answers(requests.FetchBatches)
    def _fetch_batches(self, request: requests.FetchBatches) -> Block:
        return self._fetch(request, Want.BATCHES)

    @answers(requests.FetchData)
    def fetch_data(self, request: requests.FetchData) -> Block:
        return self._fetch(request, Want.SHOWN)

    def _fetch(self, request: requests.Fetching[Any], want: Want) -> Block:
        tp = check_topic_partition(request.topic_partition)
        committed = reading.check_isolation_level(request.isolation_level)
        offset = check_int("offset", request.offset, -(2**63))
        check_int("max_records", request.max_records, 1)
        check_int("max_bytes", request.max_bytes, 0)
        with self._store.read() as connection:
            self._authorizer.check(connection, "read", "topic", tp.topic)
            partition = partition_rows.read(connection, tp)
            if request.topic_id is not None:
                topics.check_id(connection, partition.topic_id, request.topic_id)
            return reading.read(
                connection,
                partition,
                offset,
                reading.checked_bound(partition, offset, read_committed=committed),
                committed=committed,
                want=want,
                limits=Limits(request.max_records, request.max_bytes),
                check_crcs=bool(request.check_crcs),
            )

    def _idle(
        self, positions: Mapping[TopicPartition, int], *, isolation_level: IsolationLevel
    ) -> dict[TopicPartition, PartitionOffsets]:
        """The partitions with nothing to read at these positions, with their offsets. Partitions that may
        not or cannot be read are absent: `fetch` raises the reason."""
        read_committed = reading.check_isolation_level(isolation_level)
        with self._store.read() as connection:
            may_read = cache(partial(self._authorizer.allows, connection, "read", "topic"))
            return {
                partition.topic_partition: partition.offsets()
                for partition in ends.idle(connection, positions, read_committed=read_committed)
                if may_read(partition.topic)
            }

    def _have_moved(self, listed: str, *, isolation_level: IsolationLevel) -> bool:
        """Whether any of the partitions in `ends.listed` has another end for this isolation level, or is
        gone. Not authorized: the read that follows is."""
        read_committed = reading.check_isolation_level(isolation_level)
        with self._store.read() as connection:
            return ends.have_moved(connection, listed, read_committed=read_committed)

    @answers(requests.ListOffsets)
    def list_offsets(self, request: requests.ListOffsets) -> OffsetAndTimestamp:
        tp = check_topic_partition(request.topic_partition)
        read_committed = reading.check_isolation_level(request.isolation_level)
        check_int("timestamp", request.timestamp, -3)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "topic", tp.topic)
            partition = partition_rows.read(connection, tp)
            return by_time.list_offset(
                connection, partition, request.timestamp, read_committed=read_committed
            )

    @answers(requests.Offsets)
    def offsets(self, request: requests.Offsets) -> PartitionOffsets:
        tp = check_topic_partition(request.topic_partition)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "topic", tp.topic)
            return partition_rows.read(connection, tp).offsets()

    @answers(requests.Lag)
    def lag(self, request: requests.Lag) -> Lag:
        tp = check_topic_partition(request.topic_partition)
        read_committed = reading.check_isolation_level(request.isolation_level)
        check_int("offset", request.offset, 0)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "topic", tp.topic)
            partition = partition_rows.read(connection, tp)
            return lag.measure(connection, partition, request.offset, read_committed=read_committed)

    def topics(self) -> list[str]:
        """The names of all topics the principal may describe."""
        return list(self._topic_partitions())

    @answers(requests.TopicPartitions)
    def _topic_partitions(self, request: requests.TopicPartitions) -> dict[str, int]:
        with self._store.read() as connection:
            return {
                name: count
                for name, count in topics.partition_counts(connection)
                if self._authorizer.allows(connection, "describe", "topic", name)
            }

    def _every_partition_count(self) -> dict[str, int]:
        """The number of partitions of every topic, for requests that need a right on the cluster and none
        on topics. No authorization is checked."""
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

    def _topic_names(self) -> dict[UUID, str]:
        """The names of all topics by id, for requests that name topics by id. No authorization is
        checked: the request that uses the names is authorized itself."""
        with self._store.read() as connection:
            return topics.names(connection)

    @answers(requests.Topic)
    def topic(self, request: requests.Topic) -> TopicMetadata:
        name = request.topic
        check_text("topic", name, InvalidTopicExceptionError)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "topic", name)
            matches = topics.metadata(connection, name)
            if matches:
                return matches[0]
            check_topic_name(name)
            if not (request.may_create and self._config.auto_create_topics_enable):
                raise topics.unknown(connection, name)
        self._coordinator.write(lambda unit: self._core.ensure_topic(unit, name))
        topic: TopicMetadata = self.topic(name, may_create=request.may_create)
        return topic

    @answers(requests.AlterTopicConfig)
    def _alter_topic_config(self, request: requests.AlterTopicConfig) -> Write[None]:
        def alter(unit: Unit) -> None:
            event = self._core.altered(unit, request)
            if event is not None:
                unit.record(event)

        return Write(alter)

    def cluster_id(self) -> str:
        """The id of the file, which Kafka's clients see as the cluster id."""
        with self._store.read() as connection:
            return file_id.read(connection)

    def partitions_for(self, topic: str) -> int:
        """How many partitions the topic has; with auto_create_topics_enable it is created if absent."""
        return self.topic(topic).partitions

    @answers(requests.DataVersion)
    def _data_version(self, request: requests.DataVersion) -> int:
        return self._store.data_version()

    @answers(requests.WaitForChange)
    def _wait_for_change(self, request: requests.WaitForChange) -> int:
        with self._listener() as listener:
            return listener.wait(request.version, request.timeout_ms, request.cancelled)

    def _listener(self) -> Listener:
        """A listener that can be reused, for callers that would call `wait_for_change` repeatedly."""
        return Listener(self._store, self._clock)

    @answers(requests.DeleteRecords)
    def delete_records(self, request: requests.DeleteRecords) -> int:
        tp = check_topic_partition(request.topic_partition)
        check_int("before_offset", request.before_offset, -(2**63))
        reached: int | None = None
        target = request.before_offset
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
                    in_doubt(error)  # Some records are deleted; another call deletes the rest.
                raise
        self._delete_rows([partition.partition_id])
        return target
