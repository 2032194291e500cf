"""Kafka's topic settings: some have an effect in eosdb, the others are only stored.

`TOPIC_SETTINGS` lists them all (Kafka 4.4, and two of eosdb's own for a topic that moves to a cluster).
eosdb accepts every value that Kafka accepts. `TopicConfig` is the effective configuration, from the topic's
settings and the broker's (decisions/0032).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from eosdb.errors import InvalidConfigError, InvalidRequestError
from eosdb.model.config import (
    INT32_MAX,
    INT64_MAX,
    BrokerConfig,
    cleanup_policy,
    timestamp_type,
    unknown_text,
)
from eosdb.model.validation import check_mapping
from eosdb.model.values import TimestampType

MOVING_TO: Final = "eosdb.moving.to"
MOVED_TO: Final = "eosdb.moved.to"
# decisions/0046: while `eosdb.moving.to` or `eosdb.moved.to` is set, no client may write to the topic.
_CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


class SettingKind(Enum):
    """The types of settings, with Kafka's codes."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Setting:
    """The type, default and check of a setting of topics or groups."""

    kind: SettingKind
    default: str
    """Kafka's default."""
    parse: Callable[[str, object], object]
    """Raises InvalidConfigError for values that Kafka rejects."""
    field: str = ""
    """The field of the effective configuration; empty if the setting has no effect."""
    broker_field: str = ""
    """The field of BrokerConfig that applies without a value."""


def whole(low: int, high: int = INT64_MAX) -> Callable[[str, object], int]:
    """Return the check of a setting that is a whole number."""

    def parse(name: str, value: object) -> int:
        try:
            number = int(str(value))
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise InvalidConfigError(
                f"{name}: got {value!r}, expected a whole number from {low} to {high}"
            )
        return number

    return parse


def text(expected: str, pattern: str) -> Callable[[str, object], str]:
    """Return the check of a setting whose text must match a pattern."""

    def parse(name: str, value: object) -> str:
        if not re.fullmatch(pattern, text := str(value)):
            raise InvalidConfigError(f"{name}: got {value!r}, expected {expected}")
        return text

    return parse


def _ratio(name: str, value: object) -> float:
    try:
        ratio = float(str(value))
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise InvalidConfigError(f"{name}: got {value!r}, expected a number from 0 to 1")
    return ratio


def _place(name: str, value: object) -> str:
    text = str(value)
    if text != text.strip() or not text.isprintable():
        raise InvalidConfigError(
            f"{name}: got {value!r}, expected HOST:PORT, or an empty text for a topic that does not move"
        )
    return text


def integer(default: int, low: int, high: int = INT32_MAX) -> Setting:
    return Setting(SettingKind.INT, str(default), whole(low, high))


def _long(default: int, low: int, field: str = "", broker_field: str = "") -> Setting:
    return Setting(SettingKind.LONG, str(default), whole(low), field, broker_field)


def flag(default: str = "false") -> Setting:
    parse = text("true or false", r"(?i)\s*(true|false)\s*")
    return Setting(SettingKind.BOOLEAN, default, parse)


def _replicas() -> Setting:
    parse = text(
        "* or PARTITION:BROKER pairs with commas between them", r"\*|(\d+:\d+(,\d+:\d+)*)?"
    )
    return Setting(SettingKind.LIST, "", parse)


