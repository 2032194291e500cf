"""`eosdb relay`: copies committed records between files and Kafka clusters; and its metrics."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Unpack

import click

from eosdb.cli import file_command, options, output
from eosdb.integrations.exposition import Metric, metric, written
from eosdb.integrations.relay import from_kafka, to_file, to_kafka
from eosdb.integrations.relay.kafka_client import from_file
from eosdb.integrations.relay.settings import RelayOptions
from eosdb.integrations.relay.status import POSITIONS_TOPIC, PartitionStatus, RelayStatus
from eosdb.system.signals import stopped_by_signals

_TOTALS: Final = {
    "records": "Records that this process has relayed.",
    "bytes": "Bytes of the keys and values that this process has relayed.",
    "transactions": "Transactions in which this process has relayed records.",
    "failures": "Failures after which the relay started again or stopped.",
}
_OF_PARTITION: Final[dict[str, tuple[str, Callable[[PartitionStatus], float]]]] = {
    "position": ("Next offset to be relayed.", lambda partition: partition.position),
    "end_offset": ("Offset up to which the source can be read.", lambda partition: partition.end),
    "lag_records": ("Offsets that are left to relay.", lambda partition: partition.lag),
    "lag_bytes": (
        "Estimated bytes that are left to relay: the lag times the mean size of a record.",
        lambda partition: partition.lag_bytes,
    ),
    "lag_seconds": ("Age of the newest relayed record.", lambda partition: partition.lag_ms / 1000),
}


def prometheus_text(status: RelayStatus, name: str = "relay") -> str:
    """The metrics in Prometheus' text format. Unknown values are left out."""
    return written(_metrics(status, {"relay": name}))


def _metrics(status: RelayStatus, relay: Mapping[str, object]) -> Iterator[Metric]:
    for total, text in _TOTALS.items():
        yield metric(f"eosdb_relay_{total}_total", text, [(relay, getattr(status, total))])
    yield metric(
        "eosdb_relay_up",
        "1 if nothing has gone wrong since the last transaction.",
        [(relay, 0 if status.last_error else 1)],
    )
    for figure, (text, value) in _OF_PARTITION.items():
        yield metric(
            f"eosdb_relay_{figure}",
            text,
            [
                ({**relay, "topic": it.topic, "partition": it.partition}, number)
                for it in status.partitions
                if (number := value(it)) >= 0
            ],
        )


name_option: Final = click.option(
    "--name", default="relay", show_default=True,
    help="Name of the relay; under the same name it resumes where it stopped.",
)  # fmt: skip
positions_topic_option: Final = click.option(
    "--positions-topic", default=POSITIONS_TOPIC, show_default=True, metavar="TOPIC",
    help="Topic of the target in which the relay commits its positions.",
)  # fmt: skip
_ADDRESS: Final = re.compile(r"[^/\\]+:\d{1,5}(,[^/\\]+:\d{1,5})*")


@click.command(cls=file_command.FileCommand)
@click.option(
    "--to", "target", metavar="TARGET", help="Target: a Kafka cluster, HOST:PORT, or a file."
)
@click.option(
    "--from", "origin", metavar="HOST:PORT", help="Kafka cluster to relay from into FILE."
)
@options.topics
@name_option
@click.option("--once", is_flag=True, help="Exit when the target has caught up.")
@options.create
@click.option(
    "--create-topics/--no-create-topics", default=True, show_default=True,
    help="Create topics that the target lacks, or stop there.",
)  # fmt: skip
@click.option(
    "--too-large", type=click.Choice(("stop", "dead-letter")), default="stop", show_default=True,
    help="What to do with a record that is too large for the target: stop, or send it to TOPIC.dlq.",
)  # fmt: skip
@click.option(
    "--on-gap", type=click.Choice(("stop", "earliest")), default="stop", show_default=True,
    help="If the source has deleted the next records: stop, or skip to the earliest record left.",
)  # fmt: skip
@options.command_config
@positions_topic_option
@options.transaction_size
@click.option(
    "--transaction-bytes", "max_bytes", type=click.IntRange(min=1), default=8_388_608, show_default=True,
    help="Maximum size of a transaction in bytes, unless a single record is larger.",
)  # fmt: skip
@options.metrics_port
def relay(
    session: file_command.Session,
    /,
    target: str | None,
    origin: str | None,
    once: bool,
    create: bool,
    config: str | None,
    metrics_port: int | None,
    **options: Unpack[RelayOptions],
) -> None:
    """Relay committed records to or from FILE, each exactly once: --to a Kafka cluster or another file, or
    --from a cluster. Runs until SIGTERM or Ctrl-C. Restarted after a kill, it resumes;
    while the other side is down, it retries. A cluster needs the extra kafka.

    Settings of the Kafka client may also be in the environment: EOSDB_KAFKA_SASL_PASSWORD is sasl.password.

    \b
    Example:
      eosdb relay shop.db --to broker:9092 --topic orders --topic payments
    """
    if (target is None) == (origin is None):
        raise click.UsageError("name either a target with --to, or a source with --from")
    if origin is not None and not _ADDRESS.fullmatch(origin):
        raise click.UsageError(f"--from: got {origin!r}, expected HOST:PORT; for a file use --to")
    options["topics"] = options["topics"] or None
    settings = {} if config is None else from_file(config)
    with contextlib.ExitStack() as cleanup:
        db = cleanup.enter_context(session.open(create=create and origin is not None))
        options["on_progress"] = cleanup.enter_context(output.progress("relay", "records"))
        if origin is not None:
            running = from_kafka(db, origin, config=settings, **options)
        elif target is not None and _ADDRESS.fullmatch(target):
            running = to_kafka(db, target, config=settings, **options)
        else:
            other = cleanup.enter_context(session.at(target or "").open(create=create))
            running = to_file(db, other, **options)
        cleanup.enter_context(running)
        name = options["name"]
        cleanup.enter_context(
            file_command.figures_served(
                metrics_port, lambda: prometheus_text(running.status(), name)
            )
        )
        cleanup.enter_context(stopped_by_signals(running.stop))
        done = running.run(until_caught_up=once)
    output.done(f"{done.records} records relayed in {done.transactions} transactions")
