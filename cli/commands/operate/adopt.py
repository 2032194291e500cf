"""Commands for the database of another application: adopt it, extract eosdb's tables from it."""

from __future__ import annotations

import click

from eosdb.cli import output
from eosdb.cli.file_command import FileCommand
from eosdb.cli.progress import progress
from eosdb.cli.session import Session


@click.command(cls=FileCommand)
@click.option(
    "--wal", is_flag=True,
    help="Switch a file in rollback-journal mode to WAL mode, which applies to every program that uses it.",
)  # fmt: skip
def adopt(session: Session, wal: bool) -> None:
    """Add eosdb's tables to another application's database, the SQLite file FILE.

    In one commit: a file that cannot be adopted is left unchanged, byte for byte, and the error names every
    obstacle. The application's tables, application_id and user_version are not changed.

    \b
    Example:
      eosdb adopt app.db
    """
    with session.open(adopt="wal" if wal else True) as db:
        output.line(f"{db.path} has eosdb's tables (schema {db.info()['schema_version']})")


@click.command(cls=FileCommand)
@click.argument("target", metavar="NEW", type=click.Path())
def extract(session: Session, target: str) -> None:
    """Move eosdb's tables out of FILE, which has another application's tables, too, into a new file, NEW.

    NEW is written, verified and synced first; then the tables are dropped from FILE in one commit. If the
    command is killed in between, run it again. Afterwards, programs that use eosdb open NEW.

    \b
    Example:
      eosdb extract app.db orders.db
    """
    with session.open() as db, progress(db.clock, "extract", "events") as report:
        position = db.extract(target, on_progress=report)
    output.line(f"{target} has eosdb's tables, with {position} events; {session.path} has its own")
