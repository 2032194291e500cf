"""Topics: create, add partitions, configure, delete."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final
from uuid import UUID, uuid5

from eosdb.errors import (
    CorruptDatabaseError,
    InvalidPartitionsError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from eosdb.events.kinds import PartitionsAdded, TopicConfigAltered, TopicCreated, TopicDeleted
from eosdb.model.config import BrokerConfig, guess
from eosdb.model.damage import parsed, reads
from eosdb.model.notices import catalog
from eosdb.model.topic_config import MOVING_TO, ConfigChange, TopicConfig, changed, topic_overrides
from eosdb.model.validation import check_int, check_topic_name
from eosdb.model.values import INTERNAL_TOPICS, PARTITIONS_MAX, TopicMetadata, TopicPartition
from eosdb.store.counters import counter
from eosdb.store.schema import file_id
from eosdb.store.writing.table import Table
from eosdb.store.writing.unit import Unit

Source = Unit | sqlite3.Connection
TOPICS: Final = Table("topics", "topic_id topic partitions config created_time", "topic_id")
SAVE_COUNT: Final = TOPICS.set("partitions = ?", "topic_id = ?")
SAVE_CONFIG: Final = TOPICS.set("config = ?", "topic_id = ?")
_BY_NAME: Final = (
    # The join by id makes SQLite take the name from the row and not from an index.
    "SELECT t.topic, t.topic_id, t.partitions, t.config FROM topics i "
    "CROSS JOIN topics t ON t.topic_id = i.topic_id WHERE i.topic = ?"
)
_NAMES_TO_GUESS: Final = (
    "SELECT json_group_array(topic) FROM (SELECT topic FROM topics LIMIT 1000) "
    "WHERE NOT EXISTS (SELECT 1 FROM acls)"
)
_SCHEDULED: Final = """
    SELECT count(*) FROM eosdb_scheduled s JOIN partitions p ON p.partition_id = s.partition_id
    WHERE p.topic = ?
