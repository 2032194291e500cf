"""A processor's settings, and the client settings and topics derived from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Required, TypedDict

from eosdb.client.consumer.settings import ConsumerConfig
from eosdb.client.producer.settings import ProducerConfig, ProducerSettings
from eosdb.client.transport import LocalBroker, Transport
from eosdb.errors import ConfigError
from eosdb.model.config import INT32_MAX, checked_settings
from eosdb.model.records.failure_headers import POSTPONED
from eosdb.model.records.serializing import Deserializer, Serializer
from eosdb.model.validation import check_whole
from eosdb.model.values import ConsumerRecord, MadeKey, MadeValue

_TRANSACTION_TIMEOUT_MS: Final = 10_000
"""The default of Kafka Streams: a killed copy's open transaction blocks other copies for up to this
time."""


class ProcessorConfig(TypedDict, Generic[MadeKey, MadeValue], total=False):
    """The settings of `db.processor(…)` besides the topics, the handler, the sink and the two ids.

    Attributes:
        value_deserializer: Converts a value's bytes to the handler's `record.value`. None: the bytes.
        key_deserializer: Converts a key's bytes to the handler's `record.key`. None: the bytes.
        dead_letter_topic: The topic for records that have failed at their last call; headers have the
            reason. It is created if it does not exist. None: such a record ends the run with
            HandlerFailedError.
        max_attempts: How often the handler is called for a failing record, in all: with the first call and
            those after delays. A call follows each delay, so `n` delays make at least `n + 1` calls.
        retry_delays_ms: The delays before the last calls, in ms. Later records do not wait for them. Calls
            before the first delay follow each other after `retry_backoff_ms`.
        batch: Whether the handler gets a list of records, all of one partition, instead of one record.
        max_batch: The most records in a batch.
        workers: How many records are processed at once; above 1, in threads. Records with one key are
            processed in order. In eosdb.aio its name is `concurrency`.
        transaction_size: The number of records after which a transaction is committed.
        transaction_interval_ms: The time after its first record, in ms, after which a transaction is
            committed even if more records come. It is committed earlier when none has come for 5 ms, and
            at once when the last one came after a longer pause.
        retry_backoff_ms: The pause before a call without a delay, in ms. Later records wait for it; with
            `workers`, those of the same key.
        key_serializer: Converts the keys that the handler returns to bytes. None: keys are `bytes`, `str`
            (UTF-8) or None.
        value_serializer: Converts the values that the handler returns to bytes. None: they are `bytes`,
            `str` (UTF-8) or None.
        consumer: Further settings of the consumer. Here auto_offset_reset defaults to "earliest" and
            partition_assignment_strategy to "cooperative-sticky".
        producer: Further settings of the producer. Here transaction_timeout_ms defaults to 10_000.
    """

    value_deserializer: Callable[[bytes], MadeValue] | None
    key_deserializer: Callable[[bytes], MadeKey] | None
    dead_letter_topic: str | None
    max_attempts: int
    retry_delays_ms: Sequence[int]
    batch: bool
    max_batch: int
    workers: int
    transaction_size: int
    transaction_interval_ms: int
    retry_backoff_ms: int
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    consumer: ConsumerConfig
    producer: ProducerConfig


class ProcessConfig(ProcessorConfig[MadeKey, MadeValue], total=False):
    """All keywords of `db.processor(…)`."""

    group_id: Required[str]
    transactional_id: str | None
    transport: Transport | LocalBroker | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorSettings:
    """A processor's settings, checked. Raises ConfigError naming the setting."""

    value_deserializer: Deserializer | None = None
    key_deserializer: Deserializer | None = None
    dead_letter_topic: str | None = None
    max_attempts: int = 3
    retry_delays_ms: Sequence[int] = ()
    batch: bool = False
    max_batch: int = 500
    workers: int = 1
    transaction_size: int = 500
    transaction_interval_ms: int = 100
    retry_backoff_ms: int = 100
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    consumer: ConsumerConfig = field(default_factory=lambda: ConsumerConfig())
    producer: ProducerConfig = field(default_factory=lambda: ProducerConfig())

    def __post_init__(self) -> None:
        check_whole("max_batch", self.max_batch, 1)
        check_whole("workers", self.workers, 1)
        if self.batch and self.workers > 1:
            raise ConfigError(
                f"workers: got {self.workers} with batch=True, whose handler gets a partition's records in "
                "order, one batch after the other; leave one of the two out, or run more copies"
            )
        check_whole("transaction_size", self.transaction_size, 1)
        check_whole("transaction_interval_ms", self.transaction_interval_ms, 0)
        check_whole("max_attempts", self.max_attempts, 1)
        check_whole("retry_backoff_ms", self.retry_backoff_ms, 0)
        if isinstance(self.retry_delays_ms, str) or not isinstance(self.retry_delays_ms, Sequence):
            raise ConfigError(
                f"retry_delays_ms: got {self.retry_delays_ms!r}, expected delays in ms, such as (1_000,)"
            )
        for delay in self.retry_delays_ms:
            check_whole("retry_delays_ms", delay, 1)
        if self.retry_delays_ms and self.dead_letter_topic is None:
            raise ConfigError(
                f"retry_delays_ms={self.retry_delays_ms!r} needs a dead_letter_topic, to which records go "
                "that fail after the last delay"
            )
        for name in ("key_deserializer", "value_deserializer", "enable_auto_commit"):
            if name in self.consumer:
                raise ConfigError(
                    f"consumer: got {name}, but the processor itself deserializes and commits; give the "
                    "deserializers to the processor"
                )
        for name in ("transactional_id", "key_serializer", "value_serializer"):
            if name in self.producer:
                raise ConfigError(f"producer: got {name}; give it to the processor itself")
        checked_settings(ProducerSettings, "producer", self.for_producer("checked"))

    @property
    def calls(self) -> int:
        """How often the handler is called for a failing record, in all (decisions/0110)."""
        return max(self.max_attempts, len(self.retry_delays_ms) + 1)

    def calls_before_delay(self, retries: int) -> int:
        """How often it is called in a row, after so many delays, before the next delay or the end."""
        return 1 if retries else self.calls - len(self.retry_delays_ms)

    def subscription(
        self, topics: str | Iterable[str] | re.Pattern[str], postponed: str
    ) -> tuple[str, ...] | re.Pattern[str]:
        """The topics to read: the user's, and the group's topic of postponed records. A pattern matches
        neither the dead letter topic nor other groups' postponed records."""
        dead = () if self.dead_letter_topic is None else (self.dead_letter_topic,)
        if isinstance(topics, re.Pattern):
            not_read = "|".join([*map(re.escape, dead), f"{re.escape(POSTPONED)}.*"])
            pattern = f"{re.escape(postponed)}|(?!(?:{not_read})\\Z)(?:{topics.pattern})"
            return re.compile(pattern, topics.flags)
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        if not names:
            raise ConfigError(
                "topics: got none, expected the name of a topic, several, or a pattern"
            )
        if forbidden := set(names) & {*dead, postponed}:
            raise ConfigError(
                f"topics: got {sorted(forbidden)}, to which this processor sends failed or postponed "
                "records; leave these out"
            )
        return (*names, postponed)

    def for_consumer(self) -> ConsumerConfig:
        return {
            "auto_offset_reset": "earliest",
            "partition_assignment_strategy": "cooperative-sticky",
            **self.consumer,
        }

    def for_producer(self, transactional_id: str) -> ProducerConfig:
        return {
            "max_request_size": INT32_MAX,
            "transaction_timeout_ms": _TRANSACTION_TIMEOUT_MS,
            **self.producer,
            "transactional_id": transactional_id,
        }

    def deserialized(self, record: ConsumerRecord) -> ConsumerRecord:
        """The record as the handler receives it."""
        if self.key_deserializer is None and self.value_deserializer is None:
            return record
        key, value = record.key, record.value
        if self.key_deserializer is not None and isinstance(key, bytes):
            key = self.key_deserializer(key)
        if self.value_deserializer is not None and isinstance(value, bytes):
            value = self.value_deserializer(value)
        return record._replace(key=key, value=value)