_WITHOUT_EFFECT: Final = {
    "compression.gzip.level": Setting(
        SettingKind.INT, "-1", text("-1 or 1 to 9", r"\s*(-1|\+?0*[1-9])\s*")
    ),
    "compression.lz4.level": integer(9, 1, 17),
    "compression.type": Setting(
        SettingKind.STRING, "producer", text(f"one of {', '.join(_CODECS)}", "|".join(_CODECS))
    ),
    "compression.zstd.level": integer(3, -131_072, 22),
    "errors.deadletterqueue.group.enable": flag(),
    "file.delete.delay.ms": _long(60_000, 0),
    "flush.messages": _long(INT64_MAX, 1),
    "flush.ms": _long(INT64_MAX, 0),
    "follower.replication.throttled.replicas": _replicas(),
    "index.interval.bytes": integer(4096, 0),
    "leader.replication.throttled.replicas": _replicas(),
    "local.retention.bytes": _long(-2, -2),
    "local.retention.ms": _long(-2, -2),
    "max.compaction.lag.ms": _long(INT64_MAX, 1),
    "max.decompressed.message.bytes": integer(INT32_MAX - 8, 1, INT32_MAX - 8),
    "message.timestamp.after.max.ms": _long(3_600_000, 0),
    "message.timestamp.before.max.ms": _long(INT64_MAX, 0),
    "min.cleanable.dirty.ratio": Setting(SettingKind.DOUBLE, "0.5", _ratio),
    "min.insync.replicas": integer(1, 1),
    "preallocate": flag(),
    "remote.copy.lag.bytes": _long(-1, -1),
    "remote.copy.lag.ms": _long(0, -1),
    "remote.log.copy.disable": flag(),
    "remote.log.delete.on.disable": flag(),
    "remote.storage.enable": flag(),
    "segment.bytes": integer(1_073_741_824, 1_048_576),
    "segment.index.bytes": integer(10_485_760, 4),
    "segment.jitter.ms": _long(0, 0),
    "segment.ms": _long(604_800_000, 1),
    "unclean.leader.election.enable": flag(),
}
"""Kafka's settings without an effect here. They are checked, stored and shown (decisions/0032), so that
clients which send them can create topics. docs/reference/database.md has the same table."""
_IN_EFFECT: Final = {
    "cleanup.policy": Setting(
        SettingKind.LIST, "delete", cleanup_policy, "policies", "log_cleanup_policy"
    ),
    "delete.retention.ms": _long(
        86_400_000, 0, "delete_retention_ms", "log_cleaner_delete_retention_ms"
    ),
    MOVED_TO: Setting(SettingKind.STRING, "", _place, "moved_to"),
    MOVING_TO: Setting(SettingKind.STRING, "", _place, "moving_to"),
    "max.message.bytes": Setting(
        SettingKind.INT, "1048588", whole(0, INT32_MAX), "max_message_bytes", "max_message_bytes"
    ),
    "message.timestamp.type": Setting(
        SettingKind.STRING,
        "CreateTime",
        timestamp_type,
        "timestamp_type",
        "log_message_timestamp_type",
    ),
    "min.compaction.lag.ms": _long(
        0, 0, "min_compaction_lag_ms", "log_cleaner_min_compaction_lag_ms"
    ),
    "retention.bytes": _long(-1, -1, "retention_bytes", "log_retention_bytes"),
    "retention.ms": _long(604_800_000, -1, "retention_ms", "log_retention_ms"),
}
TOPIC_SETTINGS: Final = dict(sorted({**_IN_EFFECT, **_WITHOUT_EFFECT}.items()))


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The effective configuration of a topic."""

    delete: bool
    compact: bool
    retention_ms: int
    retention_bytes: int
    max_message_bytes: int
    timestamp_type: TimestampType
    min_compaction_lag_ms: int
    delete_retention_ms: int
    moved_to: str
    """HOST:PORT of the cluster to which the topic has moved, so that it takes no more records here; empty
    if it has not."""
    moving_to: str
    """HOST:PORT of the cluster to which the topic is being moved."""

    @property
    def closed(self) -> str:
        """The reason why the topic accepts no records, with the next step; empty if it accepts them."""
        if self.moved_to:
            return f"the topic has moved to {self.moved_to}; let the program connect there"
        if self.moving_to:
            return (
                f"the topic is being moved to {self.moving_to}, and accepts no records until the move is "
                "complete or cancelled; let the program connect there then"
            )
        return ""

    @classmethod
    def resolve(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
        """Apply the topic's settings over the broker's.

        Raises InvalidConfigError for an unknown name or a bad value.
        """
        cls.check_names(overrides)
        values: dict[str, object] = {}
        for name, setting in TOPIC_SETTINGS.items():
            given: object = overrides.get(name)
            if setting.field:
                if given is None:
                    own = setting.broker_field
                    given = getattr(broker, own) if own else setting.default
                values[setting.field] = setting.parse(name, given)
            elif given is not None:
                setting.parse(name, given)
        policies = values.pop("policies")
        assert isinstance(policies, frozenset)
        values["delete"] = "delete" in policies
        values["compact"] = "compact" in policies
        return cls(**values)  # type: ignore[arg-type]

    @staticmethod
    def check_names(names: Iterable[str]) -> None:
        """Raises InvalidConfigError for a name that is not a topic setting."""
        unknown = sorted(set(names) - set(TOPIC_SETTINGS))
        if unknown:
            raise InvalidConfigError(unknown_text("topic", unknown, TOPIC_SETTINGS))


def topic_overrides(config: Mapping[str, object] | None) -> dict[str, str]:
    """Return a topic's settings as the text to store. Raises InvalidConfigError for a name that is not
    text, or a value that is neither text nor a whole number."""
    out: dict[str, str] = {}
    for name, value in check_mapping("config", config or {}, "setting", InvalidConfigError).items():
        if not isinstance(name, str) or not isinstance(value, str | int):
            raise InvalidConfigError(
                f"topic setting {name!r}: got {value!r} ({type(value).__name__}), expected a whole number "
                "or text"
            )
        out[name] = str(value)
    return out


def without_effect(overrides: Iterable[str]) -> list[str]:
    """Return those of the settings that are stored but have no effect."""
    return sorted(
        name for name in overrides if name in TOPIC_SETTINGS and not TOPIC_SETTINGS[name].field
    )


class ConfigOperation(Enum):
    """An operation on a setting (KIP-339), with Kafka's codes."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A change of one setting; `value` is ignored for DELETE."""

    name: str
    operation: ConfigOperation
    value: object = None


