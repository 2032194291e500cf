"""Topics, their settings, scheduled records and typed views for administrators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache, partial
from uuid import UUID

from eosdb import errors
from eosdb.admin import configs
from eosdb.admin.configs import ConfigEntry
from eosdb.broker.core import Core
from eosdb.coordinator.authorizer import CLUSTER, Source
from eosdb.events.kinds import PartitionsAdded, TopicCreated
from eosdb.log import json_views, partition_rows, scheduled, topics
from eosdb.model.notices import catalog
from eosdb.model.reports import JsonView
from eosdb.model.requests import AlterTopicConfig
from eosdb.model.topic_config import ConfigChange, TopicConfig, settings
from eosdb.model.validation import check_int, check_text, check_texts
from eosdb.model.values import ScheduledRecord, TopicDescription, TopicMetadata
from eosdb.store.writing.unit import Unit


def create_topic(
    core: Core,
    name: str,
    partitions: int | None = None,
    config: Mapping[str, object] | None = None,
    *,
    exist_ok: bool = False,
    validate_only: bool = False,
) -> TopicMetadata:
    """Create a topic with `partitions` (None: num_partitions) and its own settings.

    `exist_ok` returns an existing topic of this name unchanged, with its partitions and settings. A log
    line warns if its number of partitions is another. `validate_only` only checks whether the topic can be
    created. Raises TopicAlreadyExistsError, InvalidPartitionsError, InvalidConfigError, InvalidRequestError
    and TopicAuthorizationFailedError.
    """
    created = list[TopicMetadata]()

    def creation(source: Source) -> list[TopicCreated]:
        core.authorizer.check_create_topic(source, name)
        now = core.clock.time_ms()
        event = topics.checked_creation(source, name, partitions, config, core.config, now)
        created.append(topics.metadata_of(source, event))  # May fail, so it precedes the commit.
        return [event]

    try:
        core.change(creation, validate_only=validate_only)
    except errors.TopicAlreadyExistsError:
        with core.store.read() as connection:
            existing = topics.metadata(connection, (name,)) if exist_ok else []
        if not existing:
            raise
        if partitions not in (None, existing[0].partitions):
            catalog.TOPIC_HAS_OTHER_PARTITIONS.say(
                topic=name, partitions=existing[0].partitions, wanted=partitions
            )
        return existing[0]
    return created[-1]


def create_partitions(core: Core, name: str, total: int, *, validate_only: bool = False) -> None:
    """Add partitions, up to `total`. Raises InvalidPartitionsError unless that is more than the
    topic has."""
    check_text("topic", name, errors.UnknownTopicOrPartitionError)

    def widening(source: Source) -> list[PartitionsAdded]:
        core.authorizer.check(source, "alter", "topic", name)
        return [topics.checked_widening(source, name, total, core.clock.time_ms())]

    core.change(widening, validate_only=validate_only)


def alter_topic_config(core: Core, name: str, config: Mapping[str, object | None]) -> None:
    """Change some of the topic's own settings; None resets one to the broker's value. Raises
    InvalidConfigError and UnknownTopicOrPartitionError."""
    change_topic_config(core, name, settings(config))


def change_topic_config(
    core: Core,
    name: str,
    changes: Iterable[ConfigChange],
    *,
    anew: bool = False,
    validate_only: bool = False,
) -> None:
    """Apply changes to the topic's own settings; `anew` first drops all of its settings. Raises
    InvalidConfigError, UnknownTopicOrPartitionError, and InvalidRequestError for a setting that
    occurs twice."""
    check_text("topic", name, errors.UnknownTopicOrPartitionError)
    request = AlterTopicConfig(name, list(changes), anew=anew)
    core.change(lambda source: core.altered(source, request), validate_only=validate_only)


def delete_topic(core: Core, topic: str | UUID) -> None:
    """Delete the topic of this name or id, its records and the offsets committed for it.

    Raises UnknownTopicOrPartitionError, or UnknownTopicIdError.
    """
    if not isinstance(topic, UUID):
        check_text("topic", topic, errors.UnknownTopicOrPartitionError)

    def delete(unit: Unit) -> list[int]:
        name = topics.name_of(unit, topic) if isinstance(topic, UUID) else topic
        core.authorizer.check(unit, "delete", "topic", name)
        return topics.delete(unit, name, core.clock.time_ms())

    core.delete_rows(core.coordinator.write(delete))


def list_topics(core: Core) -> list[str]:
    """Return the names of all topics that the principal may describe."""
    with core.store.read() as connection:
        may_see = core.authorizer.describes(connection)
        return [name for name in topics.numbers(connection) if may_see("topic", name)]


def describe_topic(core: Core, name: str) -> TopicDescription:
    """Return the topic with the offsets of its partitions and its own settings. Raises
    UnknownTopicOrPartitionError and TopicAuthorizationFailedError."""
    check_text("topic", name, errors.UnknownTopicOrPartitionError)
    with core.reading("describe", "topic", name) as connection:
        config = topics.read_config(connection, name)
        partitions = partition_rows.read_topic(connection, name)
    return TopicDescription(name, tuple(p.offsets() for p in partitions), config)


def topic_config(core: Core, name: str) -> TopicConfig:
    return TopicConfig.resolve(core.config, describe_topic(core, name).config)


def describe_topic_config(core: Core, name: str) -> list[ConfigEntry]:
    """Return every setting of the topic, with its effective value and source. Raises
    UnknownTopicOrPartitionError and TopicAuthorizationFailedError."""
    check_text("topic", name, errors.UnknownTopicOrPartitionError)
    with core.reading("describe_configs", "topic", name) as connection:
        return configs.of_topic(core.config, topics.read_config(connection, name))


def describe_broker_config(core: Core) -> list[ConfigEntry]:
    """Return the settings of the broker. Raises ClusterAuthorizationFailedError."""
    with core.reading("describe_configs", "cluster", CLUSTER):
        return configs.of_broker(core.config)


def create_view(core: Core, name: str, topic: str, columns: Mapping[str, str]) -> None:
    """Create a typed view `name` over the JSON values of the topic's committed records.

    `columns` are JSON fields, or paths of fields with dots, and their types: TEXT, INTEGER, REAL,
    BOOLEAN or JSON. After them come `_partition`, `_offset`, `_timestamp` and `_key`. `_key` is TEXT: the
    key if it is UTF-8 without the byte 0, otherwise its bytes as an SQL literal. Raises
    InvalidRequestError and UnknownTopicOrPartitionError.
    """
    parsed = tuple(
        json_views.parse_column(check_text("field", field), check_text("type", type_name))
        for field, type_name in columns.items()
    )
    check_text("topic", topic, errors.UnknownTopicOrPartitionError)

    def create(unit: Unit) -> None:
        core.authorizer.check(unit, "alter_configs", "topic", topic)
        json_views.create(unit, name, topic, parsed, core.clock.time_ms())

    core.coordinator.write(create)


def list_views(core: Core) -> list[JsonView]:
    """Return the typed views created by `create_view`, for topics that the principal may describe."""
    with core.store.read() as connection:
        may_see = core.authorizer.describes(connection)
        return [it for it in json_views.describe(connection) if may_see("topic", it.topic)]


def drop_view(core: Core, name: str) -> None:
    """Drop a typed view. Raises InvalidRequestError if there is no such view."""
    check_text("name", name)

    def drop(unit: Unit) -> None:
        stored_name, topic = json_views.find(unit, name)
        core.authorizer.check(unit, "alter_configs", "topic", topic)
        json_views.drop(unit, stored_name, core.clock.time_ms())

    core.coordinator.write(drop)


def list_scheduled(core: Core, topic: str | None = None) -> list[ScheduledRecord]:
    """Return the committed records that wait, of one topic or of all that the principal may read, by
    due time. Raises UnknownTopicOrPartitionError and TopicAuthorizationFailedError."""
    with core.store.read() as connection:
        if topic is not None:
            core.authorizer.check(connection, "read", "topic", check_text("topic", topic))
            if topics.partition_count(connection, topic) is None:
                raise topics.unknown(connection, topic)
        may_read = cache(partial(core.authorizer.allows, connection, "read", "topic"))
        found = scheduled.waiting(connection, topic)
        return [one for one in found if may_read(one.topic)]


def cancel_scheduled(core: Core, ids: Iterable[str]) -> int:
    """Cancel records by the ids of `list_scheduled`, all in one commit. Returns how many were still
    there: the others have entered their topics, or were cancelled before. Raises InvalidRequestError
    and TopicAuthorizationFailedError."""
    places = [_place(text) for text in check_texts("ids", ids)]

    def cancel(unit: Unit) -> int:
        waiting = defaultdict[int, list[scheduled.Waiting]](list)
        for place in dict.fromkeys(places):
            if (record := scheduled.find(unit, *place)) is not None:
                core.authorizer.check(unit, "delete", "topic", record.topic)
                waiting[record.partition_id].append(record)
        for records in waiting.values():
            scheduled.remove(unit, records, "cancelled", core.clock.time_ms())
        return sum(map(len, waiting.values()))

    return core.coordinator.write(cancel)


def _place(text: str) -> tuple[int, int]:
    """Parse the id of a scheduled record: its partition id and offset."""
    partition_id, _, offset = text.partition(".")
    if not (partition_id.isdecimal() and offset.isdecimal()):
        raise errors.InvalidRequestError(f"ids: got {text!r:.80}, expected ids of `list_scheduled`")
    return check_int("ids", int(partition_id), 0), check_int("ids", int(offset), 0)
