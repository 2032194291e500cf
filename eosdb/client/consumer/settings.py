"""A consumer's settings, under Kafka's names in snake_case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, get_args

from eosdb.client.consumer.assignors import ASSIGNORS
from eosdb.errors import ConfigError
from eosdb.model.records.serializing import Deserializer
from eosdb.model.validation import check_choice, check_whole
from eosdb.model.values import IsolationLevel, OffsetReset


class ConsumerConfig(TypedDict, total=False):
    """The settings that `db.consumer(group_id, …)` accepts, besides the deserializers."""

    auto_offset_reset: OffsetReset
    enable_auto_commit: bool
    isolation_level: IsolationLevel
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
    client_id: str | None
    group_instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """A consumer's settings, checked. Raises ConfigError naming the setting."""

    key_deserializer: Deserializer | None = None
    """Converts a key's bytes to `record.key`. None: the bytes."""
    value_deserializer: Deserializer | None = None
    """Converts a value's bytes to `record.value`. None: the bytes."""
    auto_offset_reset: OffsetReset = "latest"
    """Where to begin without a committed offset: "latest" (records written from now on), "earliest", or
    "none", which raises OffsetOutOfRangeError."""
    enable_auto_commit: bool = False
    """Whether `poll` and `close` commit the offsets of records that earlier polls have returned."""
    isolation_level: IsolationLevel = "read_committed"
    """Either "read_committed", or "read_uncommitted", which also returns records of open and aborted
    transactions."""
    auto_commit_interval_ms: int = 5_000
    """The time between two automatic commits, in ms."""
    max_poll_records: int = 500
    """The most records that one `poll` returns."""
    fetch_max_wait_ms: int = 500
    """How long a waiting `poll` sleeps at most, in ms, before it checks for records again."""
    check_crcs: bool = True
    """Whether each record's checksum is verified when it is read."""
    max_poll_interval_ms: int = 300_000
    """The time between two polls, in ms, after which a member leaves its group."""
    metadata_max_age_ms: int = 300_000
    """The time between two checks for new topics and partitions of the subscription, in ms."""
    session_timeout_ms: int = 45_000
    """How long a member stays in the group without a heartbeat, in ms. A member whose process has died is
    removed at once."""
    heartbeat_interval_ms: int = 3_000
    """The time between heartbeats, in ms. Must be below `session_timeout_ms`."""
    request_timeout_ms: int = 30_000
    """Checked, without effect: how long a call takes is its transport's."""
    retry_backoff_ms: int = 100
    """The pause before a request is sent again, in ms."""
    default_api_timeout_ms: int = 60_000
    """How long a call retries its requests altogether, in ms."""
    partition_assignment_strategy: str | Sequence[str] = "range"
    """How a group assigns partitions: "range", "roundrobin", "sticky" or "cooperative-sticky"; or several
    of these in order of preference, separated by commas or as a sequence."""
    client_id: str | None = None
    """A name for the member, shown by `eosdb groups describe`."""
    group_instance_id: str | None = None
    """Makes the consumer a static member, which keeps its partitions while it is away for less than
    `session_timeout_ms`."""

    def __post_init__(self) -> None:
        check_choice("isolation_level", self.isolation_level, *get_args(IsolationLevel))
        check_choice("auto_offset_reset", self.auto_offset_reset, *get_args(OffsetReset))
        names = self.assignors
        if not names or len(set(names)) < len(names):
            raise ConfigError(
                f"partition_assignment_strategy: got {self.partition_assignment_strategy!r}, expected "
                "one assignor or several different ones"
            )
        for name in names:
            check_choice("partition_assignment_strategy", name, *ASSIGNORS)
        for name, low in (
            ("max_poll_records", 1), ("auto_commit_interval_ms", 0), ("fetch_max_wait_ms", 1),
            ("max_poll_interval_ms", 1), ("metadata_max_age_ms", 0), ("session_timeout_ms", 1),
            ("heartbeat_interval_ms", 1), ("request_timeout_ms", 0), ("retry_backoff_ms", 0),
            ("default_api_timeout_ms", 0),
        ):  # fmt: skip
            check_whole(name, getattr(self, name), low)
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
