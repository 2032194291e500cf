"""The settings of groups (Kafka: resources of type GROUP): two have an effect, the others are only stored.

`GROUP_SETTINGS` lists all of Kafka 4.4, with the ranges of a broker without settings of its own. Share and
streams groups are not served (decisions/0070); their settings are kept as those of topics
(decisions/0032).
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from typing import Final

from eosdb.errors import InvalidConfigError
from eosdb.events.kinds import GroupConfigAltered
from eosdb.model.config import BrokerConfig, unknown_text
from eosdb.model.damage import parsed, reads
from eosdb.model.topic_config import Setting, SettingKind, flag, integer, text, whole
from eosdb.store.writing.table import TableOf
from eosdb.store.writing.unit import Folding, Unit

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
_DURATION: Final = r"(?i:P(?=.)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d{0,9})?S)?)?)"
_RESET: Final = rf"\s*(earliest|latest|by_duration:{_DURATION})\s*"
# decisions/0102: targets are computed at once, so the interval has no effect.
_BY_PROTOCOL: Final = {
    "assignment.interval.ms": integer(1_000, 0, 15_000),
    "assignor.offload.enable": flag("true"),
}


def _string(default: str, expected: str, pattern: str) -> Setting:
    return Setting(SettingKind.STRING, default, text(expected, pattern))


def _tags(name: str, value: object) -> str:
    tags = [tag.strip() for tag in str(value).split(",")]
    if tags != [""] and ("" in tags or len(set(tags)) < len(tags)):
        raise InvalidConfigError(f"{name}: got {value!r}, expected different tags between commas")
    return str(value)


_WITHOUT_EFFECT: Final = {
    **{f"{kind}.{name}": setting for kind in ("consumer", "share", "streams")
       for name, setting in _BY_PROTOCOL.items()},
    **{f"{kind}.heartbeat.interval.ms": integer(5_000, 5_000, 15_000) for kind in ("share", "streams")},
    **{f"{kind}.session.timeout.ms": integer(45_000, 45_000, 60_000) for kind in ("share", "streams")},
    "errors.deadletterqueue.copy.record.enable": flag(),
    "errors.deadletterqueue.topic.name": _string("", "a topic without __ at its head", r"(?s)(?!__).*"),
    "share.auto.offset.reset": _string("latest", "earliest, latest or by_duration:PnDTnHnMn.nS", _RESET),
    "share.delivery.count.limit": integer(5, 2, 10),
    "share.isolation.level": _string(
        "read_uncommitted", "read_committed or read_uncommitted", "read_(un)?committed"
    ),
    "share.partition.max.record.locks": integer(2_000, 100, 4_000),
    "share.record.lock.duration.ms": integer(30_000, 15_000, 60_000),
    "share.renew.acknowledge.enable": flag("true"),
    "streams.assignor.name": _string("sticky", "sticky", "sticky"),
    "streams.initial.rebalance.delay.ms": integer(3_000, 0),
    "streams.num.standby.replicas": integer(0, 0, 2),
    "streams.rack.aware.assignment.tags": Setting(SettingKind.LIST, "", _tags),
    "streams.task.offset.interval.ms": integer(60_000, 15_000),
}  # fmt: skip
"""They are checked, stored and shown. docs/reference/database.md has the same table."""
_IN_EFFECT: Final = {
    name: Setting(SettingKind.INT, default, whole(1), field, f"group_consumer_{field}")
    for name, default, field in (
        (SESSION_TIMEOUT, "45000", "session_timeout_ms"),
        (HEARTBEAT_INTERVAL, "5000", "heartbeat_interval_ms"),
    )
}
GROUP_SETTINGS: Final = dict(sorted({**_IN_EFFECT, **_WITHOUT_EFFECT}.items()))
_BOUNDS: Final = {
    SESSION_TIMEOUT: (
        "group_consumer_min_session_timeout_ms", "group_consumer_max_session_timeout_ms"
    ),
    HEARTBEAT_INTERVAL: (
        "group_consumer_min_heartbeat_interval_ms", "group_consumer_max_heartbeat_interval_ms"
    ),
}  # fmt: skip
_CONFIGS: Final = TableOf(
    "eosdb_group_configs", "group_id config", "group_id", lambda row: dict[str, str](parsed(row[1]))
)


def own(source: Unit | sqlite3.Connection, group_id: str) -> dict[str, str]:
    """The group's own settings."""
    return _CONFIGS.find(source, group_id) or {}


@reads("eosdb_group_configs")
def owners(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT group_id FROM eosdb_group_configs ORDER BY group_id")
    return [group_id for (group_id,) in rows]


@reads("eosdb_group_configs")
def effective(
    source: Unit | sqlite3.Connection, group_id: str, broker: BrokerConfig
) -> tuple[int, int]:
    """The session timeout and the heartbeat interval of the group's members."""
    return _effective(own(source, group_id), broker)


def checked(
    group_id: str,
    before: Mapping[str, str],
    changes: Mapping[str, object | None],
    broker: BrokerConfig,
    now_ms: int,
) -> GroupConfigAltered | None:
    """The event that changes the settings; None if nothing changes. A value of None resets a setting to
    the broker's. Raises InvalidConfigError."""
    after = dict(before)
    given = {name: value for name, value in changes.items() if value is not None}
    # As in Kafka, an unknown setting may be removed.
    if unknown := given.keys() - GROUP_SETTINGS.keys():
        raise InvalidConfigError(unknown_text("group", unknown, GROUP_SETTINGS))
    for name, value in changes.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = _checked(name, value, broker)
    session, heartbeat = _effective(after, broker)
    if session <= heartbeat:
        raise InvalidConfigError(
            f"{SESSION_TIMEOUT} ({session}) must be more than {HEARTBEAT_INTERVAL} ({heartbeat})"
        )
    if after == before:
        return None
    return GroupConfigAltered(timestamp=now_ms, group_id=group_id, config=after)


def altered(unit: Folding, event: GroupConfigAltered, position: int) -> None:
    if event.config:
        config = json.dumps(event.config, separators=(",", ":"), sort_keys=True)
        unit.execute(_CONFIGS.replace, (event.group_id, config))
    else:
        unit.execute(_CONFIGS.delete, (event.group_id,))


def _effective(given: Mapping[str, str], broker: BrokerConfig) -> tuple[int, int]:
    session, heartbeat = (
        int(given.get(name, getattr(broker, GROUP_SETTINGS[name].broker_field)))
        for name in (SESSION_TIMEOUT, HEARTBEAT_INTERVAL)
    )
    return session, heartbeat


def _checked(name: str, value: object, broker: BrokerConfig) -> str:
    if name not in _BOUNDS:
        GROUP_SETTINGS[name].parse(name, value)
        return str(value)
    low, high = (int(getattr(broker, field)) for field in _BOUNDS[name])
    is_number = isinstance(value, str | int) and re.fullmatch("[0-9]{1,10}", str(value))
    number = int(str(value)) if is_number else low - 1
    if not low <= number <= high:
        raise InvalidConfigError(
            f"{name}: got {value!r:.80}, expected a whole number from {low} to {high} "
            f"({_BOUNDS[name][0]}, {_BOUNDS[name][1]})"
        )
    return str(number)
