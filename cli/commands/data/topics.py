"""`eosdb topics` and `delete-records` (kafka-topics.sh, kafka-configs.sh, kafka-delete-records.sh)."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping

import click

import eosdb
from eosdb import TopicPartition
from eosdb.cli import options, output
from eosdb.cli.file_command import FileCommand, FileGroup, Session
from eosdb.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from eosdb.model.topic_config import TOPIC_SETTINGS, TopicConfig, without_effect
from eosdb.model.words import counted

_config_option = options.setting(
    "--config",
    help="Topic setting NAME=VALUE (repeatable). In effect: "
    f"{', '.join(name for name, of in TOPIC_SETTINGS.items() if of.field and of.broker_field)}. "
    "Other settings of Kafka are accepted, without effect.",
)


def _check_one_copy(_: click.Context, __: click.Parameter, factor: int | None) -> None:
    if factor not in (None, -1, 1):
        raise click.BadParameter(
            f"got {factor}; a file has one replica: give 1, or leave the option out"
        )


@click.group(cls=FileGroup)
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command()
@click.argument("topic")
@click.option("--partitions", type=int, help="Number of partitions (default: 1).")
@_config_option
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@click.option(
    "--replication-factor", type=int, hidden=True, expose_value=False, callback=_check_one_copy
)
def create(
    session: Session,
    topic: str,
    partitions: int | None,
    config: dict[str, str],
    if_not_exists: bool,
) -> None:
    """Create TOPIC.

    \b
    Example:
      eosdb topics create shop.db orders --partitions 4 --config cleanup.policy=compact
    """
    with session.open() as db:
        try:
            db.admin.create_topic(topic, partitions=partitions, config=config)
        except TopicAlreadyExistsError:
            if not if_not_exists:
                raise
            count = db.broker.partitions_for(topic)
            other = "" if partitions in (None, count) else f", with {counted(count, 'partition')}"
            output.done(f"topic {topic} exists{other}")
            return
    output.done(f"created topic {topic}")
    _say_without_effect(topic, config)


@topics.command(name="list")
@output.format_option
def list_(session: Session) -> None:
    """List all topics.

    \b
    Example:
      eosdb topics list shop.db
    """
    with session.open(read_only=True) as db:
        output.rows(("Topic",), [(name,) for name in db.admin.list_topics()])


@topics.command()
@click.argument("topic", required=False)
@output.format_option
def describe(session: Session, topic: str | None) -> None:
    """Describe TOPIC, or all topics: the offsets of each partition, its scheduled records, and the topic's
    settings. Settings of Kafka that eosdb keeps without effect have their own column.

    \b
    Example:
      eosdb topics describe shop.db orders
    """
    columns = (
        "Topic", "Partition", "LogStartOffset", "LogEndOffset", "LastStableOffset",
        "FirstUnstableOffset", "Scheduled", "Configs", "WithoutEffect",
    )  # fmt: skip
    with session.open(read_only=True) as db:
        descriptions = [
            db.admin.describe_topic(name)
            for name in ([topic] if topic is not None else db.admin.list_topics())
        ]
        waiting = Counter((one.topic, one.partition) for one in db.admin.list_scheduled(topic))
    output.rows(
        columns,
        [
            (
                described.name,
                number,
                offsets.log_start_offset,
                offsets.log_end_offset,
                offsets.last_stable_offset,
                offsets.first_unstable_offset,
                waiting[described.name, number],
                *_configs(described.config),
            )
            for described in descriptions
            for number, offsets in enumerate(described.partitions)
        ],
    )
    for described in descriptions:
        _say_without_effect(described.name, described.config)


@topics.command()
@click.argument("topic")
@click.option("--partitions", type=int, help="New number of partitions, larger than before.")
@_config_option
@click.option(
    "--delete-config", multiple=True, metavar="NAME",
    help="Reset a topic setting to its default (repeatable).",
)  # fmt: skip
def alter(
    session: Session,
    topic: str,
    partitions: int | None,
    config: dict[str, str],
    delete_config: tuple[str, ...],
) -> None:
    """Alter the settings of TOPIC, or add partitions.

    \b
    Example:
      eosdb topics alter shop.db orders --partitions 8 --config retention.ms=86400000
    """
    changes: dict[str, str | None] = {**config, **dict.fromkeys(delete_config)}
    if partitions is None and not changes:
        raise click.UsageError("nothing to change: give --partitions, --config or --delete-config")
    with session.open() as db:
        if changes:
            db.admin.alter_topic_config(topic, changes)
        if partitions is not None:
            db.admin.create_partitions(topic, partitions)
    output.done(f"altered topic {topic}")
    _say_without_effect(topic, config)


@topics.command()
@click.argument("topic")
@options.yes
def delete(session: Session, topic: str, yes: bool) -> None:
    """Delete TOPIC, its records, and the offsets committed for it.

    \b
    Example:
      eosdb topics delete shop.db orders --yes
    """
    with session.open() as db:
        db.admin.describe_topic(topic)
        if not yes:
            click.confirm(f"delete topic {topic} and all its records?", abort=True, err=True)
        db.admin.delete_topic(topic)
    output.done(f"deleted topic {topic}")


@click.command("delete-records", cls=FileCommand)
@options.partition_argument()
@click.option(
    "--before-offset", type=click.IntRange(min=-1), required=True,
    help="Delete records below this offset; -1 deletes everything up to the high watermark.",
)  # fmt: skip
@options.yes
def delete_records(session: Session, where: TopicPartition, before_offset: int, yes: bool) -> None:
    """Delete the oldest records of a partition by moving its log start offset forward.

    \b
    Example:
      eosdb delete-records shop.db orders/0 --before-offset 1000 --yes
    """
    with session.open() as db:
        db.broker.offsets(where)
        if not yes:
            before = "all offsets" if before_offset < 0 else f"offsets before {before_offset}"
            click.confirm(f"delete {before} of {where}?", abort=True, err=True)
        start = db.broker.delete_records(where, before_offset)
    output.done(f"{where} now begins at offset {start}")


def settings_of(db: eosdb.Database, topic: str) -> TopicConfig:
    """The topic's effective settings. Raises UnknownTopicOrPartitionError with the command to create it."""
    from eosdb.admin.tools import Tools  # Loads the database, which `--help` does not need.

    try:
        return Tools(db.admin).topic_config(topic)
    except UnknownTopicOrPartitionError as error:
        raise UnknownTopicOrPartitionError(
            f"{error}: eosdb topics create {shlex.quote(topic)} --partitions 4"
        ) from None


def _configs(config: Mapping[str, str]) -> tuple[str, str]:
    """Format the settings in effect, and the settings that are kept without effect."""
    kept = without_effect(config)
    acting = sorted(config.keys() - set(kept))
    return _pairs(config, acting), _pairs(config, kept)


def _pairs(config: Mapping[str, str], names: Iterable[str]) -> str:
    return ",".join(f"{name}={config[name]}" for name in names)


def _say_without_effect(topic: str, config: Iterable[str]) -> None:
    kept = without_effect(config)
    if kept:
        output.line(f"topic {topic}: {', '.join(kept)}: kept, without effect in eosdb", err=True)