"""
"""The scheduled records of a topic that wait, including records of open transactions."""
_NAMES: Final = "SELECT topic_id, topic FROM topics"
_NAMES_OF: Final = f"{_NAMES} WHERE topic_id IN (SELECT value FROM json_each(?))"
_SEVERAL: Final = 30
"""Reading all topics costs less than looking up more than so many."""
_WITHOUT_INDEX: Final = "SELECT 1 FROM topics NOT INDEXED WHERE topic = ?"


def checked_creation(
    source: Source,
    name: str,
    partitions: int | None,
    config: Mapping[str, object] | None,
    broker: BrokerConfig,
    now_ms: int,
) -> TopicCreated:
    """Check the creation of a topic; returns its event. Raises InvalidTopicExceptionError,
    InvalidPartitionsError, InvalidConfigError, and TopicAlreadyExistsError, also for a name that Kafka
    reserves."""
    check_topic_name(name)
    if name in INTERNAL_TOPICS:
        raise TopicAlreadyExistsError(f"{name} is Kafka's internal topic; choose another name")
    count = broker.num_partitions if partitions is None else partitions
    check_int("partitions", count, 1, PARTITIONS_MAX, InvalidPartitionsError)
    overrides = topic_overrides(config)
    TopicConfig.resolve(broker, overrides)
    if source.execute("SELECT 1 FROM topics WHERE topic = ?", (name,)).fetchone():
        raise TopicAlreadyExistsError(f"topic {name!r} exists already")
    return TopicCreated(
        timestamp=now_ms,
        topic=name,
        topic_id=counter(source, "topic_id") + 1,
        first_partition_id=counter(source, "partition_id") + 1,
        partitions=count,
        config=overrides,
    )


def checked_widening(source: Source, name: str, total: int, now_ms: int) -> PartitionsAdded:
    """The event that widens the topic to `total` partitions. Raises InvalidPartitionsError unless that is
    more than it has."""
    topic_id, count, _ = _topic(source, name)
    check_int("partitions", total, 1, PARTITIONS_MAX, InvalidPartitionsError)
    if total <= count:
        raise InvalidPartitionsError(
            f"topic {name!r} has {count} partitions; expected a larger number, got {total}"
        )
    return PartitionsAdded(
        timestamp=now_ms,
        topic=name,
        topic_id=topic_id,
        first_partition_id=counter(source, "partition_id") + 1,
        first_partition=count,
        partitions=total - count,
    )


def waiting(source: Source, tp: TopicPartition, now_ms: int) -> PartitionsAdded:
    """The event that adds a waiting partition."""
    assert tp.partition < 0, tp
    topic_id = _topic(source, tp.topic)[0]
    first_id = counter(source, "partition_id") + 1
    return PartitionsAdded(now_ms, tp.topic, topic_id, first_id, tp.partition, 1)


def checked_config(
    source: Source,
    name: str,
    changes: Sequence[ConfigChange],
    broker: BrokerConfig,
    now_ms: int,
    *,
    anew: bool = False,
) -> TopicConfigAltered | None:
    """The event that changes the topic's own settings; None if nothing changes. `anew` drops all others.
    Raises InvalidConfigError, InvalidRequestError for a setting that occurs twice, and
    PolicyViolationError for closing a topic whose scheduled records wait."""
    topic_id, _, config = _topic(source, name)
    after = changed({} if anew else config, changes, broker)
    if after == config:
        return None
    if (MOVING_TO in after) > (MOVING_TO in config) and (waiting := _scheduled(source, name)):
        raise PolicyViolationError(
            f"topic {name!r} has {waiting} scheduled records, which a closed topic could not receive; "
            f"nothing was changed. Wait for them, or cancel them: `eosdb scheduled list --topic {name}`"
        )
    return TopicConfigAltered(timestamp=now_ms, topic=name, topic_id=topic_id, config=after)


def delete(unit: Unit, name: str, now_ms: int) -> list[int]:
    """Delete the topic; later steps delete its records. Returns the ids of its partitions."""
    topic_id, _, _ = _topic(unit, name)
    ids = [
        partition_id
        for (partition_id,) in unit.execute(
            "SELECT partition_id FROM partitions WHERE topic_id = ?", (topic_id,)
        )
    ]
    if waiting := _scheduled(unit, name):
        unit.untold.add(catalog.SCHEDULED_DROPPED, topic=name, records=waiting)
    unit.record(TopicDeleted(timestamp=now_ms, topic=name, topic_id=topic_id))
    return ids


def _scheduled(source: Source, name: str) -> int:
    (count,) = source.execute(_SCHEDULED, (name,)).fetchone()
    return int(count)


def metadata_of(source: Source, created: TopicCreated) -> TopicMetadata:
    """The metadata of a topic that was, or would be, created."""
    return TopicMetadata(created.topic, ids(source)(created.topic_id), created.partitions)


def name_of(source: Source, topic_id: UUID) -> str:
    """The name of the topic with this id. Raises UnknownTopicIdError."""
    name = names(source).get(topic_id)
    if name is None:
        raise unknown_id(topic_id)
    return name


def names(source: Source) -> dict[UUID, str]:
    to_id = ids(source)
    return {
        to_id(number): name for name, number in source.execute("SELECT topic, topic_id FROM topics")
    }


def check_id(source: Source, number: int, topic_id: UUID) -> None:
    """Raises UnknownTopicIdError unless the topic of this number has this id."""
    if ids(source)(number) != topic_id:
        raise unknown_id(topic_id)


def unknown_id(topic_id: UUID) -> UnknownTopicIdError:
    return UnknownTopicIdError(f"there is no topic with the id {topic_id}")


def metadata(source: Source, names: Collection[str] | None = None) -> list[TopicMetadata]:
    """The metadata of every topic, or of each of `names` that exists. The topic id follows from the file's
    id and the topic's number, so it is never reused."""
    to_id, found = ids(source), numbers(source, names)
    return [TopicMetadata(name, to_id(number), count) for name, (number, count) in found.items()]


