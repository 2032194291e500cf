"""`eosdb inspect`: a file as it is stored (kafka-dump-log.sh), and its tables rebuilt from the journal.

`log dump`, `snapshots`, `journal` and `rebuild` are earlier, hidden names of these commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple
from itertools import islice
from typing import Any

import click

import eosdb
from eosdb import JournalEntry, LoggedBatch, SnapshotEntry, SnapshotInfo, TopicPartition
from eosdb.admin.tools import Tools
from eosdb.cli import options, output
from eosdb.cli.file_command import FileCommand, FileGroup, Session
from eosdb.cli.stopping import until_stopped
from eosdb.events.kinds import KINDS
from eosdb.model import requests

_COLUMNS = (
    "Position", "Timestamp", "Kind", "Topic", "Partition", "TransactionalId", "Detail",
)  # fmt: skip
_WAIT_MS = 1_000


@click.command(cls=FileCommand)
@click.option("--from-position", type=click.IntRange(min=1), help="Start at this position.")
@click.option(
    "--last", type=click.IntRange(min=0), metavar="N",
    help="Start at the last N events (default: 20, or all with a filter).",
)  # fmt: skip
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(sorted(KINDS)), metavar="KIND",
    help="Only events of this kind (repeatable).",
)  # fmt: skip
@options.topic
@click.option("--transactional-id", help="Only events of this transactional id.")
@options.follow
@output.format_option
def journal(
    session: Session,
    /,
    from_position: int | None,
    last: int | None,
    follow: bool,
    **filters: Any,
) -> None:
    """Show the journal: every event of the file, in order.

    \b
    Example:
      eosdb inspect journal shop.db --follow --kind TransactionStateChanged --kind MarkerWritten
    """
    if from_position is not None and last is not None:
        raise click.UsageError("give --from-position or --last, not both")
    if last is None and not any(filters.values()):
        last = 20
    if follow:
        until_stopped()
    with session.open(read_only=True) as db:
        if from_position is not None:
            after = from_position - 1
        else:
            after = 0 if last is None else Tools(db.admin).journal_position(last)
        rows = map(_row, _entries(db, after, follow, filters))
        if follow and output.is_format("table"):  # Column widths would depend on later events.
            for row in rows:
                output.line("  ".join(map(output.cell, row)))
        else:
            output.rows(_COLUMNS, rows)


def _row(entry: JournalEntry) -> tuple[object, ...]:
    position, kind, timestamp, *rest = astuple(entry)
    return position, output.Time(timestamp), kind, *rest


def _entries(
    db: eosdb.Database, after: int, follow: bool, filters: Mapping[str, Any]
) -> Iterator[JournalEntry]:
    ended = False
    while not ended:
        version = db.broker.ask(requests.DataVersion())
        newest = Tools(db.admin).journal_position()
        for entry in db.admin.journal(after, **filters):
            after = entry.position
            yield entry
        after = max(after, newest)
        if not follow:
            return
        try:
            db.broker.ask(requests.WaitForChange(version, _WAIT_MS))
        except KeyboardInterrupt:
            ended = True  # Ctrl-C is the normal end: a JSON array still gets its bracket.


_BATCH = (
    "baseOffset", "lastOffset", "count", "baseSequence", "lastSequence", "producerId",
    "producerEpoch", "isTransactional", "isControl", "appendTime", "size", "crc", "transactionalId",
    "endTxnMarker", "coordinatorEpoch",
)  # fmt: skip
_RECORD = (
    "offset", "CreateTime", "keySize", "valueSize", "sequence", "headerKeys", "key", "payload",
    "baseOffset", "producerId", "producerEpoch", "isTransactional", "isControl", "endTxnMarker",
    "coordinatorEpoch",
)  # fmt: skip


@click.group(cls=FileGroup)
def inspect() -> None:
    """Show journal, log, snapshots; rebuild or move tables."""


@inspect.command("log")
@options.partition_argument()
@click.option(
    "--from-offset", "offset", type=click.IntRange(min=0), default=0, show_default=True,
    help="Start at this offset.",
)  # fmt: skip
@click.option("--max-batches", type=click.IntRange(min=1), help="Stop after this many batches.")
@click.option("--print-data-log", "records", is_flag=True, help="Print records instead of batches.")
@output.format_option
def dump(
    session: Session, where: TopicPartition, offset: int, max_batches: int | None, records: bool
) -> None:
    """Print the stored batches of a partition, including control records and aborted data, with the field
    names of kafka-dump-log.sh.

    \b
    Example:
      eosdb inspect log shop.db orders/0 --from-offset 100 --print-data-log
    """
    with session.open(read_only=True) as db:
        db.broker.offsets(where)
        batches = islice(db.admin.dump_log(where, offset), max_batches)
        if records:
            output.rows(_RECORD, _record_rows(batches, offset))
        else:
            output.listing(
                _BATCH, batches,
                append_time=lambda batch: output.Time(batch.append_time),
                end_txn_marker=lambda batch: batch.records[0].control if batch.records else None,
            )  # fmt: skip


def _record_rows(batches: Iterable[LoggedBatch], offset: int) -> Iterator[tuple[object, ...]]:
    for batch in batches:
        for record in batch.records:
            if record.offset >= offset:
                yield (
                    record.offset,
                    output.Time(record.timestamp),
                    -1 if record.key is None else len(record.key),
                    -1 if record.value is None else len(record.value),
                    record.sequence,
                    ",".join(name for name, _ in record.headers),
                    record.key,
                    record.value,
                    batch.base_offset,
                    record.producer_id,
                    record.producer_epoch,
                    output.yes(record.is_transactional),
                    output.yes(record.control is not None),
                    record.control,
                    batch.coordinator_epoch,
                )


@inspect.command("snapshots")
@options.partition_argument(required=False)
@click.option(
    "--offset", type=click.IntRange(min=0), help="Offset of the snapshot (default: the newest one)."
)
@output.format_option
def snapshots_(session: Session, where: TopicPartition | None, offset: int | None) -> None:
    """List the snapshots of producer states, or show the newest one of a partition.

    \b
    Example:
      eosdb inspect snapshots shop.db
      eosdb inspect snapshots shop.db orders/0
    """
    if where is None and offset is not None:
        raise click.UsageError("--offset needs a partition, such as orders/0")
    with session.open(read_only=True) as db:
        if where is None:
            _list(db.admin.list_snapshots())
        else:
            _show(db.admin.describe_snapshot(where, offset))


def _list(snapshots: Iterable[SnapshotInfo]) -> None:
    columns = ("Topic", "Partition", "SnapshotOffset", "Producers")
    output.listing(columns, snapshots, snapshot_offset="offset")


def _show(entries: Iterable[SnapshotEntry]) -> None:
    """Print the entries of a snapshot, under the names of kafka-dump-log.sh."""
    output.listing(
        (
            "producerId", "producerEpoch", "coordinatorEpoch", "currentTxnFirstOffset",
            "firstSequence", "lastSequence", "lastOffset", "offsetDelta", "timestamp",
        ),
        entries,
        current_txn_first_offset=lambda it: output.known(it.current_txn_first_offset),
        timestamp=lambda it: output.Time(it.timestamp),
    )  # fmt: skip


@inspect.command()
def rebuild(session: Session) -> None:
    """Rebuild every derived table from the events, in one commit.

    \b
    Example:
      eosdb inspect rebuild shop.db
    """
    with session.open() as db, output.progress("rebuild", "events") as report:
        done = db.rebuild(on_progress=report)
    output.done(f"rebuilt from {done.events} events, {done.elapsed_s:.1f} s")


@inspect.command()
@click.argument("target", metavar="NEW", type=click.Path())
def extract(session: Session, target: str) -> None:
    """Move eosdb's tables from FILE, another application's database, into a new file, NEW.

    NEW is written, verified and synced first; then the tables are dropped from FILE in one commit. If the
    command is killed in between, run it again. Afterwards, programs that use eosdb open NEW.

    \b
    Example:
      eosdb inspect extract app.db orders.db
    """
    with session.open() as db, output.progress("extract", "events") as report:
        position = db.extract(target, on_progress=report)
    output.done(f"{target} has eosdb's tables, with {position} events; {session.path} has its own")


inspect.add_command(journal)


@click.group(cls=FileGroup)
def log() -> None:
    """See `eosdb inspect log`."""


log.add_command(dump, "dump")


@click.group(cls=FileGroup)
def snapshots() -> None:
    """See `eosdb inspect snapshots`."""


snapshots.add_command(snapshots_, "show")


@snapshots.command(name="list")
@output.format_option
def list_(session: Session) -> None:
    """List the snapshots of producer states."""
    with session.open(read_only=True) as db:
        _list(db.admin.list_snapshots())


@snapshots.command()
@output.format_option
def take(session: Session) -> None:
    """Take a snapshot of the producer states of every partition, also of those that are not due."""
    with session.open() as db:
        _list(db.take_snapshot())
