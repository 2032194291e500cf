"""`eosdb ingest`: files into a topic, each line exactly once, however often it is killed and started.

The position in the file is a consumer offset that commits with the records, in one transaction. The
transactional id belongs to the file, so a second ingest of it fences the first.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from pathlib import Path

import click

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.errors import InvalidRecordError

from .session import Session, pass_session
from .sources import FORMATS, Position, Source, format_of

_REPORT_EVERY_MS = 5_000


@click.command()
@click.argument("topic")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
)
@click.option(
    "--input-format", type=click.Choice(FORMATS), help="By the file's name when not given."
)
@click.option("--key", "key_field", metavar="FIELD", help="Take each record's key from this field.")
@click.option(
    "--transaction-size",
    type=click.IntRange(min=1),
    default=5_000,
    show_default=True,
    help="Records per transaction.",
)
@click.option("--source-id", help="Name the source; by default its path. One file only.")
@click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="What to do with a line that is no record.",
)
@pass_session
def ingest(
    session: Session,
    topic: str,
    files: tuple[Path, ...],
    input_format: str | None,
    key_field: str | None,
    transaction_size: int,
    source_id: str | None,
    on_error: str,
) -> None:
    """Append each line of FILES to TOPIC exactly once.

    Killed at any point and started again, it goes on where it stopped; started twice at once, the later
    one takes over and the earlier one ends with PRODUCER_FENCED.

    \b
    Example:
      eosdb ingest flights flights.ndjson --key tailnum
    """
    if any(str(file) == "-" for file in files):
        raise click.UsageError(
            "standard input has no position to go on from; give a file, or use `eosdb produce`"
        )
    if source_id is not None and len(files) > 1:
        raise click.UsageError("--source-id names one source; give one file with it")
    with session.open() as db:
        db.admin.describe_topic(topic)
        for file in files:
            source = Source(file, input_format or format_of(file), key_field)
            name = source_id or str(file.resolve())
            count, end = _ingest(db, topic, source, name, transaction_size, on_error == "skip")
            click.echo(
                f"{file}: {count} records appended to {topic}, {end.line} lines done", err=True
            )


def _ingest(
    db: eosdb.Database, topic: str, source: Source, name: str, transaction_size: int, skip: bool
) -> tuple[int, Position]:
    group = f"eosdb-ingest:{topic}:{name}"
    anchor = TopicPartition(topic, 0)
    with db.producer(
        transactional_id=group,
        transaction_timeout_ms=db.config.transaction_max_timeout_ms,
        batch_size=1_000_000,
    ) as producer:
        producer.init_transactions()
        position = _committed(db, group, anchor)
        count = 0

        with _progress(db.clock, source) as report:
            report(position, 0)
            items = source.read(position)
            while batch := list(islice(items, transaction_size)):
                # A bad line ends the ingest behind the good ones before it.
                good = list(takewhile(lambda item: skip or item.error is None, batch))
                if good:
                    position = good[-1].after
                    with producer.transaction():
                        for item in good:
                            if item.error is None:
                                producer.send(topic, item.value, item.key)
                                count += 1
                        stored = OffsetAndMetadata(
                            position.byte, json.dumps({"line": position.line})
                        )
                        producer.send_offsets_to_transaction({anchor: stored}, group)
                    report(position, count)
                if len(good) < len(batch):
                    bad = batch[len(good)]
                    raise InvalidRecordError(
                        f"{source.path}, line {bad.after.line}: {bad.error}; what is before it is "
                        "stored; mend the line, or leave such lines out with --on-error skip"
                    )
    return count, position


def _committed(db: eosdb.Database, group: str, anchor: TopicPartition) -> Position:
    """Where the last committed transaction of this source ended."""
    stored = db.broker.offset_fetch(group, [anchor], require_stable=True).get(anchor)
    if stored is None:
        return Position()
    return Position(stored.offset, int(json.loads(stored.metadata)["line"]))


Report = Callable[[Position, int], None]


@contextlib.contextmanager
def _progress(clock: eosdb.Clock, source: Source) -> Iterator[Report]:
    """A bar on a terminal, a line every few seconds elsewhere."""
    total = None if source.packed else source.size()
    if not sys.stderr.isatty():
        yield _lines(clock, source, total)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[records]:,} records"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task(source.path.name, total=total, records=0)
        yield lambda position, count: bar.update(task, completed=position.byte, records=count)


def _lines(clock: eosdb.Clock, source: Source, total: int | None) -> Report:
    started = last = clock.monotonic_ms()

    def report(position: Position, count: int) -> None:
        nonlocal last
        now = clock.monotonic_ms()
        if now - last >= _REPORT_EVERY_MS:
            last = now
            share = f" ({100 * position.byte // total} %)" if total else ""
            rate = count * 1000 // max(now - started, 1)
            click.echo(f"{source.path}: {count:,} records{share}, {rate:,} a second", err=True)

    return report
