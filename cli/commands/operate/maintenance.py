"""Commands on the whole file: verify, backup, restore, housekeeping, compact."""

from __future__ import annotations

import dataclasses
import os
from typing import Final

import click

from eosdb.cli import options, output
from eosdb.cli.file_command import FileCommand, Session
from eosdb.errors import (
    CorruptDatabaseError,
    DatabaseNotFoundError,
    SchemaOutOfDateError,
    SchemaTooNewError,
)
from eosdb.maintenance.copies import backup_of_other_schema
from eosdb.model.clock import SystemClock

_NOT_OURS: Final = 4
"""The exit status of `verify --untrusted` for a file that is not eosdb's."""


@click.command(cls=FileCommand)
@click.option(
    "--untrusted", is_flag=True,
    help="For a file from elsewhere: first compare its schema with eosdb's, and execute nothing in the "
    "file. Exits with status 4 if it is not eosdb's.",
)  # fmt: skip
def verify(session: Session, untrusted: bool) -> None:
    """Compare every table with a replay of all events. Exits with status 1 if they differ.

    \b
    Example:
      eosdb verify shop.db
      eosdb verify --untrusted from-a-stranger.db
    """
    if untrusted:
        _verify_untrusted(session.named_path())
        return
    with session.open(read_only=True) as db, output.progress("verify", "events") as report:
        result = db.verify(on_progress=report)
    for problem in result.problems:
        output.line(problem)
    if not result.ok:
        raise CorruptDatabaseError(
            f"{len(result.problems)} problems in {session.path}; `eosdb inspect rebuild` rebuilds "
            "the tables from the events; restore lost records from a backup"
        )
    output.line(f"ok: {result.events} events, {result.elapsed_s:.1f} s")


def _verify_untrusted(path: str) -> None:
    from eosdb.maintenance.untrusted import Verdict, check

    if not os.path.isfile(path):
        raise DatabaseNotFoundError(f"there is no file {path}; give the path of the received file")
    with output.progress("verify", "events") as report:
        result = check(path, report)
    for problem in result.problems:
        output.line(problem)
    if result.verdict is Verdict.DAMAGED:
        raise CorruptDatabaseError(f"{path} is damaged: do not use it, and ask for another copy")
    if result.verdict is Verdict.NOT_OURS:
        why = "not a file as this eosdb makes them, and nothing in it was executed"
        output.line(f"error: NotAnEosdbFileError: {path} is {why}", err=True)
        click.get_current_context().exit(_NOT_OURS)
    for other in result.others:
        output.line(f"not eosdb's, and not looked into: {other}")
    output.line(f"ours and sound: {result.events} events, {result.elapsed_s:.1f} s")


@click.command(cls=FileCommand)
@click.argument("target", type=click.Path())
def backup(session: Session, target: str) -> None:
    """Copy FILE to TARGET while others write to it. TARGET appears atomically, when it is complete. FILE
    may have an older or newer schema.

    \b
    Example:
      eosdb backup shop.db shop-monday.db
    """
    start = SystemClock().monotonic_ms()
    with output.progress("backup", "pages") as report:
        try:
            with session.open(read_only=True) as db:
                db.backup(target, on_progress=report)
        except (SchemaOutOfDateError, SchemaTooNewError):
            backup_of_other_schema(session.named_path(), target, on_progress=report)
    elapsed_s = (SystemClock().monotonic_ms() - start) / 1000
    output.done(f"copied to {target}: {os.path.getsize(target)} bytes, {elapsed_s:.1f} s")


@click.command(cls=FileCommand)
@click.argument("target", type=click.Path())
@click.option(
    "--position", type=click.IntRange(min=0), help="State after the event at this journal position."
)
@click.option(
    "--timestamp", type=options.TimeMs(), metavar="TIME",
    help="State at this time: ms since the epoch, or ISO 8601 (UTC unless it names a zone).",
)  # fmt: skip
def restore(session: Session, target: str, position: int | None, timestamp: int | None) -> None:
    """Restore the state after an event or at a time into a new file, TARGET.

    Records that retention or compaction has removed since then cannot be restored; the output says so.

    \b
    Example:
      eosdb restore shop.db shop-noon.db --timestamp 2026-11-21T12:00+02:00
    """
    if (position is None) == (timestamp is None):
        raise click.UsageError("give exactly one of --position and --timestamp")
    with session.open(read_only=True) as db:
        start = db.clock.monotonic_ms()
        with output.progress("restore", "pages and events") as report:
            restored = db.restore_to(target, position, timestamp, on_progress=report)
        elapsed_s = (db.clock.monotonic_ms() - start) / 1000
    output.done(f"restored to {target}: as it was after position {restored}, {elapsed_s:.1f} s")


@click.command(cls=FileCommand)
@output.format_option
def housekeeping(session: Session) -> None:
    """Run due maintenance, such as retention, compaction, transaction timeouts, expirations and snapshots.

    \b
    Example:
      eosdb housekeeping shop.db
    """
    with session.open() as db, output.progress("housekeeping", "records") as report:
        done = db.housekeeping(on_progress=report)
    output.facts(dataclasses.asdict(done))


@click.command(cls=FileCommand)
def compact(session: Session) -> None:
    """Shrink the file: rewrite it without its free pages, in one commit.

    Readers continue meanwhile, writers wait. It needs free disk space for twice the compacted file.

    \b
    Example:
      eosdb compact shop.db
    """
    with session.open() as db, output.progress("compact", "pages") as report:
        done = db.compact(on_progress=report)
    output.done(
        f"compacted from {done.bytes_before} to {done.bytes_after} bytes, {done.elapsed_s:.1f} s"
    )
    if done.held_by:
        output.done(
            f"{done.held_by} still reads a snapshot of the file; the file shrinks with the first write "
            "after that snapshot is closed"
        )
