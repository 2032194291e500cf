"""Settings of the broker, with Kafka's names and defaults.

`BrokerConfig` is the type of `connect(config=…)`; its fields are Kafka's broker settings in snake_case.
Topic settings are in `topic_config`. This module checks the names of all settings, with the same message.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from eosdb.errors import ConfigError, EosdbError, InvalidConfigError
from eosdb.model.values import TimestampType

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


def keywords_of(
    source: Callable[..., object], explained: type[Any] | None = None
) -> Callable[[F], F]:
    """Decorate a function so that `help` shows the keywords of `source` in place of `**config`, and the
    attributes that the docstring of `explained` describes."""

    def decorated(function: F) -> F:
        own = inspect.signature(function)
        *before, _ = own.parameters.values()
        more = (
            each
            for each in inspect.signature(source).parameters.values()
            if each.kind is each.KEYWORD_ONLY and each.name not in own.parameters
        )
        if explained is not None and function.__doc__ and explained.__doc__:
            _, _, settings = inspect.cleandoc(explained.__doc__).partition("Attributes:\n")
            function.__doc__ = f"{inspect.cleandoc(function.__doc__)}\n\nSettings:\n{settings}"
        function.__signature__ = own.replace(parameters=[*before, *more])  # type: ignore[attr-defined]
        return function

    return decorated


def checked_settings(kind: type[T], what: str, config: Mapping[str, Any], *beside: str) -> T:
    """Build the dataclass `kind`. Errors (ConfigError) name `what`, and guess also the names `beside`."""
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := [name for name in config if name not in defaults]:
        raise ConfigError(unknown_text(what, unknown, (*defaults, *beside)))
    for name, given in config.items():
        if isinstance(defaults[name], bool):
            check_switch(name, given)
        if name.endswith("serializer") and given is not None and not callable(given):
            raise ConfigError(f"{name}: got {given!r}, expected a function or None")
    return kind(**config)


def check_switch(name: str, value: object, error: type[EosdbError] = ConfigError) -> None:
    """Raises `error` unless a setting is True or False."""
    if not isinstance(value, bool):
        raise error(f"{name}: got {value!r}, expected True or False")


def check_by_name(what: str, given: tuple[object, ...]) -> None:
    """Raises ConfigError if settings were passed as a positional argument, such as a dict."""
    if given:
        kind = type(given[0]).__name__
        raise ConfigError(
            f"{what}: got an argument of type {kind}, expected settings by name: {what}(linger_ms=5), or "
            f"{what}(**settings) for a dict of them"
        )


def guess(name: str, names: Collection[str]) -> str:
    """Return the text " (did you mean …?)" with the most similar of the names; empty if none is similar."""
    import difflib

    alike = difflib.get_close_matches(name, names, 1)
    return f" (did you mean {alike[0]!r}?)" if alike else ""


def unknown_text(what: str, unknown: Iterable[str], names: Collection[str]) -> str:
    """Return an error text with the unknown names, a suggestion for each, and the known names."""
    told = []
    for name in sorted(map(str, unknown)):
        # Also try `_` for `.` and `.` for `_`, because only some kinds of settings have dots.
        spellings = (name.lower().replace(*separators) for separators in ("._", "_."))
        told.append(
            f"{name!r}" + next(filter(None, (guess(text, names) for text in spellings)), "")
        )
    return f"unknown {what} setting {', '.join(told)}; known are {', '.join(names)}"


INT64_MAX: Final = 2**63 - 1
INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Kafka's broker settings; times are in ms. Few programs need more than the first five. Raises
    InvalidConfigError for unknown names and bad values."""

    log_retention_ms: int = 604_800_000
    """How long records are kept (-1: for ever), for topics without `retention.ms`."""
    history_retention_ms: int = 604_800_000
    """How long events are kept (-1: for ever); events of stored records are kept as long as these (not a
    Kafka setting)."""
    auto_create_topics_enable: bool = False
    """Whether a topic is created when a client first uses it."""
    max_message_bytes: int = 1_048_588
    """The largest batch, in bytes, for topics without a `max.message.bytes` of their own."""
    lock_timeout_ms: int = 30_000
    """How long a write waits for other writers, in this process and elsewhere, before it raises
    DatabaseLockedError (not a Kafka setting)."""
    # decisions/0007: under version 2, every transaction has a producer epoch of its own.
    transaction_version: int = 2
    """The transaction version offered to producers: 2 (KIP-890, an epoch for each transaction), or 1."""
    transaction_max_timeout_ms: int = 900_000
    """The longest `transaction_timeout_ms` that a producer may ask for."""
    transactional_id_expiration_ms: int = 604_800_000
    """How long a transactional id is remembered after its last transaction."""
    producer_id_expiration_ms: int = 86_400_000
    """How long a partition remembers a producer after its last record."""
    producer_id_block_size: int = 1000
    """How many producer ids are reserved at a time."""
    offset_metadata_max_bytes: int = 4096
    """The longest metadata string of an offset commit, in bytes."""
    offsets_retention_minutes: int = 10_080
    """How long the offsets of a group without members are kept."""
    group_min_session_timeout_ms: int = 6_000
    """The shortest session that a member may ask for."""
    group_max_session_timeout_ms: int = 1_800_000
    """The longest session that a member may ask for."""
    group_consumer_session_timeout_ms: int = 45_000
    """How long a member of a consumer group may be silent (KIP-848), for groups without
    `consumer.session.timeout.ms`."""
    group_consumer_min_session_timeout_ms: int = 45_000
    """The shortest session that a group's own settings may have."""
    group_consumer_max_session_timeout_ms: int = 60_000
    """The longest session that a group's own settings may have."""
    group_consumer_heartbeat_interval_ms: int = 5_000
    """How often members of a consumer group are told to send heartbeats, for groups without
    `consumer.heartbeat.interval.ms`."""
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    """The shortest interval of heartbeats that a group's own settings may have."""
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    """The longest interval of heartbeats that a group's own settings may have."""
    group_consumer_max_size: int = 2_147_483_647
    """The most members that a consumer group may have."""
    num_partitions: int = 1
    """Partitions of topics that are created automatically, or without a number."""
    log_retention_bytes: int = -1
    """How many bytes of a partition are kept (-1: all), for topics without `retention.bytes`."""
    log_retention_check_interval_ms: int = 300_000
    """The time between two rounds of retention and compaction."""
    history_retention_bytes: int = 1_073_741_824
    """How many bytes of events are kept (-1: all); applies together with the time (not a Kafka setting)."""
    idempotency_retention_ms: int = 604_800_000
    """How long an idempotency key, or a sink, is remembered after its last use (-1: for ever; not a Kafka
    setting)."""
    log_cleanup_policy: str = "delete"
    """The cleanup of old records, "delete", "compact" or both, for topics without `cleanup.policy`."""
    log_cleaner_delete_retention_ms: int = 86_400_000
    """How long compaction keeps tombstones."""
    log_cleaner_min_compaction_lag_ms: int = 0
    """The least age at which compaction may remove a record."""
    log_message_timestamp_type: str = "CreateTime"
    """Either "CreateTime" (the producer's) or "LogAppendTime", for topics without their own."""
    connections_max_reauth_ms: int = 0
    """How long a login over the wire lasts before the client must repeat it (KIP-368); 0: as long as its
    connection."""
    super_users: str = ""
    """Principals to whom no ACL applies, separated by semicolons."""
    slow_commit_ms: int = 1000
    """A commit that takes this long or longer is logged as a warning with its parts; -1 turns this off (not
    a Kafka setting)."""
    external_checkpoints: bool = False
    """Whether another program, such as Litestream, copies the WAL into the file. eosdb then makes no
    checkpoints, and the WAL grows while that program is stopped (docs/backups.md; not a Kafka setting)."""
    transaction_unit_partitions: int = 100
    """A transaction over more partitions than this is decided in one commit and completed in another, so
    that no commit blocks other writers for long; 0: every transaction is (not a Kafka setting)."""

    def __new__(cls, **given: object) -> Self:
        unknown = sorted(set(given) - set(cls.__slots__))
        if unknown:
            raise InvalidConfigError(unknown_text("broker", unknown, cls.__slots__))
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            name, value, default = field.name, getattr(self, field.name), field.default
            if isinstance(default, bool):
                check_switch(name, value, InvalidConfigError)
            elif isinstance(default, int):
                low, high = _RANGES.get(name, (1, INT32_MAX))
                is_whole = isinstance(value, int) and not isinstance(value, bool)
                if not (is_whole and low <= value <= high):
                    raise InvalidConfigError(
                        f"{name}: got {value!r}, expected a whole number from {low} to {high}"
                    )
            elif not isinstance(value, str):
                raise InvalidConfigError(f"{name}: got {value!r}, expected text")
        cleanup_policy("log_cleanup_policy", self.log_cleanup_policy)
        timestamp_type("log_message_timestamp_type", self.log_message_timestamp_type)


