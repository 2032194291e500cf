"""A producer's settings, under Kafka's names in snake_case, and the check for contradictions between them.

If another setting contradicts the default of idempotence, Kafka silently disables idempotence; eosdb
refuses the setting, because silent duplicates are dangerous.
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
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    linger_ms: int
    partitioner: str | Partitioner
    enable_idempotence: bool
    acks: str | int
    retries: int
    max_in_flight_requests_per_connection: int
    batch_size: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    max_block_ms: int
    transaction_timeout_ms: int
    max_request_size: int
    client_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """A producer's settings, checked. Raises ConfigError naming the setting and the reason."""

    transactional_id: str | None = None
    """The id that identifies the producer's transactions, also after a restart. None: no transactions."""
    key_serializer: Serializer | None = None
    """Converts a key to bytes. None: keys are `bytes`, `str` (UTF-8) or None."""
    value_serializer: Serializer | None = None
    """Converts a value to bytes. None: values are `bytes`, `str` (UTF-8) or None."""
    linger_ms: int = 0
    """How long a record waits for further records of its batch, in ms. 0: outside a transaction, `send`
    returns when its record is stored."""
    partitioner: str | Partitioner = "consistent_random"
    """Either "consistent_random" (librdkafka's), "murmur2_random" (the Java client's), or a function of the
    key's bytes and the partition count that returns a partition."""
    enable_idempotence: bool = True
    """Whether a batch that is sent twice is stored once."""
    acks: str | int = "all"
    """Kafka's "all" (or -1), 1 or 0. There is one replica, so 1 is the same as "all"; with 0 a lost answer
    is not missed. Idempotence needs "all"."""
    retries: int = INT32_MAX
    """How many times a batch is sent again after retriable errors."""
    max_in_flight_requests_per_connection: int = 5
    """Checked, without effect: the producer waits for each answer. At most 5 with idempotence."""
    batch_size: int = 16_384
    """The maximum size of a batch in bytes, unless a single record is larger. Without a `transport`,
    batches may be larger."""
    delivery_timeout_ms: int = 120_000
    """The time, in ms, after which a record that is not stored fails. At least `linger_ms` +
    `request_timeout_ms`."""
    request_timeout_ms: int = 30_000
    """The time limit that a produce request names, in ms. How long a call takes is its transport's."""
    retry_backoff_ms: int = 100
    """The pause before a request is sent again, in ms."""
    max_block_ms: int = 60_000
    """How long a call waits for the coordinator, for metadata or for buffer space, in ms."""
    transaction_timeout_ms: int = 60_000
    """How long a transaction may stay open, in ms, before the coordinator aborts it."""
    max_request_size: int = 1_048_576
    """The largest record, in bytes of key, value and headers."""
    client_id: str | None = None
    """The name of the producer's background thread. None: `producer`."""

    def __post_init__(self) -> None:
        for name, low in (
            ("retries", 0), ("max_in_flight_requests_per_connection", 1), ("linger_ms", 0),
            ("batch_size", 0), ("delivery_timeout_ms", 0), ("request_timeout_ms", 0),
            ("retry_backoff_ms", 0), ("max_block_ms", 0), ("max_request_size", 0),
            ("transaction_timeout_ms", -(2**31)),  # The coordinator knows the range.
        ):  # fmt: skip
            check_whole(name, getattr(self, name), low)
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
                "retries=0 contradicts enable_idempotence=True: a batch without a response would be lost; "
                "use at least 1"
            )
        if self.max_in_flight_requests_per_connection > 5:
            raise ConfigError(
                f"max_in_flight_requests_per_connection={self.max_in_flight_requests_per_connection}"
                " contradicts enable_idempotence=True: a partition recognises only five batches; use 1 to 5"
            )
