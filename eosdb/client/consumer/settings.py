"""A consumer's settings, under Kafka's names in snake_case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from eosdb.client.consumer.assignors.assignors import ASSIGNORS
from eosdb.errors import ConfigError
from eosdb.model.serializing import Deserializer
from eosdb.validation import check_choice, check_whole


class ConsumerConfig(TypedDict, total=False):
    """The settings that `db.consumer(group_id, …)` accepts."""

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
        check_choice("isolation_level", self.isolation_level, "read_committed", "read_uncommitted")
        check_choice("auto_offset_reset", self.auto_offset_reset, "latest", "earliest", "none")
        names = self.assignors
        if not names or len(set(names)) < len(names):
            raise ConfigError(
                f"partition_assignment_strategy: got {self.partition_assignment_strategy!r}, expected "
                "one assignor or several different ones"
            )
        for name in names:
            check_choice("partition_assignment_strategy", name, *ASSIGNORS)
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
