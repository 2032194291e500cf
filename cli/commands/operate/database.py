"""Commands about the file itself: init, info, stats, migrate, sql, adopt, extract."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from operator import itemgetter
from typing import Final

import click

import eosdb
from eosdb.cli import output
from eosdb.cli.file_command import FileCommand
from eosdb.cli.progress import progress
from eosdb.cli.session import Session
from eosdb.errors import InvalidRequestError

_STATS_LINES: Final = 10


@click.command(cls=FileCommand)
def init(session: Session) -> None:
    """Create the database file if it does not exist.

    \b
    Example:
      eosdb init shop.db
    """
    with session.open(create=True) as db:
        output.line(f"{db.path} is ready")


@click.command(cls=FileCommand)
@output.format_option
def info(session: Session, output_format: str) -> None:
    """Show sizes, counts and versions of the file.

    \b
    Example:
      eosdb info shop.db --format json
    """
    with session.open(read_only=True) as db:
        output.facts(db.info(), output_format)


@click.command(cls=FileCommand)
@click.option("--all", "is_whole", is_flag=True, help="Show every line, not only the largest.")
@output.format_option
def stats(session: Session, is_whole: bool, output_format: str) -> None:
    """Show the disk usage of the file, by table and topic: its ten largest parts, or with --all every
    table, index and the free pages; the records and the journal events of each topic, which are parts of
    these tables; and the average size of a transaction in the journal. Reads the journal and every index.

    \b
    Example:
      eosdb stats shop.db
    """
    with session.open(read_only=True) as db, progress(db.clock, "stats", "pages") as on_progress:
        report = db.admin.stats(on_progress=on_progress)
    lines: list[tuple[object, ...]] = [("total", "", None, report.total_bytes)]
    lines += [(part.kind, part.name, None, part.bytes) for part in report.parts]
    for topic in report.topics:
        lines.append(("topic", topic.topic, topic.records, topic.record_bytes))
        lines.append(("journal of topic", topic.topic, None, topic.journal_bytes))
    each = round(report.bytes_per_transaction)
    lines.append(("journal of a transaction", "", report.transactions, each))
    shown = lines if is_whole or output_format != "table" else _largest(lines)
    output.rows(("PART", "NAME", "COUNT", "BYTES"), shown, output_format)
    if len(shown) < len(lines):
        output.line(f"{len(lines) - len(shown)} smaller ones more: eosdb stats --all", err=True)
    if report.is_estimate:
        output.line("estimated: this SQLite is built without dbstat, which counts pages", err=True)


def _largest(lines: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The first line, the last, and between them those of the most bytes, in their order."""
    inner = sorted(lines[1:-1], key=itemgetter(3), reverse=True)[: _STATS_LINES - 2]
    return [lines[0], *(line for line in lines[1:-1] if line in inner), lines[-1]]


@click.command(cls=FileCommand)
def migrate(session: Session) -> None:
    """Upgrade the file to the schema of this version. Any other command that writes does so, too.

    \b
    Example:
      cp shop.db shop-before.db && eosdb migrate shop.db
    """
    with session.open() as db:
        output.line(f"{db.path} has schema {db.info()['schema_version']}")


@click.command(cls=FileCommand)
@click.argument("query")
@output.format_option
def sql(session: Session, query: str, output_format: str) -> None:
    """Run a read-only SQL QUERY (- reads it from standard input). `.views` lists the views, with their
    columns and meaning.

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
            raise InvalidRequestError("the statement returns no rows; give a SELECT")
        output.rows(result.columns, result.rows, output_format)


def _views(db: eosdb.Database) -> Iterator[tuple[str, str, str]]:
    for view in db.views():
        yield view.name, ", ".join(view.columns), view.text
    for typed in db.admin.list_views():
        columns = ", ".join(f"{name} {kind}" for name, kind in typed.columns.items())
        yield typed.name, columns, f"JSON values of topic {typed.topic}"


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
