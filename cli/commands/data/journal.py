"""`eosdb inspect journal`: list events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict, Unpack

import click

import eosdb
from eosdb import JournalEntry
from eosdb.cli import output
from eosdb.cli.file_command import FileCommand
from eosdb.cli.session import Session
from eosdb.cli.stopping import until_stopped
from eosdb.events.kinds import KINDS
from eosdb.model import requests

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
      eosdb inspect journal shop.db --follow --kind TransactionStateChanged --kind MarkerWritten
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
        version = db.broker.ask(requests.DataVersion())
        newest = db.admin._journal_position()
        for entry in db.admin.journal(after, **filters):
            after = entry.position
            yield entry
        after = max(after, newest)
        if not follow:
            return
        try:
            db.broker.ask(requests.WaitForChange(version, _WAIT_MS))
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
