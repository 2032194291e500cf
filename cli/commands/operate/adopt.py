"""Commands that put eosdb's tables into another application's file, and take them out: adopt, extract."""

from __future__ import annotations

import click

from eosdb.cli import output
from eosdb.cli.progress import progress
from eosdb.cli.session import Session, pass_session


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--wal",
    is_flag=True,
    help="Switch a file in rollback-journal mode to the write-ahead log, for every program that uses it.",
)
@pass_session
def adopt(session: Session, file: str, wal: bool) -> None:
    """Put eosdb's tables beside those of another application's SQLite database, FILE.

    In one commit: a file that cannot be adopted stays as it is, byte for byte, and the error names
    everything that is in the way. Its own tables, its application_id and its user_version are not touched.

    \b
    Example:
      eosdb adopt app.db
    """
    with session.at(file).open(adopt="wal" if wal else True) as db:
        output.line(f"{db.path} has eosdb's tables (schema {db.info()['schema_version']})")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("target", metavar="NEW", type=click.Path())
@pass_session
def extract(session: Session, file: str, target: str) -> None:
    """Take eosdb's tables out of FILE, which was adopted or has other tables too, into a new file, NEW.

    NEW is whole, verified and durable before anything is dropped from FILE, in one commit. If it is killed
    between the two, run it again. FILE is its owner's alone then: eosdb's programs open NEW.

    \b
    Example:
      eosdb extract app.db orders.db
    """
    with session.at(file).open() as db, progress(db.clock, "extract", "events") as report:
        position = db.extract(target, on_progress=report)
    output.line(f"{target} has eosdb's tables, with {position} events; {file} has its own")
