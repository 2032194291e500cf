"""Commands about the file itself: init, info, migrate, sql."""

from __future__ import annotations

import click

from eosdb.errors import InvalidRequestError

from . import output
from .session import Session, pass_session


@click.command()
@pass_session
def init(session: Session) -> None:
    """Make the database file, if it is not there.

    \b
    Example:
      eosdb --db shop.db init
    """
    with session.open(create=True) as db:
        click.echo(f"{db.path} is ready")


@click.command()
@output.format_option
@pass_session
def info(session: Session, output_format: str) -> None:
    """Sizes, counts and versions of the file.

    \b
    Example:
      eosdb --db shop.db info --format json
    """
    with session.open(read_only=True) as db:
        output.facts(db.info(), output_format)


@click.command()
@pass_session
def migrate(session: Session) -> None:
    """Bring the file to this version's schema. Other commands do so too when they write.

    \b
    Example:
      cp shop.db shop-before.db && eosdb --db shop.db migrate
    """
    with session.open() as db:
        click.echo(f"{db.path} has schema {db.info()['schema_version']}")


@click.command()
@click.argument("query")
@output.format_option
@pass_session
def sql(session: Session, query: str, output_format: str) -> None:
    """Run one reading SQL QUERY; writes are refused.

    \b
    Example:
      eosdb --db shop.db sql "SELECT topic, count(*) AS n FROM committed_records GROUP BY topic"
    """
    with session.open(read_only=True) as db:
        result = db.query(query)
        if not result.columns:
            raise InvalidRequestError("the statement has no rows to show; give one that reads")
        output.rows(result.columns, result.rows, output_format)


COMMANDS = (init, info, migrate, sql)
