"""`eosdb migrate-to-kafka`: a file's topics, records and groups' offsets move to a Kafka cluster."""

from __future__ import annotations

import contextlib
import dataclasses

import click

from eosdb.cli import output
from eosdb.cli.params import kafka_config_option
from eosdb.cli.progress import progress
from eosdb.cli.session import Session, pass_session
from eosdb.cli.stopping import stopped_by_signals
from eosdb.errors import IllegalStateError
from eosdb.integrations.moving import Plan, to_kafka
from eosdb.integrations.relay.kafka_settings import from_file
from eosdb.integrations.relay.positions import POSITIONS_TOPIC

_COLUMNS = ("Step", "Subject", "Detail", "State")


@click.command(name="migrate-to-kafka")
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option("--to", "address", required=True, metavar="HOST:PORT", help="The Kafka cluster.")
@click.option("--topic", "topics", multiple=True, help="Topic to move (repeatable); default: all.")
@click.option(
    "--name", default="relay", show_default=True,
    help="Name of the relay that brings the records; it goes on where it stands.",
)  # fmt: skip
@kafka_config_option
@click.option(
    "--positions-topic", default=POSITIONS_TOPIC, show_default=True, metavar="TOPIC",
    help="Topic of the cluster that remembers how far the relay has come.",
)  # fmt: skip
@click.option("--execute", is_flag=True, help="Do it; without, only the plan is printed.")
@click.option(
    "--undo", is_flag=True,
    help="Open the file to writers again, unless the cluster has what the file has not.",
)  # fmt: skip
@click.option(
    "--wait", type=click.FloatRange(min=0), default=0.0, show_default=True, metavar="SECONDS",
    help="Wait so long for members of groups to leave, and for open transactions to end.",
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
    execute: bool,
    undo: bool,
    wait: float,
    output_format: str,
) -> None:
    """Move the topics of FILE (or that of --db) to a Kafka cluster: topics with their settings, all
    records, and the offsets of consumer groups. Prints what there is to do, and what stands in the way;
    with --execute it is done. Killed and started again, it goes on. Kafka needs pip install
    'eosdb[kafka]'.

    The records come by `eosdb relay`, which may run for weeks before (--name). At the end the topics are
    closed to whoever writes to the file, both sides are compared record by record, and groups are set to
    where they stood.

    \b
    Example:
      eosdb migrate-to-kafka shop.db --to broker:9092
      eosdb migrate-to-kafka shop.db --to broker:9092 --execute --wait 60
    """
    if execute and undo:
        raise click.UsageError("--execute and --undo are opposites; give one of them")
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
            notify=lambda text: output.line(text, err=True),
            on_progress=cleanup.enter_context(progress(db.clock, "relay", "records")),
        )
        cleanup.callback(move.close)
        cleanup.enter_context(stopped_by_signals(move.stop))
        if execute:
            found = move.execute(wait_ms=round(wait * 1000))
        else:
            found = move.undo() if undo else move.plan()
    _print(found, output_format)
    if execute and not found.is_done:
        raise IllegalStateError("stopped before the end; run it again, and it goes on")
    if found.obstacles and not undo:
        raise IllegalStateError(f"{len(found.obstacles)} obstacles; see to them first")


def _print(plan: Plan, output_format: str) -> None:
    rows = [
        (step.action, step.subject, step.detail, "done" if step.done else "to do")
        for step in plan.steps
    ]
    rows += [("obstacle", "", text, "") for text in plan.obstacles]
    rows += [("note", "", text, "") for text in plan.notes]
    output.rows(_COLUMNS, rows, output_format)
