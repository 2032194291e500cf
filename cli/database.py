"""Commands about the file itself: init, info, migrate, sql."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

import eosdb
from eosdb.errors import InvalidRequestError

from . import output
from .session import Session, pass_session


@click.command()
@pass_session
def init(session: Session) -> None:
    """Create the database file if it does not exist.

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
    """Show sizes, counts and versions of the file.

    \b
    Example:
      eosdb --db shop.db info --format json
    """
    with session.open(read_only=True) as db:
        output.facts(db.info(), output_format)


@click.command()
@pass_session
def migrate(session: Session) -> None:
    """Upgrade the file to the schema of this version. Other commands that write do so, too.

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
    """Run a read-only SQL QUERY (- reads it from standard input). `.views` lists the
    views and what they show.

    \b
    Example:
      eosdb sql .views
      eosdb sql "SELECT topic, count(*) AS n FROM committed_records GROUP BY topic"
    """
    if query == "-":
        query = sys.stdin.read()
    with session.open(read_only=True) as db:
        if query.strip() == ".views":
            output.rows(("View", "Columns", "Shows"), _views(db), output_format)
            return
        if query.strip().startswith("."):
            raise InvalidRequestError(f"{query.strip()}: expected .views, or one SQL statement")
        result = db.query(query)
        if not result.columns:
            raise InvalidRequestError("the statement has no rows to show; give one that reads")
        output.rows(result.columns, result.rows, output_format)


def _views(db: eosdb.Database) -> Iterator[tuple[str, str, str]]:
    for view in db.views():
        yield view.name, ", ".join(view.columns), view.text
    for typed in db.admin.list_views():
        columns = ", ".join(f"{name} {kind}" for name, kind in typed.columns.items())
        yield typed.name, columns, f"JSON values of topic {typed.topic}"


COMMANDS = (init, info, migrate, sql)
