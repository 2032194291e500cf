"""Client settings, under Kafka's names in snake_case, and what contradicts what.

Kafka switches idempotence off silently when a default contradicts it; eosdb refuses, because the silent
case is the dangerous one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from eosdb.client.assignors import ASSIGNORS
from eosdb.client.partitioner import Partitioner
from eosdb.config import INT32_MAX
from eosdb.errors import ConfigError

Serializer = Callable[[object], bytes]
Deserializer = Callable[[bytes], object]


class ProducerConfig(TypedDict, total=False):
    """What `db.producer(…)` takes, beside `transport`."""

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
    enable_idempotence: bool = True
    acks: str | int = "all"
    retries: int = INT32_MAX
    max_in_flight_requests_per_connection: int = 5
    linger_ms: int = 0
    batch_size: int = 16_384
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    max_block_ms: int = 60_000
    transaction_timeout_ms: int = 60_000
    max_request_size: int = 1_048_576
    partitioner: str | Partitioner = "consistent_random"
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    client_id: str | None = None

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
                    "transaction cannot be exactly once if its records may be doubled"
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


class ConsumerConfig(TypedDict, total=False):
    """What `db.consumer(group_id, …)` takes."""

    isolation_level: str
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    max_poll_records: int
    fetch_max_wait_ms: int
    check_crcs: bool
    max_poll_interval_ms: int
    metadata_max_age_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    default_api_timeout_ms: int
    partition_assignment_strategy: str | Sequence[str]
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    client_id: str | None
    group_instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """A consumer's settings, checked. Raises ConfigError naming the setting."""

    isolation_level: str = "read_committed"
    auto_offset_reset: str = "latest"
    enable_auto_commit: bool = False
    auto_commit_interval_ms: int = 5_000
    max_poll_records: int = 500
    fetch_max_wait_ms: int = 500
    check_crcs: bool = True
    max_poll_interval_ms: int = 300_000
    metadata_max_age_ms: int = 300_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    default_api_timeout_ms: int = 60_000
    partition_assignment_strategy: str | Sequence[str] = "range"
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    client_id: str | None = None
    group_instance_id: str | None = None

    def __post_init__(self) -> None:
        _one_of("isolation_level", self.isolation_level, "read_committed", "read_uncommitted")
        _one_of("auto_offset_reset", self.auto_offset_reset, "latest", "earliest", "none")
        names = self.assignors
        if not names or len(set(names)) < len(names):
            raise ConfigError(
                f"partition_assignment_strategy: got {self.partition_assignment_strategy!r}, expected "
                "one assignor or several different ones"
            )
        for name in names:
            _one_of("partition_assignment_strategy", name, *ASSIGNORS)
        check_whole("max_poll_records", self.max_poll_records, 1)
        check_whole("auto_commit_interval_ms", self.auto_commit_interval_ms, 0)
        check_whole("fetch_max_wait_ms", self.fetch_max_wait_ms, 1)
        check_whole("max_poll_interval_ms", self.max_poll_interval_ms, 1)
        check_whole("metadata_max_age_ms", self.metadata_max_age_ms, 0)
        check_whole("session_timeout_ms", self.session_timeout_ms, 1)
        check_whole("heartbeat_interval_ms", self.heartbeat_interval_ms, 1)
        check_whole("request_timeout_ms", self.request_timeout_ms, 0)
        check_whole("retry_backoff_ms", self.retry_backoff_ms, 0)
        check_whole("default_api_timeout_ms", self.default_api_timeout_ms, 0)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be below "
                f"session_timeout_ms={self.session_timeout_ms}"
            )

    @property
    def assignors(self) -> tuple[str, ...]:
        """The names in `partition_assignment_strategy`, in order of preference."""
        given = self.partition_assignment_strategy
        return tuple(given.split(",")) if isinstance(given, str) else tuple(given)


def check_whole(name: str, value: object, low: int) -> None:
    """Raises ConfigError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ConfigError(f"{name}: got {value!r}, expected a whole number from {low} on")


def _one_of(name: str, value: object, *known: str) -> None:
    if value not in known:
        raise ConfigError(f"{name}: got {value!r}, expected one of {', '.join(known)}")
