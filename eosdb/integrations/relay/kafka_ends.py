"""A Kafka cluster as the source and as the target of a relay."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from eosdb.errors import MessageTooLargeError, OffsetOutOfRangeError
from eosdb.integrations.relay import planning, values
from eosdb.integrations.relay.kafka_client import TIMEOUT_S, KafkaClient
from eosdb.integrations.relay.status import POSITIONS_CONFIG
from eosdb.model.values import TopicPartition

_MEMORY_KB: Final = 16_384
_FIRST_S: Final = 0.5
_MORE_S: Final = 0.02
_ALL_AT_ONCE: Final = 2_000
_AT_ONCE: Final = 500
"""The number of records consumed between two checks of their size."""


class KafkaSource:
    """Reads with a read_committed consumer without a group. A transaction of the source may arrive in
    parts: the protocol does not show a consumer of several partitions where a transaction ends."""

    def __init__(self, client: KafkaClient) -> None:
        self._client: Final = client
        self.where: Final = client.where
        self._consumer: Any = None
        self._topics: Sequence[values.SourceTopic] = ()
        self._positions: dict[TopicPartition, int] = {}
        self._ended: dict[TopicPartition, int] = {}
        """The offsets at which the consumer last reached the ends of partitions."""

    def id(self) -> str:
        return self._client.cluster_id()

    def topics(self, requested: Iterable[str] | None) -> list[values.SourceTopic]:
        partitions = self._client.partitions()
        names = planning.wanted(partitions, requested, self.where)
        ids, configs = self._client.topic_ids(names), self._client.configs(names)
        if lacking := [name for name in names if name not in ids]:
            raise values.InterruptedRelayError(f"{self.where}: topic {lacking[0]} was deleted")
        return [
            values.SourceTopic(name, ids[name], partitions[name], _own(configs.get(name, {})))
            for name in names
        ]

    def departure(self, mark: str) -> str | None:
        return None

    def mark(self) -> str:
        return ""

    def bounds(self, topics: Sequence[values.SourceTopic]) -> dict[TopicPartition, values.Bounds]:
        consumer, result = self._connected(), {}
        consumer.unassign()  # A pending fetch would delay later requests.
        for topic in topics:
            for number in range(topic.partitions):
                with self._client.translating():
                    low, high = consumer.get_watermark_offsets(
                        self._client.module.TopicPartition(topic.name, number), timeout=15
                    )
                if low < 0 or high < 0:
                    raise values.InterruptedRelayError(
                        f"{self.where}: the start and end of {topic.name}-{number} are unknown"
                    )
                result[TopicPartition(topic.name, number)] = values.Bounds(low, high)
        return result

    def begin(
        self, topics: Sequence[values.SourceTopic], starts: Mapping[TopicPartition, int]
    ) -> None:
        self._topics, self._positions, self._ended = topics, dict(starts), {}
        kind = self._client.module.TopicPartition
        with self._client.translating():
            self._connected().assign([kind(*tp, offset) for tp, offset in starts.items()])

    def read(self, limits: values.RelayLimits) -> values.Chunk:
        consumer = self._connected()
        records: list[values.RelayRecord] = []
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
        return values.Chunk(records, positions)

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
            raise values.InterruptedRelayError(
                f"{self.where}: {tp}: the next offset no longer exists"
            )
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
                raise values.InterruptedRelayError(f"{self.where}: topic {topic.name} was deleted")

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

    def _connected(self) -> Any:
        if self._consumer is None:
            self._consumer = self._client.consumer(**{"queued.max.messages.kbytes": _MEMORY_KB})
        return self._consumer


def _own(config: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: entry.value
        for name, entry in config.items()
        if entry.value is not None and entry.source == 1  # 1 is DYNAMIC_TOPIC_CONFIG
    }


def record_of(message: Any) -> values.RelayRecord:
    kind, timestamp = message.timestamp()
    return values.RelayRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp if kind else None,
        message.key(),
        message.value(),
        message.headers() or (),
    )


Hidden = Literal["refuse", "wait", "skip"]
"""What to do if an open transaction hides records: refuse, wait, or skip them."""
_END_WAIT_MS: Final = 20
"""How long a fetch at the end of a partition waits, where no more records are expected, or only markers."""
_LOOK_S: Final = 0.05
"""How long `consume` waits for the requested number of messages, also at the end of a partition."""


def all_records(
    client: KafkaClient,
    tp: TopicPartition,
    ended: list[int],
    *,
    hidden: Hidden,
) -> Iterator[values.RelayRecord]:
    """Yield the committed records of the partition, from its start to its end, which is put into `ended`.
    `hidden` decides what happens if an open transaction hides records. Raises InterruptedRelayError."""
    start, high = client.start(*tp), client.high_watermark(*tp)
    consumer = client.consumer(
        **{
            "queued.max.messages.kbytes": 2 * _MEMORY_KB,
            "check.crcs": True,
            "fetch.wait.max.ms": _END_WAIT_MS,
            "fetch.error.backoff.ms": _END_WAIT_MS,
        }
    )
    kafka = client.module
    try:
        consumer.assign([kafka.TopicPartition(*tp, start)])
        idle_s = 0.0
        while True:
            with client.translating():
                messages = consumer.consume(_ALL_AT_ONCE, _LOOK_S)
            idle_s = 0.0 if messages else idle_s + _LOOK_S
            if idle_s >= TIMEOUT_S:
                raise values.InterruptedRelayError(
                    f"{client.where}: {tp} could not be read to its end; another transaction may hold it "
                    "back"
                )
            for message in messages:
                error = message.error()
                if error is None:
                    yield record_of(message)
                elif error.code() != kafka.KafkaError._PARTITION_EOF:
                    if not error.retriable():
                        raise client.meaning(error, tp.topic)
                elif message.offset() >= high or hidden == "skip":
                    ended.append(message.offset())
                    return
                elif hidden == "refuse":
                    raise values.InterruptedRelayError(
                        f"{client.where}: {tp} can be read up to offset {message.offset()} of {high}: a "
                        "transaction is open there"
                    )
    finally:
        consumer.close()


_BATCH_BYTES: Final = 1_000_000
_ROOM_IN_BATCH: Final = 1_000
"""Space in a batch for everything but its records."""
_ANY_SIZE: Final = 1_000_000_000
_STEP_S: Final = 1.0
_ABORT_S: Final = 5.0
_ONE_MS: Final = 1
"""Replaces the timestamp 0, which librdkafka takes for "now"."""


class KafkaTarget:
    """Writes with a transactional producer. After any failure the producer is dropped; the next producer's
    `init_transactions` shows the outcome of the transaction."""

    def __init__(self, client: KafkaClient, positions_topic: str) -> None:
        self._client: Final = client
        self._positions: Final = positions_topic
        self.where: Final = client.where
        self._producer: Any = None
        self._is_open = False
        self._error: Any = None
        self._error_topic = ""
        self._refused: list[values.RelayRecord] = []
        self._batch_bytes = _BATCH_BYTES
        self._transactional_id = ""
        self._stopped: Callable[[], bool] = lambda: False

    def id(self) -> str:
        return self._client.cluster_id()

    def ready(self) -> None:
        if self._positions not in self._client.partitions():
            self._client.create(self._positions, 1, POSITIONS_CONFIG)

    def take_over(self, transactional_id: str, stopped: Callable[[], bool]) -> None:
        self._transactional_id, self._stopped = transactional_id, stopped
        self._producer = self._client.producer(
            **{
                "transactional.id": transactional_id,
                "enable.idempotence": True,
                "delivery.report.only.error": True,
                "on_delivery": self._failed,
                "batch.size": self._batch_bytes,
                "message.max.bytes": _ANY_SIZE,  # The cluster enforces its own limit.
            }
        )
        with self._client.translating():
            self._call(self._producer.init_transactions, TIMEOUT_S)

    def _call(self, call: Any, timeout_s: float) -> None:
        """Repeat a call, which must allow this after a time-out, in short steps up to `timeout_s`."""
        for _ in range(max(int(timeout_s / _STEP_S), 1)):
            try:
                return call(_STEP_S)  # type: ignore[no-any-return]
            except self._client.module.KafkaException as error:
                failed = error
            finally:
                self._producer.poll(0)  # Delivers librdkafka's own reports.
            if not failed.args[0].retriable() or self._stopped():
                break
        raise failed

    def position_records(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield the records of the position topic, also of other relays. Waits for its transactions."""
        tp = TopicPartition(self._positions, 0)
        for record in all_records(self._client, tp, [], hidden="wait"):
            yield record.key, record.value

    def facts(self, topics: Iterable[str]) -> dict[str, values.TopicFacts]:
        partitions = self._client.partitions()
        names = [name for name in topics if name in partitions]
        configs, ids = self._client.configs(names), self._client.topic_ids(names)
        result = {}
        for name, config in configs.items():
            kind, most = config.get("message.timestamp.type"), config.get("max.message.bytes")
            result[name] = values.TopicFacts(
                partitions[name],
                kind is not None and kind.value == "LogAppendTime",
                None if most is None else int(most.value),
                ids.get(name, ""),
            )
        self._fit(result.values())
        return result

    def _fit(self, facts: Iterable[values.TopicFacts]) -> None:
        """Limit the batch size to the topics' limits, so that the cluster refuses a batch only if a single
        record is too large."""
        limits = [fact.max_message_bytes for fact in facts if fact.max_message_bytes is not None]
        most = max(min([self._batch_bytes, *(size - _ROOM_IN_BATCH for size in limits)]), 1)
        if most < self._batch_bytes:
            self._batch_bytes = most
            if self._producer is not None:
                self._give_up()
                self.take_over(self._transactional_id, self._stopped)

    def create(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        self._client.create(name, partitions, planning.config_to_copy(config))

    def write(self, records: Sequence[values.RelayRecords]) -> None:
        producer = self._producer
        assert producer is not None, "no transactional id has been taken"
        self._error, self._refused = None, []
        with self._client.translating():
            producer.begin_transaction()
            self._is_open = True
            for record in records:
                self._produce(producer, record)
            try:
                self._call(producer.commit_transaction, self._client.transaction_s)
            except self._client.module.KafkaException as error:
                if self._refused:
                    self._call(producer.abort_transaction, TIMEOUT_S)
                    self._is_open = False
                    message = f"{self.where}, topic {self._error_topic}: {self._error.str()}"
                    raise values.TooLargeError(message, self._refused) from None
                failed = error.args[0]
                if failed.fatal() or self._error is None:
                    raise self._client.meaning(failed) from None
                raise self._client.meaning(self._error, self._error_topic) from None
            self._is_open = False

    def _produce(self, producer: Any, record: values.RelayRecords) -> None:
        origin = record.origin
        arguments: dict[str, Any] = {}
        if record.timestamp is not None:
            arguments["timestamp"] = max(record.timestamp, _ONE_MS)
        if origin is not None:
            arguments["on_delivery"] = functools.partial(self._failed, origin=origin)
        while True:
            try:
                return producer.produce(  # type: ignore[no-any-return]
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    headers=list(record.headers) or None,
                    **arguments,
                )
            except BufferError:
                if self._error is not None:
                    raise self._client.meaning(self._error, self._error_topic) from None
                producer.poll(0.1)

    def _failed(self, error: Any, message: Any, origin: values.RelayRecord | None = None) -> None:
        if error is None:
            return
        kafka = self._client.module.KafkaError
        if error.code() == MessageTooLargeError.code:
            if origin is not None:
                self._refused.append(origin)
                self._error, self._error_topic = error, message.topic()
        elif self._error is None and error.code() not in (
            kafka._PURGE_QUEUE,
            kafka._PURGE_INFLIGHT,
        ):
            self._error, self._error_topic = error, message.topic()

    def release(self) -> None:
        self._give_up()
        self._client.rest()

    def _give_up(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        with contextlib.suppress(Exception):
            # After an abort, readers need not wait for the transaction's time-out. If the abort fails, the
            # next producer with this transactional id aborts the transaction.
            if self._is_open:
                producer.purge()
                producer.abort_transaction(_ABORT_S)
        self._is_open = False
        with contextlib.suppress(Exception):
            producer.purge()
