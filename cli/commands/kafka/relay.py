"""`eosdb relay`: committed records to a Kafka cluster or another file, or from a cluster, exactly once."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import Any, Final

import click

from eosdb.cli import output
from eosdb.cli.params import kafka_config_option
from eosdb.cli.progress import progress
from eosdb.cli.session import Session, pass_session
from eosdb.cli.stopping import stopped_by_signals
from eosdb.integrations.relay import from_kafka, to_file, to_kafka
from eosdb.integrations.relay.kafka_settings import from_file
from eosdb.integrations.relay.positions import POSITIONS_TOPIC
from eosdb.integrations.relay.settings import RelayOptions

_ADDRESS: Final = re.compile(r"[^/\\]+:\d{1,5}(,[^/\\]+:\d{1,5})*")


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option("--to", "target", metavar="TARGET", help="A Kafka cluster, HOST:PORT, or a file.")
@click.option(
    "--from", "origin", metavar="HOST:PORT", help="A Kafka cluster, whose records go to FILE."
)
@click.option("--topic", "topics", multiple=True, help="Topic to relay (repeatable); default: all.")
@click.option(
    "--name", default="relay", show_default=True, help="Name of this relay at the target."
)
@click.option("--once", is_flag=True, help="End when everything has arrived, instead of going on.")
@click.option(
    "--create", is_flag=True, help="Create the file that records go to if it does not exist."
)
@click.option("--no-create-topics", is_flag=True, help="Stop where the target lacks a topic.")
@click.option(
    "--too-large", type=click.Choice(("stop", "dead-letter")), default="stop", show_default=True,
    help="What to do with a record that the target refuses for its size: stop, or send it to TOPIC.dlq.",
)  # fmt: skip
@click.option(
    "--on-gap", type=click.Choice(("stop", "earliest")), default="stop", show_default=True,
    help="What to do when the source has deleted what comes next: stop, or go on with what it has.",
)  # fmt: skip
@kafka_config_option
@click.option(
    "--positions-topic", default=POSITIONS_TOPIC, show_default=True, metavar="TOPIC",
    help="Topic of the target that remembers how far it has come.",
)  # fmt: skip
@click.option(
    "--max-records", type=click.IntRange(min=1), default=5_000, show_default=True,
    help="Records in a transaction of the target at most.",
)  # fmt: skip
@click.option(
    "--max-bytes", type=click.IntRange(min=1), default=8_388_608, show_default=True,
    help="Bytes in a transaction of the target at most, unless a single record is larger.",
)  # fmt: skip
@click.option(
    "--metrics-port", type=click.IntRange(0, 65_535), metavar="PORT",
    help="Show figures for Prometheus at http://127.0.0.1:PORT/metrics; 0 takes a free port.",
)  # fmt: skip
@pass_session
def relay(
    session: Session,
    /,
    file: str | None,
    target: str | None,
    origin: str | None,
    topics: tuple[str, ...],
    once: bool,
    create: bool,
    config: str | None,
    metrics_port: int | None,
    **options: Any,
) -> None:
    """Relay the committed records of FILE (or that of --db), each exactly once, to a Kafka cluster or
    another file; or, with --from, those of a cluster into FILE. Runs until SIGTERM or Ctrl-C; killed and
    started again, it continues. Waits while the other side is away. Kafka needs pip install 'eosdb[kafka]'.

    Settings of the Kafka client may also be in the environment: EOSDB_KAFKA_SASL_PASSWORD is sasl.password.

    \b
    Example:
      eosdb relay shop.db --to broker:9092 --topic orders --topic payments
    """
    if (target is None) == (origin is None):
        raise click.UsageError("name one other side: --to TARGET, or --from HOST:PORT")
    if origin is not None and not _ADDRESS.fullmatch(origin):
        raise click.UsageError(f"--from: got {origin!r}, expected HOST:PORT; for a file use --to")
    if file is not None:
        session = dataclasses.replace(session, path=file)
    given: RelayOptions = {
        "name": options["name"],
        "topics": list(topics) or None,
        "create_topics": not options["no_create_topics"],
        "too_large": options["too_large"],
        "on_gap": options["on_gap"],
        "positions_topic": options["positions_topic"],
        "max_records": options["max_records"],
        "max_bytes": options["max_bytes"],
    }
    settings = {} if config is None else from_file(config)
    with contextlib.ExitStack() as cleanup:
        db = cleanup.enter_context(session.open(create=create and origin is not None))
        given["on_progress"] = cleanup.enter_context(progress(db.clock, "relay", "records"))
        if origin is not None:
            made = from_kafka(db, origin, config=settings, **given)
        elif target is not None and _ADDRESS.fullmatch(target):
            made = to_kafka(db, target, config=settings, **given)
        else:
            other = dataclasses.replace(session, path=target).open(create=create)
            made = to_file(db, cleanup.enter_context(other), **given)
        cleanup.enter_context(made)
        if metrics_port is not None:
            from eosdb.integrations.exposition.server import FigureServer
            from eosdb.integrations.relay.figures import prometheus_text

            name = options["name"]
            server = FigureServer(metrics_port, lambda: prometheus_text(made.status(), name))
            cleanup.enter_context(server)
            output.line(f"figures at http://127.0.0.1:{server.port}/metrics", err=True)
        cleanup.enter_context(stopped_by_signals(made.stop))
        done = made.run(until_caught_up=once)
    output.line(f"{done.records} records relayed in {done.transactions} transactions")
