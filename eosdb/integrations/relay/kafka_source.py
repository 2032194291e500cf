"""A Kafka cluster as the source of a relay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from eosdb.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from eosdb.integrations.relay import planning
from eosdb.integrations.relay.failure import InterruptedRelayError
from eosdb.integrations.relay.kafka_client import KafkaClient
from eosdb.integrations.relay.values import Bounds, Chunk, Limits, RelayRecord, SourceTopic
from eosdb.model.values import TopicPartition

_MEMORY_KB: Final = 16_384
_FIRST_S: Final = 0.5
_MORE_S: Final = 0.02
_AT_ONCE: Final = 500
"""Records consumed between two checks of their size."""


class KafkaSource:
    """Reads with a read_committed consumer without a group. A source transaction may arrive in parts: the
    protocol does not show a consumer of several partitions where a transaction ends."""

    def __init__(self, client: KafkaClient) -> None:
        self._client: Final = client
        self.where: Final = client.where
        self._consumer: Any = None
        self._topics: Sequence[SourceTopic] = ()
        self._positions: dict[TopicPartition, int] = {}
        self._ended: dict[TopicPartition, int] = {}
        """The offsets at which the consumer last reached the ends of partitions."""

    def id(self) -> str:
        return self._client.cluster_id()

    def topics(self, requested: Iterable[str] | None) -> list[SourceTopic]:
        partitions = self._client.partitions()
        names = planning.wanted(partitions, requested)
        if missing := [name for name in names if name not in partitions]:
            raise UnknownTopicOrPartitionError(f"{self.where} has no topic {missing[0]!r}")
        ids, configs = self._client.topic_ids(names), self._client.configs(names)
        if lacking := [name for name in names if name not in ids]:
            raise InterruptedRelayError(f"{self.where}: topic {lacking[0]} was deleted")
        return [
            SourceTopic(name, ids[name], partitions[name], _own(configs.get(name, {})))
            for name in names
        ]

    def departure(self, mark: str) -> str | None:
        return None

    def mark(self) -> str:
        return ""

    def bounds(self, topics: Sequence[SourceTopic]) -> dict[TopicPartition, Bounds]:
        consumer, result = self._connected(), {}
        consumer.unassign()  # A broker answers in order, and a fetch would wait for records.
        for topic in topics:
            for number in range(topic.partitions):
                with self._client.translating():
                    low, high = consumer.get_watermark_offsets(
                        self._client.module.TopicPartition(topic.name, number), timeout=15
                    )
                if low < 0 or high < 0:
                    raise InterruptedRelayError(
                        f"{self.where}: {topic.name}-{number} does not tell where it begins and ends"
                    )
                result[TopicPartition(topic.name, number)] = Bounds(low, high)
        return result

    def begin(self, topics: Sequence[SourceTopic], starts: Mapping[TopicPartition, int]) -> None:
        self._topics, self._positions, self._ended = topics, dict(starts), {}
        kind = self._client.module.TopicPartition
        with self._client.translating():
            self._connected().assign([kind(*tp, offset) for tp, offset in starts.items()])

    def read(self, limits: Limits) -> Chunk:
        consumer = self._connected()
        records: list[RelayRecord] = []
        positions: dict[TopicPartition, int] = {}
        size, timeout = 0, _FIRST_S
        while len(records) < limits.records and size < limits.bytes:
            most = min(limits.records - len(records), _AT_ONCE if records else 1)
            with self._client.translating():
                messages = consumer.consume(most, timeout)
            if not messages and (records or timeout == _FIRST_S):
                self._client.check_connected()
                break
            for message in messages:
                tp = TopicPartition(message.topic(), message.partition())
                if message.error() is not None:
                    self._event(tp, message, positions)
                    continue
                record = record_of(message)
                records.append(record)
                size += record.size
                positions[tp] = record.offset + 1
            timeout = _MORE_S
            if not records and self.is_caught_up():
                break
        if positions:
            self._check_topics()
            self._positions |= positions
        return Chunk(records, positions)

    def _event(
        self, tp: TopicPartition, message: Any, positions: dict[TopicPartition, int]
    ) -> None:
        """Handle a message that is not a record: the end of a partition, or an error."""
        error, kafka = message.error(), self._client.module.KafkaError
        if error.code() == kafka._PARTITION_EOF:
            self._ended[tp] = message.offset()
            if message.offset() > positions.get(tp, self._positions.get(tp, 0)):
                positions[tp] = message.offset()
        elif error.code() in (kafka._AUTO_OFFSET_RESET, OffsetOutOfRangeError.code):
            raise InterruptedRelayError(f"{self.where}: {tp}: the next offset is no longer there")
        elif not error.retriable() and error.code() not in (
            kafka._ALL_BROKERS_DOWN,
            kafka._TRANSPORT,
        ):
            raise self._client.meaning(error)

    def _check_topics(self) -> None:
        """Check that the topics still have their ids: the offsets of a recreated topic are new ones."""
        ids = self._client.topic_ids(topic.name for topic in self._topics)
        for topic in self._topics:
            if ids.get(topic.name) != topic.topic_id:
                raise InterruptedRelayError(f"{self.where}: topic {topic.name} was deleted")

    def ends(self) -> dict[TopicPartition, int]:
        consumer, reached = self._connected(), dict(self._ended)
        for tp in self._positions:
            offsets = consumer.get_watermark_offsets(
                self._client.module.TopicPartition(*tp), cached=True
            )
            if offsets is not None and tp not in reached:
                reached[tp] = offsets[1]
        return {tp: max(end, self._positions[tp]) for tp, end in reached.items() if end >= 0}

    def is_caught_up(self) -> bool:
        return all(self._ended.get(tp, -1) >= at for tp, at in self._positions.items())

    def wait(self, timeout_ms: int, stopped: Callable[[], bool]) -> None:
        """Does nothing: `read` waits for the next record."""

    def note(self, relay: str, positions: Mapping[TopicPartition, int]) -> None:
        """Does nothing: the relay commits no offsets in the source cluster."""

    def rest(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._client.rest()

    def close(self) -> None:
        self.rest()

    def _connected(self) -> Any:
        if self._consumer is None:
            self._consumer = self._client.consumer(**{"queued.max.messages.kbytes": _MEMORY_KB})
        return self._consumer


def _own(config: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: entry.value
        for name, entry in config.items()
        if entry.value is not None and entry.source == 1  # DYNAMIC_TOPIC_CONFIG
    }


def record_of(message: Any) -> RelayRecord:
    kind, timestamp = message.timestamp()
    return RelayRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp if kind else None,
        message.key(),
        message.value(),
        message.headers() or (),
    )
