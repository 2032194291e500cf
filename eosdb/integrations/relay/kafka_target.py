"""A Kafka cluster as the target of a relay."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from eosdb.errors import MessageTooLargeError
from eosdb.integrations.relay import planning
from eosdb.integrations.relay.failure import InterruptedRelayError, TooLargeError
from eosdb.integrations.relay.kafka_client import TIMEOUT_S, KafkaClient
from eosdb.integrations.relay.positions import POSITIONS_CONFIG
from eosdb.integrations.relay.values import Outgoing, RelayRecord, TopicFacts

_BATCH_BYTES: Final = 1_000_000
_ROOM_IN_BATCH: Final = 1_000
"""Space in a batch for everything but its records."""
_ANY_SIZE: Final = 1_000_000_000
_POSITIONS_WAIT_MS: Final = 20
"""How long a fetch at the end of the positions waits: the records exist, only markers follow."""
_STEP_S: Final = 1.0
_ABORT_S: Final = 5.0
_ONE_MS: Final = 1
"""Replaces the timestamp 0, which librdkafka takes for "now"."""


class KafkaTarget:
    """Writes with a transactional producer. After any failure the producer is dropped;
    `init_transactions` of the next one learns the outcome of the transaction."""

    def __init__(self, client: KafkaClient, positions_topic: str) -> None:
        self._client: Final = client
        self._positions: Final = positions_topic
        self.where: Final = client.where
        self._producer: Any = None
        self._is_open = False
        self._error: Any = None
        self._error_topic = ""
        self._refused: list[RelayRecord] = []
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
                "message.max.bytes": _ANY_SIZE,  # The cluster's own limit applies.
            }
        )
        with self._client.translating():
            self._call(self._producer.init_transactions, TIMEOUT_S)

    def _call(self, call: Any, timeout_s: float) -> None:
        """Repeat a call that is repeatable after a time-out, in short steps."""
        for _ in range(max(int(timeout_s / _STEP_S), 1)):
            try:
                return call(_STEP_S)  # type: ignore[no-any-return]
            except self._client.module.KafkaException as error:
                failed = error
            finally:
                self._producer.poll(0)  # Serves librdkafka's own reports.
            if not failed.args[0].retriable() or self._stopped():
                break
        raise failed

    def position_records(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Includes records of other relays, and waits for their open transactions."""
        consumer = self._client.consumer(
            **{
                "fetch.wait.max.ms": _POSITIONS_WAIT_MS,
                "fetch.error.backoff.ms": _POSITIONS_WAIT_MS,
            }
        )
        kafka = self._client.module
        start = self._client.start(self._positions, 0)
        end = self._client.high_watermark(self._positions, 0)
        try:
            consumer.assign([kafka.TopicPartition(self._positions, 0, start)])
            at = 0
            while at < end:
                message = consumer.poll(TIMEOUT_S)
                if message is None:
                    raise InterruptedRelayError(
                        f"{self.where}: the positions in {self._positions} could not be read to their end; "
                        "another transaction may hold them back"
                    )
                if message.error() is None:
                    at = message.offset() + 1
                    yield message.key(), message.value()
                elif message.error().code() == kafka.KafkaError._PARTITION_EOF:
                    at = message.offset()
                elif not message.error().retriable():
                    raise self._client.meaning(message.error())
        finally:
            consumer.close()

    def facts(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        partitions = self._client.partitions()
        names = [name for name in topics if name in partitions]
        configs, ids = self._client.configs(names), self._client.topic_ids(names)
        result = {}
        for name, config in configs.items():
            kind, most = config.get("message.timestamp.type"), config.get("max.message.bytes")
            result[name] = TopicFacts(
                partitions[name],
                kind is not None and kind.value == "LogAppendTime",
                None if most is None else int(most.value),
                ids.get(name, ""),
            )
        self._fit(result.values())
        return result

    def _fit(self, facts: Iterable[TopicFacts]) -> None:
        """Limit the batch size to that of the topics, so that a batch is refused only if a single record
        is too large."""
        limits = [fact.max_message_bytes for fact in facts if fact.max_message_bytes is not None]
        most = max(min([self._batch_bytes, *(size - _ROOM_IN_BATCH for size in limits)]), 1)
        if most < self._batch_bytes:
            self._batch_bytes = most
            if self._producer is not None:
                self._give_up()
                self.take_over(self._transactional_id, self._stopped)

    def create(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        self._client.create(name, partitions, planning.config_to_copy(config))

    def write(self, records: Sequence[Outgoing]) -> None:
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
                    raise TooLargeError(message, self._refused) from None
                failed = error.args[0]
                if failed.fatal() or self._error is None:
                    raise self._client.meaning(failed) from None
                raise self._client.meaning(self._error, self._error_topic) from None
            self._is_open = False

    def _produce(self, producer: Any, record: Outgoing) -> None:
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

    def _failed(self, error: Any, message: Any, origin: RelayRecord | None = None) -> None:
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
            # Spares readers of the topics the time-out. If it fails, the next producer of this
            # transactional id does it.
            if self._is_open:
                producer.purge()
                producer.abort_transaction(_ABORT_S)
        self._is_open = False
        with contextlib.suppress(Exception):
            producer.purge()

    def close(self) -> None:
        self.release()
