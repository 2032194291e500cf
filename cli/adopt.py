"""Commands that put eosdb's tables into another application's file, and take them out again: adopt."""

from __future__ import annotations

import click

from .session import Session, pass_session


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
        click.echo(f"{db.path} has eosdb's tables (schema {db.info()['schema_version']})")


COMMANDS = (adopt,)