keywords_of(BrokerConfig.__init__)(BrokerConfig.__new__)
_RANGES: Final = {
    "transaction_version": (1, 2),
    "transactional_id_expiration_ms": (1, INT64_MAX),
    "producer_id_expiration_ms": (1, INT64_MAX),
    "max_message_bytes": (0, INT32_MAX),
    "offset_metadata_max_bytes": (0, INT32_MAX),
    "num_partitions": (1, 10_000),
    "log_retention_ms": (-1, INT64_MAX),
    "log_retention_bytes": (-1, INT64_MAX),
    "log_retention_check_interval_ms": (1, INT64_MAX),
    "history_retention_ms": (-1, INT64_MAX),
    "history_retention_bytes": (-1, INT64_MAX),
    "idempotency_retention_ms": (-1, INT64_MAX),
    "log_cleaner_delete_retention_ms": (0, INT64_MAX),
    "log_cleaner_min_compaction_lag_ms": (0, INT64_MAX),
    "connections_max_reauth_ms": (0, INT32_MAX),
    "lock_timeout_ms": (0, INT32_MAX),
    "slow_commit_ms": (-1, INT32_MAX),
    "transaction_unit_partitions": (0, INT32_MAX),
}
"""The whole numbers that a setting may be, unless from 1 to INT32_MAX."""


def cleanup_policy(name: str, value: object) -> frozenset[str]:
    """Parse a cleanup policy. Raises InvalidConfigError."""
    policies = frozenset(part.strip() for part in str(value).split(","))
    if not policies <= {"delete", "compact"}:
        raise InvalidConfigError(f"{name}: got {value!r}, expected delete, compact or both")
    return policies


def timestamp_type(name: str, value: object) -> TimestampType:
    """Parse a timestamp type. Raises InvalidConfigError."""
    try:
        return {
            "CreateTime": TimestampType.CREATE_TIME,
            "LogAppendTime": TimestampType.LOG_APPEND_TIME,
        }[str(value)]
    except KeyError:
        raise InvalidConfigError(
            f"{name}: got {value!r}, expected CreateTime or LogAppendTime"
        ) from None


def setting_text(value: object) -> str:
    """The text of a setting's value, as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
