"""`eosdb migrate-to-kafka`: a file's topics, records and groups' offsets move to a Kafka cluster."""

from __future__ import annotations

import contextlib
import dataclasses

import click

from eosdb.errors import IllegalStateError
from eosdb.moving import Plan, to_kafka
from eosdb.relay.kafka_settings import from_file
from eosdb.relay.positions import POSITIONS_TOPIC

from . import output
from .progress import progress
from .session import Session, pass_session

_COLUMNS = ("Step", "Subject", "Detail", "State")


@click.command(name="migrate-to-kafka")
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option("--to", "address", required=True, metavar="HOST:PORT", help="The Kafka cluster.")
@click.option("--topic", "topics", multiple=True, help="Topic to move (repeatable); default: all.")
@click.option(
    "--name", default="relay", show_default=True,
    help="Name of the relay that brings the records; it goes on where it stands.",
)  # fmt: skip
@click.option(
    "--config", type=click.Path(dir_okay=False), metavar="PATH",
    help="Settings of librdkafka, name=value in each line (sasl.password, ssl.ca.location, …).",
)  # fmt: skip
@click.option(
    "--positions-topic", default=POSITIONS_TOPIC, show_default=True, metavar="TOPIC",
    help="Topic of the cluster that remembers how far the relay has come.",
)  # fmt: skip
@output.format_option
@pass_session
def migrate_to_kafka(
    session: Session,
    /,
    file: str | None,
    address: str,
    topics: tuple[str, ...],
    name: str,
    config: str | None,
    positions_topic: str,
    output_format: str,
) -> None:
    """Move the topics of FILE (or that of --db) to a Kafka cluster: topics with their settings, records,
    offsets of consumer groups.

    \b
    Example:
      eosdb migrate-to-kafka shop.db --to broker:9092
    """
    if file is not None:
        session = dataclasses.replace(session, path=file)
    settings = {} if config is None else from_file(config)
    with contextlib.ExitStack() as cleanup:
        db = cleanup.enter_context(session.open())
        move = to_kafka(
            db,
            address,
            topics=list(topics) or None,
            name=name,
            config=settings,
            positions_topic=positions_topic,
            notify=lambda text: click.echo(text, err=True),
            on_progress=cleanup.enter_context(progress(db.clock, "relay", "records")),
        )
        found = move.plan()
    _print(found, output_format)
    if found.obstacles:
        raise IllegalStateError(f"{len(found.obstacles)} obstacles; see to them first")


def _print(plan: Plan, output_format: str) -> None:
    rows = [
        (step.action, step.subject, step.detail, "done" if step.done else "to do")
        for step in plan.steps
    ]
    rows += [("obstacle", "", text, "") for text in plan.obstacles]
    rows += [("note", "", text, "") for text in plan.notes]
    output.rows(_COLUMNS, rows, output_format)
