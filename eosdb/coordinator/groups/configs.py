"""The settings of groups (Kafka: resources of type GROUP): session and heartbeats of consumer groups."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from typing import Final

from eosdb.errors import InvalidConfigError
from eosdb.events.kinds import GroupConfigAltered
from eosdb.model.config import BrokerConfig
from eosdb.model.damage import parsed, reads
from eosdb.store.writing.table import TableOf
from eosdb.store.writing.unit import Folding, Unit

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
SETTINGS: Final = {
    SESSION_TIMEOUT: "group_consumer_session_timeout_ms",
    HEARTBEAT_INTERVAL: "group_consumer_heartbeat_interval_ms",
}
"""The settings of a group, and the broker setting that applies to a group without its own."""
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
    given = own(source, group_id)
    session, heartbeat = (
        int(given[name]) if name in given else int(getattr(broker, field))
        for name, field in SETTINGS.items()
    )
    return session, heartbeat


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
    for name, value in changes.items():
        if (
            name not in SETTINGS and value is not None
        ):  # As in Kafka, an unknown setting may be removed.
            raise InvalidConfigError(
                f"group setting {name!r} is not known; expected {' or '.join(SETTINGS)}"
            )
        if value is None:
            after.pop(name, None)
        else:
            after[name] = str(_checked(name, value, broker))
    values = {
        name: int(after.get(name, getattr(broker, field))) for name, field in SETTINGS.items()
    }
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise InvalidConfigError(
            f"{SESSION_TIMEOUT} ({values[SESSION_TIMEOUT]}) must be more than {HEARTBEAT_INTERVAL} "
            f"({values[HEARTBEAT_INTERVAL]})"
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


def _checked(name: str, value: object, broker: BrokerConfig) -> int:
    low, high = (int(getattr(broker, field)) for field in _BOUNDS[name])
    is_number = isinstance(value, str | int) and re.fullmatch("[0-9]{1,10}", str(value))
    number = int(str(value)) if is_number else low - 1
    if not low <= number <= high:
        raise InvalidConfigError(
            f"{name}: got {value!r:.80}, expected a whole number from {low} to {high} "
            f"({_BOUNDS[name][0]}, {_BOUNDS[name][1]})"
        )
    return number