@reads("topics")
def read_config(connection: sqlite3.Connection, name: str) -> dict[str, str]:
    """Return the topic's own settings. Raises UnknownTopicOrPartitionError."""
    return _topic(connection, name)[2]


def numbers(source: Source, names: Collection[str] | None = None) -> dict[str, tuple[int, int]]:
    """Number and partition count of every topic, or of each of `names` that exists."""
    if names is None or len(names) > _SEVERAL:
        rows = source.execute("SELECT topic, topic_id, partitions FROM topics ORDER BY topic")
        every = {topic: (number, count) for topic, number, count in rows}
        return every if names is None else {n: every[n] for n in sorted(names) if n in every}
    found = {name: _row(source, name) for name in sorted(names)}
    return {name: row[:2] for name, row in found.items() if row is not None}


def check_still_there(source: Source, held: Mapping[str, int], done: str) -> None:
    """Check topics between the units of one piece of work. Raises UnknownTopicOrPartitionError for a
    deleted topic, and UnknownTopicIdError for a recreated topic. `done` describes the finished part for
    the error."""
    now = numbers(source, held)
    for name, number in held.items():
        if name not in now:
            raise UnknownTopicOrPartitionError(f"topic {name!r} was deleted meanwhile; {done}")
        if now[name][0] != number:
            raise UnknownTopicIdError(f"topic {name!r} was deleted and recreated meanwhile; {done}")


def by_number(source: Source, numbers: Collection[int] | None = None) -> dict[int, str]:
    """The names of all topics, or of those of these numbers, by number."""
    if numbers is None:
        return dict(source.execute(_NAMES).fetchall())
    return dict(source.execute(_NAMES_OF, (json.dumps([*numbers]),)).fetchall())


def partition_count(source: Source, name: str) -> int | None:
    """Return the topic's number of partitions; None if there is no such topic."""
    row = _row(source, name)
    return None if row is None else row[1]


@reads("eosdb_file")
def ids(source: Source) -> Callable[[int], UUID]:
    """Return a function that maps a topic number of this file to Kafka's topic id."""
    file = UUID(bytes=base64.urlsafe_b64decode(file_id.read(source) + "=="))
    return partial(_id, file)


@lru_cache(maxsize=16_384)  # Cached, because every Fetch by topic id needs the ids of all topics.
def _id(file: UUID, number: int) -> UUID:
    return uuid5(file, str(number))


@reads("topics")
def _topic(source: Source, name: str) -> tuple[int, int, dict[str, str]]:
    row = _row(source, name)
    if row is None:
        raise unknown(source, name)
    return row[0], row[1], dict(parsed(row[2]))


def _row(source: Source, name: str) -> tuple[int, int, str] | None:
    """Number, partitions and settings of the topic, if it exists. Raises CorruptDatabaseError."""
    row = source.execute(_BY_NAME, (name,)).fetchone()
    if row is not None and row[0] == name:
        columns: tuple[int, int, str] = row[1:]
        return columns
    if row is None and source.execute(_WITHOUT_INDEX, (name,)).fetchone() is None:
        return None
    raise CorruptDatabaseError(
        f"topics: the index does not lead to the row of {name!r}; `eosdb verify` shows what else is "
        "damaged, and a backup restores it"
    )


def unknown(source: Source, name: str) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(
        f"there is no topic {name!r}{alike(source, name)}; create it first"
    )


def alike(source: Source, name: str) -> str:
    """A hint at a similar topic name, for an error; empty without one. Always empty in a file with ACLs,
    because the principal may not see every name."""
    (stored,) = source.execute(_NAMES_TO_GUESS).fetchone()
    names = parsed(stored)
    return "" if name in names else guess(name, names)
