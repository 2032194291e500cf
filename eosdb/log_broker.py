"""The requests about one partition's log, by their Kafka names: reading, looking up, deleting."""

from __future__ import annotations

from eosdb.broker.reading import LogRequests
from eosdb.clock import Clock
from eosdb.config import BrokerConfig
from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.coordinator import TransactionCoordinator
from eosdb.model.reports import Lag
from eosdb.model.values import (
    FetchedData,
    FetchResult,
    OffsetAndTimestamp,
    PartitionOffsets,
    TopicPartition,
)
from eosdb.store.store import Store


class LogBroker:
    """The part of the broker that readers talk to."""

    def __init__(
        self,
        store: Store,
        coordinator: TransactionCoordinator,
        clock: Clock,
        config: BrokerConfig,
        authorizer: Authorizer,
    ) -> None:
        self._log = LogRequests(store, coordinator, clock, config, authorizer)

    def fetch(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        isolation_level: str = "read_uncommitted",
        max_records: int = 500,
        max_bytes: int = 52_428_800,
        check_crcs: bool = True,
    ) -> FetchResult:
        """Records from `offset` on, control records and aborted data included.

        Under read_committed they stop at the last stable offset, and `aborted_transactions` tells
        the reader what to leave out. At least one record is returned when there is one. Raises
        OffsetOutOfRangeError, UnknownTopicOrPartitionError, TopicAuthorizationFailedError and, unless
        `check_crcs` is False, CorruptRecordError when the first record is not what was written.
        """
        return self._log.fetch(
            topic_partition, offset, isolation_level, max_records, max_bytes, check_crcs
        )

    def fetch_data(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        isolation_level: str = "read_uncommitted",
        max_records: int = 500,
        max_bytes: int = 52_428_800,
        check_crcs: bool = True,
    ) -> FetchedData:
        """What a reader is to see of what `fetch` answers, for those who take very many records, such as
        consumers: column by column, without control records and, under read_committed, without what
        transactions took back. These count for `max_records`, too, so there may be less, even nothing,
        and more from `next_offset` on.
        """
        return self._log.fetch_data(
            topic_partition, offset, isolation_level, max_records, max_bytes, check_crcs
        )

    def list_offsets(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        *,
        isolation_level: str = "read_uncommitted",
    ) -> OffsetAndTimestamp:
        """The first offset at or after a time (ms), or EARLIEST, LATEST, MAX_TIMESTAMP."""
        return self._log.list_offsets(topic_partition, timestamp, isolation_level)

    def offsets(self, topic_partition: TopicPartition) -> PartitionOffsets:
        """Where the partition begins, ends, and becomes readable."""
        return self._log.offsets(topic_partition)

    def lag(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        isolation_level: str = "read_committed",
    ) -> Lag:
        """How many records a reader at `offset` could take now; with it, how many are held back behind
        the last stable offset, and how many offsets are markers and aborted data."""
        return self._log.lag(topic_partition, offset, isolation_level)

    def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        """Delete records below an offset (-1: all). Returns the log start offset.

        Raises OffsetOutOfRangeError, PolicyViolationError, UnknownTopicOrPartitionError and
        TopicAuthorizationFailedError.
        """
        return self._log.delete_records(topic_partition, before_offset)
