"""`eosdb log dump`, `eosdb snapshots` and `eosdb delete-records` (kafka-dump-log.sh,
kafka-delete-records.sh)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import click

from eosdb import LoggedBatch, SnapshotInfo, TopicPartition
from eosdb.cli import output
from eosdb.cli.file_command import FileCommand, FileGroup
from eosdb.cli.params import partition_argument
from eosdb.cli.session import Session

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
def log() -> None:
    """Dump the log as it is stored."""


@log.command()
@partition_argument()
@click.option(
    "--from-offset", "offset", type=click.IntRange(min=0), default=0, show_default=True,
    help="Start at this offset.",
)  # fmt: skip
@click.option("--max-batches", type=click.IntRange(min=1), help="Stop after this many batches.")
@click.option("--print-data-log", "records", is_flag=True, help="Print records instead of batches.")
@output.format_option
def dump(
    session: Session,
    where: TopicPartition,
    offset: int,
    max_batches: int | None,
    records: bool,
    output_format: str,
) -> None:
    """Print the stored batches of a partition, including control records and aborted data, with the field
    names of kafka-dump-log.sh.

    \b
    Example:
      eosdb log dump orders 0 --from-offset 100 --print-data-log
    """
    with session.open(read_only=True) as db:
        db.broker.offsets(where)
        batches = islice(db.admin.dump_log(where, offset), max_batches)
        if records:
            output.rows(_RECORD, _record_rows(batches, offset), output_format)
        else:
            output.rows(_BATCH, map(_batch_row, batches), output_format)


def _batch_row(batch: LoggedBatch) -> tuple[object, ...]:
    return (
        batch.base_offset,
        batch.last_offset,
        batch.count,
        batch.base_sequence,
        batch.last_sequence,
        batch.producer_id,
        batch.producer_epoch,
        output.yes(batch.is_transactional),
        output.yes(batch.is_control),
        output.Time(batch.append_time),
        batch.size,
        batch.crc,
        batch.transactional_id,
        batch.records[0].control if batch.records else None,
        batch.coordinator_epoch,
    )


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


@click.group(cls=FileGroup)
def snapshots() -> None:
    """Take, list and show producer state snapshots."""


@snapshots.command()
@output.format_option
def take(session: Session, output_format: str) -> None:
    """Take a producer state snapshot of every partition. Of each partition, the two newest are kept.

    \b
    Example:
      eosdb snapshots take
    """
    with session.open() as db:
        _list(db.take_snapshot(), output_format)


@snapshots.command(name="list")
@output.format_option
def list_(session: Session, output_format: str) -> None:
    """List the producer state snapshots.

    \b
    Example:
      eosdb snapshots list
    """
    with session.open(read_only=True) as db:
        _list(db.admin.list_snapshots(), output_format)


def _list(snapshots: Iterable[SnapshotInfo], output_format: str) -> None:
    columns = ("Topic", "Partition", "SnapshotOffset", "Producers")
    rows = ((s.topic, s.partition, s.offset, s.producers) for s in snapshots)
    output.rows(columns, rows, output_format)


@snapshots.command()
@partition_argument()
@click.option(
    "--offset", type=click.IntRange(min=0), help="Offset of the snapshot (default: the newest one)."
)
@output.format_option
def show(session: Session, where: TopicPartition, offset: int | None, output_format: str) -> None:
    """Show the producer states in a producer state snapshot, with the field names of kafka-dump-log.sh.

    \b
    Example:
      eosdb snapshots show orders/0
    """
    with session.open(read_only=True) as db:
        entries = db.admin.describe_snapshot(where, offset)
    output.rows(
        (
            "producerId", "producerEpoch", "coordinatorEpoch", "currentTxnFirstOffset",
            "firstSequence", "lastSequence", "lastOffset", "offsetDelta", "timestamp",
        ),
        [
            (
                e.producer_id,
                e.producer_epoch,
                e.coordinator_epoch,
                "None" if e.current_txn_first_offset < 0 else e.current_txn_first_offset,
                e.first_sequence,
                e.last_sequence,
                e.last_offset,
                e.offset_delta,
                output.Time(e.timestamp),
            )
            for e in entries
        ],
        output_format,
    )  # fmt: skip


@click.command("delete-records", cls=FileCommand)
@partition_argument()
@click.option(
    "--before-offset", type=click.IntRange(min=-1), required=True,
    help="Delete records below this offset; -1 deletes everything up to the high watermark.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def delete_records(session: Session, where: TopicPartition, before_offset: int, yes: bool) -> None:
    """Delete the oldest records of a partition by moving its log start offset forward.

    \b
    Example:
      eosdb delete-records orders/0 --before-offset 1000 --yes
    """
    with session.open() as db:
        db.broker.offsets(where)
        if not yes:
            before = "all offsets" if before_offset < 0 else f"offsets before {before_offset}"
            click.confirm(f"delete {before} of {where}?", abort=True, err=True)
        start = db.broker.delete_records(where, before_offset)
    output.line(f"{where} now begins at offset {start}")
