"""Topics: create, widen, configure, delete."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Mapping
from uuid import UUID, uuid5

from eosdb.config import BrokerConfig, TopicConfig, topic_overrides
from eosdb.errors import (
    InvalidPartitionsError,
    InvalidRequestError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from eosdb.events.kinds import PartitionsAdded, TopicConfigAltered, TopicCreated, TopicDeleted
from eosdb.model.damage import reads
from eosdb.model.values import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicMetadata
from eosdb.store.counters import counter
from eosdb.store.schema import file_id
from eosdb.store.writing.unit import Unit
from eosdb.validation import check_int, check_topic_name

PARTITIONS_MAX = 10_000


def create(
    unit: Unit,
    name: str,
    partitions: int | None,
    config: Mapping[str, object] | None,
    broker: BrokerConfig,
    now_ms: int,
) -> None:
    """Raises InvalidTopicExceptionError, InvalidPartitionsError, InvalidConfigError,
    TopicAlreadyExistsError, and InvalidRequestError for a name Kafka keeps to itself."""
    check_topic_name(name)
    if name in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC):
        raise InvalidRequestError(f"{name} is Kafka's internal topic; choose another name")
    count = broker.num_partitions if partitions is None else partitions
    check_int("partitions", count, 1, PARTITIONS_MAX, InvalidPartitionsError)
    overrides = topic_overrides(config)
    TopicConfig.resolve(broker, overrides)
    if unit.execute("SELECT 1 FROM topics WHERE topic = ?", (name,)).fetchone():
        raise TopicAlreadyExistsError(f"topic {name!r} exists already")
    unit.record(
        TopicCreated(
            timestamp=now_ms,
            topic=name,
            topic_id=counter(unit, "topic_id") + 1,
            first_partition_id=counter(unit, "partition_id") + 1,
            partitions=count,
            config=overrides,
        )
    )


def add_partitions(unit: Unit, name: str, total: int, now_ms: int) -> None:
    """Widen the topic to `total` partitions. Raises InvalidPartitionsError unless that is more."""
    topic_id, count, _ = _topic(unit, name)
    check_int("partitions", total, 1, PARTITIONS_MAX, InvalidPartitionsError)
    if total <= count:
        raise InvalidPartitionsError(
            f"topic {name!r} has {count} partitions; expected a larger number, got {total}"
        )
    unit.record(
        PartitionsAdded(
            timestamp=now_ms,
            topic=name,
            topic_id=topic_id,
            first_partition_id=counter(unit, "partition_id") + 1,
            first_partition=count,
            partitions=total - count,
        )
    )


def alter_config(
    unit: Unit,
    name: str,
    changes: Mapping[str, object | None],
    broker: BrokerConfig,
    now_ms: int,
) -> None:
    """Set the topic's own settings; None reverts one to the broker's. Raises InvalidConfigError."""
    topic_id, _, config = _topic(unit, name)
    overrides = topic_overrides({k: v for k, v in changes.items() if v is not None})
    removed = {k for k, v in changes.items() if v is None}
    TopicConfig.check_names(removed)
    merged = {k: v for k, v in config.items() if k not in removed} | overrides
    TopicConfig.resolve(broker, merged)
    if merged != config:
        unit.record(
            TopicConfigAltered(timestamp=now_ms, topic=name, topic_id=topic_id, config=merged)
        )


def delete(unit: Unit, name: str, now_ms: int) -> list[int]:
    """Delete the topic; its records are deleted in steps afterwards. Returns the ids of its
    partitions."""
    topic_id, _, _ = _topic(unit, name)
    ids = [
        partition_id
        for (partition_id,) in unit.execute(
            "SELECT partition_id FROM partitions WHERE topic_id = ?", (topic_id,)
        )
    ]
    unit.record(TopicDeleted(timestamp=now_ms, topic=name, topic_id=topic_id))
    return ids


def partition_counts(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """Every topic and how many partitions it has, by name."""
    return connection.execute("SELECT topic, partitions FROM topics ORDER BY topic").fetchall()


def metadata(connection: sqlite3.Connection, name: str | None = None) -> list[TopicMetadata]:
    """Every topic, or the one of this name, with an id that follows from the file's and its number there,
    which no other topic ever gets."""
    condition, values = ("", ()) if name is None else ("WHERE topic = ?", (name,))
    file = UUID(bytes=base64.urlsafe_b64decode(file_id.read(connection) + "=="))
    return [
        TopicMetadata(topic, uuid5(file, str(topic_id)), count)
        for topic, topic_id, count in connection.execute(
            f"SELECT topic, topic_id, partitions FROM topics {condition} ORDER BY topic", values
        )
    ]


@reads("topics")
def read_config(connection: sqlite3.Connection, name: str) -> dict[str, str]:
    """The settings given for the topic. Raises UnknownTopicOrPartitionError."""
    row = connection.execute("SELECT config FROM topics WHERE topic = ?", (name,)).fetchone()
    if row is None:
        raise unknown(name)
    config: dict[str, str] = json.loads(row[0])
    return config


def partition_count(connection: sqlite3.Connection, name: str) -> int | None:
    """How many partitions the topic has; None when there is no such topic."""
    row = connection.execute("SELECT partitions FROM topics WHERE topic = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


@reads("topics")
def _topic(unit: Unit, name: str) -> tuple[int, int, dict[str, str]]:
    row = unit.execute(
        "SELECT topic_id, partitions, config FROM topics WHERE topic = ?", (name,)
    ).fetchone()
    if row is None:
        raise unknown(name)
    return row[0], row[1], json.loads(row[2])


def unknown(name: str) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(f"there is no topic {name!r}; create it first")
