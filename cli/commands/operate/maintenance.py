"""Commands that work on the whole file: verify, rebuild, backup, restore, housekeeping, compact."""

from __future__ import annotations

import dataclasses
import os

import click

from eosdb.cli import output
from eosdb.cli.params import TimeMs
from eosdb.cli.progress import progress
from eosdb.cli.session import Session, pass_session
from eosdb.errors import CorruptDatabaseError


@click.command()
@pass_session
def verify(session: Session) -> None:
    """Replay every event and compare the result with every table. Exits with status 1 if they differ.

    \b
    Example:
      eosdb --db shop.db verify
    """
    with session.open(read_only=True) as db, progress(db.clock, "verify", "events") as report:
        found = db.verify(on_progress=report)
    for problem in found.problems:
        output.line(problem)
    if not found.ok:
        raise CorruptDatabaseError(
            f"{len(found.problems)} problems in {session.path}; `eosdb rebuild` rebuilds the tables "
            "from the events, restore lost records from a backup"
        )
    output.line(f"ok: {found.events} events, {found.elapsed_s:.1f} s")


@click.command()
@pass_session
def rebuild(session: Session) -> None:
    """Rebuild every derived table from the events, in one commit.

    \b
    Example:
      eosdb --db shop.db rebuild
    """
    with session.open() as db, progress(db.clock, "rebuild", "events") as report:
        done = db.rebuild(on_progress=report)
    output.line(f"rebuilt from {done.events} events, {done.elapsed_s:.1f} s")


@click.command()
@click.argument("target", type=click.Path())
@pass_session
def backup(session: Session, target: str) -> None:
    """Copy the file to TARGET while others write it. The copy appears whole or not at all.

    \b
    Example:
      eosdb --db shop.db backup shop-monday.db
    """
    with session.open(read_only=True) as db:
        start = db.clock.monotonic_ms()
        with progress(db.clock, "backup", "pages") as report:
            db.backup(target, on_progress=report)
        elapsed_s = (db.clock.monotonic_ms() - start) / 1000
    output.line(f"copied to {target}: {os.path.getsize(target)} bytes, {elapsed_s:.1f} s")


@click.command()
@click.argument("target", type=click.Path())
@click.option(
    "--position", type=click.IntRange(min=0), help="State after the event at this journal position."
)
@click.option(
    "--timestamp",
    type=TimeMs(),
    metavar="MS_OR_TIME",
    help="State at this time: ms since the epoch, or ISO 8601 (UTC unless it names a zone).",
)
@pass_session
def restore(session: Session, target: str, position: int | None, timestamp: int | None) -> None:
    """Restore the file as it was after an event or at a time into a new file, TARGET.

    Records that retention or compaction has removed since cannot be restored; the output says so.

    \b
    Example:
      eosdb --db shop.db restore shop-noon.db --timestamp 2026-11-21T12:00+02:00
    """
    if (position is None) == (timestamp is None):
        raise click.UsageError("give exactly one of --position and --timestamp")
    with session.open(read_only=True) as db:
        start = db.clock.monotonic_ms()
        with progress(db.clock, "restore", "pages and events") as report:
            found = db.restore_to(target, position, timestamp, on_progress=report)
        elapsed_s = (db.clock.monotonic_ms() - start) / 1000
    output.line(f"restored to {target}: as it was after position {found}, {elapsed_s:.1f} s")


@click.command()
@output.format_option
@pass_session
def housekeeping(session: Session, output_format: str) -> None:
    """Run what is due: transaction timeouts, expirations, retention, compaction, snapshots.

    \b
    Example:
      eosdb --db shop.db housekeeping
    """
    with session.open() as db, progress(db.clock, "compaction", "records") as report:
        done = db.housekeeping(on_progress=report)
    output.facts(dataclasses.asdict(done), output_format)


@click.command()
@pass_session
def compact(session: Session) -> None:
    """Shrink the file: write it anew without its free pages, in one commit.

    Others can read meanwhile; writers wait. It takes as much room as twice the compacted file for a
    while. Files of an earlier eosdb give pages back by themselves from then on.

    \b
    Example:
      eosdb --db shop.db compact
    """
    with session.open() as db, progress(db.clock, "compact", "pages") as report:
        done = db.compact(on_progress=report)
    output.line(
        f"compacted from {done.bytes_before} to {done.bytes_after} bytes, {done.elapsed_s:.1f} s"
    )
    if done.held_by:
        output.line(
            "the file shrinks with a write after the snapshot has ended that is still being read by "
            f"{done.held_by}"
        )
