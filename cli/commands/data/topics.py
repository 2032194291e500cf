"""`eosdb topics`: create, list, describe, alter, delete (kafka-topics, kafka-configs)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import click

import eosdb
from eosdb.cli import output
from eosdb.cli.params import settings
from eosdb.cli.session import Session, pass_session
from eosdb.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from eosdb.model.topic_config import TopicConfig, without_effect


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command()
@click.argument("topic")
@click.option("--partitions", type=int, help="Number of partitions (default: 1).")
@click.option(
    "--config", callback=settings, multiple=True, help="Topic config as NAME=VALUE (repeatable)."
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@pass_session
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
      eosdb topics create orders --partitions 4 --config cleanup.policy=compact
    """
    with session.open() as db:
        try:
            db.admin.create_topic(topic, partitions=partitions, config=config)
        except TopicAlreadyExistsError:
            if not if_not_exists:
                raise
            output.line(f"topic {topic} exists")
            return
    output.line(f"created topic {topic}")
    _say_without_effect(topic, config)


@topics.command(name="list")
@output.format_option
@pass_session
def list_(session: Session, output_format: str) -> None:
    """List all topics.

    \b
    Example:
      eosdb topics list
    """
    with session.open(read_only=True) as db:
        output.rows(("Topic",), [(name,) for name in db.admin.list_topics()], output_format)


@topics.command()
@click.argument("topic", required=False)
@output.format_option
@pass_session
def describe(session: Session, topic: str | None, output_format: str) -> None:
    """Describe TOPIC, or all topics: offsets and configs of each partition.

    \b
    Example:
      eosdb topics describe orders
    """
    columns = (
        "Topic", "Partition", "LogStartOffset", "LogEndOffset", "LastStableOffset",
        "FirstUnstableOffset", "Configs",
    )  # fmt: skip
    with session.open(read_only=True) as db:
        found = [
            db.admin.describe_topic(name)
            for name in ([topic] if topic is not None else db.admin.list_topics())
        ]
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
                ",".join(f"{k}={v}" for k, v in sorted(described.config.items())),
            )
            for described in found
            for number, offsets in enumerate(described.partitions)
        ],
        output_format,
    )
    for described in found:
        _say_without_effect(described.name, described.config)


@topics.command()
@click.argument("topic")
@click.option("--partitions", type=int, help="Increase the number of partitions to this.")
@click.option(
    "--config",
    callback=settings,
    multiple=True,
    help="Set a topic config, NAME=VALUE (repeatable).",
)
@click.option(
    "--delete-config", multiple=True, help="Reset a topic config to its default (repeatable)."
)
@pass_session
def alter(
    session: Session,
    topic: str,
    partitions: int | None,
    config: dict[str, str],
    delete_config: tuple[str, ...],
) -> None:
    """Alter the configuration of TOPIC, or add partitions.

    \b
    Example:
      eosdb topics alter orders --partitions 8 --config retention.ms=86400000
    """
    changes: dict[str, str | None] = {**config, **dict.fromkeys(delete_config)}
    if partitions is None and not changes:
        raise click.UsageError("nothing to change: give --partitions, --config or --delete-config")
    with session.open() as db:
        if changes:
            db.admin.alter_topic_config(topic, changes)
        if partitions is not None:
            db.admin.create_partitions(topic, partitions)
    output.line(f"altered topic {topic}")
    _say_without_effect(topic, config)


@topics.command()
@click.argument("topic")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@pass_session
def delete(session: Session, topic: str, yes: bool) -> None:
    """Delete TOPIC, its records, and the offsets committed for it.

    \b
    Example:
      eosdb topics delete orders --yes
    """
    with session.open() as db:
        db.admin.describe_topic(topic)
        if not yes:
            click.confirm(f"delete topic {topic} and all its records?", abort=True, err=True)
        db.admin.delete_topic(topic)
    output.line(f"deleted topic {topic}")


def settings_of(db: eosdb.Database, topic: str) -> TopicConfig:
    """The effective settings of the topic, for commands that write to it.

    Raises UnknownTopicOrPartitionError naming the command that creates the topic.
    """
    try:
        return db.admin.topic_config(topic)
    except UnknownTopicOrPartitionError:
        raise UnknownTopicOrPartitionError(
            f"there is no topic {topic!r}; create it first: "
            f"eosdb topics create {shlex.quote(topic)} --partitions 4"
        ) from None


def _say_without_effect(topic: str, config: Iterable[str]) -> None:
    kept = without_effect(config)
    if kept:
        output.line(f"topic {topic}: {', '.join(kept)}: kept, without effect in eosdb", err=True)
