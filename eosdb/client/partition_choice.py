"""Which partition a record goes to: the one asked for, its key's, or the sticky one (KIP-480)."""

from __future__ import annotations

import random

from eosdb.client.accumulator import RecordAccumulator
from eosdb.client.config import ProducerSettings
from eosdb.client.partitioner import partitioner_of
from eosdb.client.transport import Transport, call
from eosdb.clock import Clock
from eosdb.errors import ConfigError, UnknownTopicOrPartitionError
from eosdb.model import TopicPartition


class PartitionChooser:
    """Knows how many partitions the topics have, and which one is being filled."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        settings: ProducerSettings,
        accumulator: RecordAccumulator,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._settings = settings
        self._accumulator = accumulator
        self._partitioner = partitioner_of(settings.partitioner)
        self._counts: dict[str, int] = {}
        self._sticky: dict[str, int] = {}

    def partition_count(self, topic: str) -> int:
        """Asked for once. Raises UnknownTopicOrPartitionError."""
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = call(
                self._transport,
                self._clock,
                "partitions_for",
                lambda broker: broker.partitions_for(topic),
                request_timeout_ms=self._settings.request_timeout_ms,
                retry_backoff_ms=self._settings.retry_backoff_ms,
                timeout_ms=self._settings.max_block_ms,
            )
        return count

    def choose(self, topic: str, partition: int | None, key: bytes | None) -> int:
        """Raises UnknownTopicOrPartitionError, and ConfigError when a partitioner errs."""
        count = self.partition_count(topic)
        if partition is not None:
            return self._checked(topic, partition, count)
        if key is not None:
            chosen = self._partitioner(key, count)
            if not 0 <= chosen < count:
                raise ConfigError(
                    f"the partitioner chose {chosen!r} for a topic of {count} partitions"
                )
            return chosen
        sticky = self._sticky.get(topic)
        if sticky is None or not self._accumulator.has_room(TopicPartition(topic, sticky)):
            sticky = self._sticky[topic] = random.randrange(count)
        return sticky

    def _checked(self, topic: str, partition: int, count: int) -> int:
        if isinstance(partition, int) and 0 <= partition < count:
            return partition
        self._counts.pop(topic, None)  # Partitions may have been added.
        if isinstance(partition, int) and 0 <= partition < self.partition_count(topic):
            return partition
        raise UnknownTopicOrPartitionError(
            f"topic {topic!r} has partitions 0 to {count - 1}, got {partition!r}"
        )
