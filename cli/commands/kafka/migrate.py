"""`eosdb migrate-to-kafka`: move topics, records and committed offsets to a Kafka cluster."""

from __future__ import annotations

import contextlib

import click

from eosdb.cli import options, output
from eosdb.cli.commands.kafka.relay import name_option, positions_topic_option
from eosdb.cli.file_command import FileCommand, Session
from eosdb.errors import IllegalStateError
from eosdb.integrations.moving.move import to_kafka
from eosdb.integrations.moving.plan import Plan
from eosdb.integrations.relay.kafka_client import from_file
from eosdb.system.signals import stopped_by_signals

_COLUMNS = ("Step", "Subject", "Detail", "State")


@click.command(name="migrate-to-kafka", cls=FileCommand)
@click.option(
    "--to", "address", required=True, metavar="HOST:PORT", help="Target: a Kafka cluster."
)
@options.topics
@name_option
@options.command_config
@positions_topic_option
@options.execute
@click.option(
    "--undo", is_flag=True,
    help="Open the topics to writers again, unless the cluster has records that FILE lacks.",
)  # fmt: skip
@click.option(
    "--wait", type=click.FloatRange(min=0), default=0.0, show_default=True, metavar="SECONDS",
    help="Wait this long for group members to leave and for open transactions to end.",
)  # fmt: skip
@output.format_option
def migrate_to_kafka(
    session: Session,
    /,
    address: str,
    topics: tuple[str, ...],
    config: str | None,
    execute: bool,
    undo: bool,
    wait: float,
    **options: str,
) -> None:
    """Move the topics of FILE to a Kafka cluster: topics with their settings, all records, and the offsets
    of consumer groups. Prints the steps left and what prevents them; --execute carries them out. Restarted
    after a kill, it resumes. Needs the extra kafka.

    `eosdb relay` copies the records, and may have run for weeks before (--name). At the end the topics
    are closed to writers of the file, both sides are compared record by record, and the offsets of the
    groups are committed in the cluster.

    \b
    Example:
      eosdb migrate-to-kafka shop.db --to broker:9092
      eosdb migrate-to-kafka shop.db --to broker:9092 --execute --wait 60
    """
    if execute and undo:
        raise click.UsageError("--execute and --undo are opposites; give one of them")
    settings = {} if config is None else from_file(config)
    with contextlib.ExitStack() as cleanup:
        db = cleanup.enter_context(session.open())
        move = to_kafka(
            db,
            address,
            topics=list(topics) or None,
            config=settings,
            notify=lambda text: output.line(text, err=True),
            on_progress=cleanup.enter_context(output.progress("relay", "records")),
            **options,
        )
        cleanup.callback(move.close)
        cleanup.enter_context(stopped_by_signals(move.stop))
        if execute:
            plan = move.execute(wait_ms=round(wait * 1000))
        elif undo:
            plan = move.undo()
        else:
            plan = move.plan()
    _print(plan)
    if execute and not plan.is_done:
        raise IllegalStateError("stopped before the end; run it again to resume")
    if plan.obstacles and not undo:
        raise IllegalStateError(f"{len(plan.obstacles)} obstacles; remove them first")


def _print(plan: Plan) -> None:
    rows = [
        (step.action, step.subject, step.detail, "done" if step.done else "to do")
        for step in plan.steps
    ]
    rows += [("obstacle", "", text, "") for text in plan.obstacles]
    rows += [("note", "", text, "") for text in plan.notes]
    output.rows(_COLUMNS, rows)
