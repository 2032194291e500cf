"""Commands about the file itself: init, info, stats, migrate, sql."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

import eosdb
from eosdb.cli import output
from eosdb.cli.session import Session, pass_session
from eosdb.errors import InvalidRequestError


@click.command()
@pass_session
def init(session: Session) -> None:
    """Create the database file if it does not exist.

    \b
    Example:
      eosdb --db shop.db init
    """
    with session.open(create=True) as db:
        output.line(f"{db.path} is ready")


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
@output.format_option
@pass_session
def stats(session: Session, output_format: str) -> None:
    """Show what takes the space of the file: tables, indexes, free pages; each topic; a transaction.

    Of a topic: the content of its records, and its events in the journal, which are parts of the tables
    above. The last line has the number of transactions in the journal, and the bytes of one. Reads the
    whole file once.

    \b
    Example:
      eosdb --db shop.db stats
    """
    with session.open(read_only=True) as db:
        found = db.admin.stats()
    lines: list[tuple[object, ...]] = [("total", "", None, found.total_bytes)]
    lines += [(part.kind, part.name, None, part.bytes) for part in found.parts]
    for topic in found.topics:
        lines.append(("topic", topic.topic, topic.records, topic.record_bytes))
        lines.append(("journal of topic", topic.topic, None, topic.journal_bytes))
    each = round(found.bytes_per_transaction)
    lines.append(("journal of a transaction", "", found.transactions, each))
    output.rows(("PART", "NAME", "COUNT", "BYTES"), lines, output_format)
    if found.is_estimate:
        output.line("estimated: this SQLite has no dbstat to count pages with", err=True)


@click.command()
@pass_session
def migrate(session: Session) -> None:
    """Upgrade the file to the schema of this version. Other commands that write do so, too.

    \b
    Example:
      cp shop.db shop-before.db && eosdb --db shop.db migrate
    """
    with session.open() as db:
        output.line(f"{db.path} has schema {db.info()['schema_version']}")


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