def settings(config: Mapping[str, object | None]) -> list[ConfigChange]:
    """Return changes to these values; None resets a setting to the broker's value."""
    delete, put = ConfigOperation.DELETE, ConfigOperation.SET
    given = check_mapping("config", config, "setting", InvalidConfigError).items()
    return [ConfigChange(str(k), delete if v is None else put, v) for k, v in given]


def changed(
    overrides: Mapping[str, str], changes: Iterable[ConfigChange], broker: BrokerConfig
) -> dict[str, str]:
    """Apply changes to a topic's settings. Raises InvalidConfigError, and InvalidRequestError for a setting
    that is changed twice."""
    result, seen = dict(overrides), set[str]()
    for name, operation, value in changes:
        if name in seen:
            raise InvalidRequestError(f"{name} occurs twice; name each setting once")
        seen.add(name)
        if operation is ConfigOperation.DELETE:
            result.pop(name, None)
            continue
        given = topic_overrides({name: value})[name]
        if operation is not ConfigOperation.SET:
            given = _edited(name, operation, given, _in_force(name, result, broker))
        result[name] = given
    TopicConfig.resolve(broker, result)
    return result


def _edited(name: str, operation: ConfigOperation, given: str, before: str) -> str:
    parts, values = _parts(before), _parts(given)
    if TOPIC_SETTINGS[name].kind is not SettingKind.LIST:
        raise InvalidConfigError(
            f"{name} is not a list, so {operation.name} does not apply; use SET"
        )
    if operation is ConfigOperation.APPEND:
        return ",".join([*parts, *(value for value in values if value not in parts)])
    return ",".join(part for part in parts if part not in values)


def _in_force(name: str, overrides: Mapping[str, str], broker: BrokerConfig) -> str:
    TopicConfig.check_names([name])
    setting = TOPIC_SETTINGS[name]
    if name in overrides:
        return overrides[name]
    return str(getattr(broker, setting.broker_field)) if setting.broker_field else setting.default


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
