"""A producer's settings, under Kafka's names in snake_case, and which ones contradict each other.

Kafka switches idempotence off silently when a default contradicts it; eosdb refuses, because the silent
case is the dangerous one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from eosdb.errors import ConfigError
from eosdb.model.config import INT32_MAX
from eosdb.model.records.partitioner import Partitioner
from eosdb.model.records.serializing import Serializer
from eosdb.model.validation import check_whole


class ProducerConfig(TypedDict, total=False):
    """The settings that `db.producer(…)` accepts, besides `transport`."""

    transactional_id: str | None
    enable_idempotence: bool
    acks: str | int
    retries: int
    max_in_flight_requests_per_connection: int
    linger_ms: int
    batch_size: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    max_block_ms: int
    transaction_timeout_ms: int
    max_request_size: int
    partitioner: str | Partitioner
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    client_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """A producer's settings, checked. Raises ConfigError naming the setting and why."""

    transactional_id: str | None = None
    """The name under which the producer's transactions are known, across restarts too. None: no
    transactions."""
    enable_idempotence: bool = True
    """A batch that is sent again is stored once."""
    acks: str | int = "all"
    """Kafka's "all" (or -1), 1 or 0. There is one copy, so 1 does what "all" does; with 0 no answer is
    waited for. Idempotence needs "all"."""
    retries: int = INT32_MAX
    """How often a batch is sent again after an error that Kafka calls retriable."""
    max_in_flight_requests_per_connection: int = 5
    """Batches on the way without an answer; at most 5 with idempotence."""
    linger_ms: int = 0
    """How long records wait for others to share a commit with, in ms. 0: `send` outside of a transaction
    returns when its record is stored."""
    batch_size: int = 16_384
    """Bytes of a batch at most, unless one record is larger. Without a transport of your own it is larger
    by default."""
    delivery_timeout_ms: int = 120_000
    """After this time, in ms, a record that is not stored has failed. At least `linger_ms` +
    `request_timeout_ms`."""
    request_timeout_ms: int = 30_000
    """How long one request waits for its answer, in ms, before it is sent again."""
    retry_backoff_ms: int = 100
    """The pause before a request is sent again, in ms."""
    max_block_ms: int = 60_000
    """How long a call waits for the coordinator, for partitions or for room in the buffer, in ms."""
    transaction_timeout_ms: int = 60_000
    """How long a transaction may stay open, in ms, before the coordinator aborts it."""
    max_request_size: int = 1_048_576
    """The largest record, in bytes of key, value and headers."""
    partitioner: str | Partitioner = "consistent_random"
    """Either "consistent_random" (librdkafka's), "murmur2_random" (the Java client's), or a
    function of the key's bytes and the number of partitions."""
    key_serializer: Serializer | None = None
    """Makes bytes of a key. None: keys are `bytes`, `str` (UTF-8) or None."""
    value_serializer: Serializer | None = None
    """Makes bytes of a value. None: values are `bytes`, `str` (UTF-8) or None."""
    client_id: str | None = None
    """A name for the producer's thread. None: `producer`."""

    def __post_init__(self) -> None:
        for name, low in (
            ("retries", 0), ("max_in_flight_requests_per_connection", 1), ("linger_ms", 0),
            ("batch_size", 0), ("delivery_timeout_ms", 0), ("request_timeout_ms", 0),
            ("retry_backoff_ms", 0), ("max_block_ms", 0), ("max_request_size", 0),
        ):  # fmt: skip
            check_whole(name, getattr(self, name), low)
        if not isinstance(self.transaction_timeout_ms, int):
            raise ConfigError(
                f"transaction_timeout_ms: got {self.transaction_timeout_ms!r}, expected milliseconds"
            )
        if self.transactional_id is not None and (
            not isinstance(self.transactional_id, str) or not self.transactional_id
        ):
            raise ConfigError(
                f"transactional_id: got {self.transactional_id!r}, expected text that is not empty"
            )
        if str(self.acks).strip().lower() not in ("all", "-1", "0", "1"):
            raise ConfigError(f"acks: got {self.acks!r}, expected 'all', -1, 0 or 1")
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ConfigError(
                f"delivery_timeout_ms={self.delivery_timeout_ms} must be at least linger_ms + "
                f"request_timeout_ms = {self.linger_ms + self.request_timeout_ms}"
            )
        if not self.enable_idempotence:
            if self.transactional_id is not None:
                raise ConfigError(
                    f"transactional_id={self.transactional_id!r} needs enable_idempotence=True: a "
                    "transaction cannot be exactly once if its records may be duplicated"
                )
            return
        if str(self.acks).strip().lower() not in ("all", "-1"):
            raise ConfigError(
                f"acks={self.acks!r} contradicts enable_idempotence=True: without acks='all' a "
                "lost record is never noticed"
            )
        if self.retries == 0:
            raise ConfigError(
                "retries=0 contradicts enable_idempotence=True: what is never repeated needs no "
                "protection from repetition, and would be lost"
            )
        if self.max_in_flight_requests_per_connection > 5:
            raise ConfigError(
                f"max_in_flight_requests_per_connection={self.max_in_flight_requests_per_connection}"
                " contradicts enable_idempotence=True: a partition remembers five batches"
            )
