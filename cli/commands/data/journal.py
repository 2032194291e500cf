"""`eosdb inspect journal`: list events; format an event in one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypedDict, Unpack

import click

import eosdb
from eosdb import JournalEntry
from eosdb.cli import output
from eosdb.cli.file_command import FileCommand
from eosdb.cli.session import Session
from eosdb.cli.stopping import until_stopped
from eosdb.events.kinds import KINDS
from eosdb.model.damage import parsed, reads

_COLUMNS = (
    "Position", "Timestamp", "Kind", "Topic", "Partition", "TransactionalId", "Detail",
)  # fmt: skip
_WAIT_MS = 1_000


class _Filters(TypedDict):
    kinds: tuple[str, ...]
    topic: str | None
    transactional_id: str | None


@click.command(cls=FileCommand)
@click.option("--from-position", type=click.IntRange(min=1), help="Start at this position.")
@click.option(
    "--last", type=click.IntRange(min=0),
    help="Start at the last N events (default: 20, or all with a filter).",
)  # fmt: skip
@click.option("--kind", "kinds", multiple=True, help="Only events of this kind (repeatable).")
@click.option("--topic", help="Only events of this topic.")
@click.option("--transactional-id", help="Only events of this transactional id.")
@click.option("--follow", is_flag=True, help="Wait for new events; stop with Ctrl-C.")
@output.format_option
def journal(
    session: Session,
    /,
    from_position: int | None,
    last: int | None,
    follow: bool,
    output_format: str,
    **filters: Unpack[_Filters],
) -> None:
    """Show the journal: every event of the file, in order.

    \b
    Example:
      eosdb inspect journal --follow --kind TransactionStateChanged --kind MarkerWritten
    """
    if from_position is not None and last is not None:
        raise click.UsageError("give --from-position or --last, not both")
    unknown = [kind for kind in filters["kinds"] if kind not in KINDS]
    if unknown:
        raise click.UsageError(
            f"--kind: got {unknown[0]}, expected one of {', '.join(sorted(KINDS))}"
        )
    if last is None and not any(filters.values()):
        last = 20
    if follow:
        until_stopped()
    with session.open(read_only=True) as db:
        if from_position is not None:
            after = from_position - 1
        else:
            after = 0 if last is None else db.admin._journal_position(last)
        _show(_entries(db, after, follow, filters), output_format, follow)


def _show(entries: Iterator[JournalEntry], output_format: str, follow: bool) -> None:
    if follow and output_format == "table":
        for entry in entries:
            output.line("  ".join(map(output.cell, _row(entry))))
    else:
        output.rows(_COLUMNS, map(_row, entries), output_format)


def _entries(
    db: eosdb.Database, after: int, follow: bool, filters: _Filters
) -> Iterator[JournalEntry]:
    ended = False
    while not ended:
        version = db.broker._data_version()
        newest = db.admin._journal_position()
        for entry in db.admin.journal(after, **filters):
            after = entry.position
            yield entry
        after = max(after, newest)
        if not follow:
            return
        try:
            db.broker._wait_for_change(version, _WAIT_MS)
        except KeyboardInterrupt:
            ended = True  # All entries so far have been printed, and a JSON array is closed.


def _row(entry: JournalEntry) -> tuple[object, ...]:
    return (
        entry.position,
        output.Time(entry.timestamp),
        entry.kind,
        entry.topic,
        entry.partition,
        entry.transactional_id,
        entry.detail,
    )


_TRANSITIONS: Final = """
SELECT position, from_state, to_state, producer_id, producer_epoch, partitions
FROM transaction_history WHERE transactional_id = ?
"""


@reads("journal")
def transitions(db: eosdb.Database, transactional_id: str) -> dict[int, str]:
    """A sentence for each transition of the transactional id, by journal position."""
    texts = {}
    for row in db.query(_TRANSITIONS, (transactional_id,)).rows:
        position, from_state, to_state, producer_id, producer_epoch, partitions = row
        tps = ", ".join(f"{tp['topic']}/{tp['partition']}" for tp in parsed(partitions))
        texts[position] = (
            f"{from_state or 'new'} -> {to_state}, producer {producer_id} epoch {producer_epoch}"
            + (f", {tps}" if tps else "")
        )
    return texts


@reads("journal")
def entry_row(entry: JournalEntry, transitions: Mapping[int, str]) -> tuple[object, ...]:
    """Position, time, kind and a sentence about the event."""
    detail = parsed(entry.detail)
    where = "" if entry.topic is None else f"{entry.topic}/{entry.partition}"
    text = transitions.get(entry.position, entry.detail)
    match entry.kind:
        case "TransactionStateChanged" if detail.get("groups"):
            text += f", groups {', '.join(detail['groups'])}"
        case "BatchAppended":
            first = detail["base_offset"]
            text = f"{where} offsets {first} to {first + detail.get('count', 1) - 1}"
        case "MarkerWritten":
            text = f"{where} offset {detail['offset']} {detail.get('control', 'COMMIT')}"
        case "TxnOffsetsCommitted":
            offsets = ", ".join(
                f"{o['topic']}/{o['partition']} at {o['offset']}" for o in detail["offsets"]
            )
            text = f"group {detail['group_id']}: {offsets}"
    return entry.position, output.Time(entry.timestamp), entry.kind, text
