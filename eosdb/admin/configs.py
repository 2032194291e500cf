"""The settings of topics, groups and the broker for administrators (Kafka: DescribeConfigs): effective
values and their sources."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from eosdb.coordinator.groups.configs import GROUP_SETTINGS
from eosdb.model.config import BrokerConfig, setting_text
from eosdb.model.topic_config import TOPIC_SETTINGS, Setting, SettingKind


class ConfigSource(Enum):
    """The source of a value, with Kafka's codes."""

    TOPIC = 1
    BROKER = 4
    DEFAULT = 5
    GROUP = 8


class ConfigValue(NamedTuple):
    """A setting's value, the source of the value, and the setting's name at that source."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting: its effective value, and all candidates, the effective one first."""

    name: str
    value: str
    source: ConfigSource
    kind: SettingKind
    has_effect: bool
    """False for a setting of Kafka's that eosdb stores but ignores."""
    candidates: tuple[ConfigValue, ...]


_DEFAULTS: Final = BrokerConfig()
_OTHER_NAMES: Final = {"max_message_bytes": "message.max.bytes"}
"""Settings of the broker whose Kafka name cannot be derived from their own."""
_FIXED: Final = {
    "broker.id": (SettingKind.INT, "1"),
    "default.replication.factor": (SettingKind.INT, "1"),
    "delete.topic.enable": (SettingKind.BOOLEAN, "true"),
    "node.id": (SettingKind.INT, "1"),
}
"""Settings that tools request from a broker and that are fixed here."""


def of_topic(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every setting that a topic can have, by name."""
    return _all(TOPIC_SETTINGS, ConfigSource.TOPIC, broker, overrides)


def of_group(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every setting that a group can have, by name."""
    return _all(GROUP_SETTINGS, ConfigSource.GROUP, broker, overrides)


def of_broker(broker: BrokerConfig) -> list[ConfigEntry]:
    """Return the broker's settings by name, including eosdb's own."""
    entries = [
        _entry(name, kind, [ConfigValue(name, value, ConfigSource.DEFAULT)], has_effect=True)
        for name, (kind, value) in _FIXED.items()
    ]
    for field in dataclasses.fields(BrokerConfig):
        candidates = list(_of_broker(broker, field.name))
        kind = _kind(getattr(_DEFAULTS, field.name))
        entries.append(_entry(candidates[0].name, kind, candidates, has_effect=True))
    return sorted(entries, key=lambda entry: entry.name)


def _all(
    settings: Mapping[str, Setting],
    own: ConfigSource,
    broker: BrokerConfig,
    overrides: Mapping[str, str],
) -> list[ConfigEntry]:
    entries = []
    for name, setting in settings.items():
        candidates = list[ConfigValue]()
        if name in overrides:
            candidates.append(ConfigValue(name, overrides[name], own))
        if setting.broker_field:
            candidates += _of_broker(broker, setting.broker_field)
        else:
            candidates.append(ConfigValue(name, setting.default, ConfigSource.DEFAULT))
        entries.append(_entry(name, setting.kind, candidates, has_effect=bool(setting.field)))
    return entries


def _of_broker(broker: BrokerConfig, field: str) -> Iterator[ConfigValue]:
    name = _OTHER_NAMES.get(field, field.replace("_", "."))
    value, default = (setting_text(getattr(config, field)) for config in (broker, _DEFAULTS))
    if value != default:
        yield ConfigValue(name, value, ConfigSource.BROKER)
    yield ConfigValue(name, default, ConfigSource.DEFAULT)


def _entry(
    name: str, kind: SettingKind, candidates: list[ConfigValue], *, has_effect: bool
) -> ConfigEntry:
    first = candidates[0]
    return ConfigEntry(name, first.value, first.source, kind, has_effect, tuple(candidates))


def _kind(value: object) -> SettingKind:
    if isinstance(value, bool):
        return SettingKind.BOOLEAN
    return SettingKind.LONG if isinstance(value, int) else SettingKind.STRING
