"""Commands about the file itself: init, migrate, info, sql."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from operator import itemgetter
from typing import Final

import click

import eosdb
from eosdb.cli import options, output
from eosdb.cli.file_command import FileCommand, Session
from eosdb.errors import InvalidRequestError

_SIZES_SHOWN: Final = 10


@click.command(cls=FileCommand)
@click.option(
    "--adopt", is_flag=True,
    help="FILE is another application's database: add eosdb's tables, and change nothing else.",
)  # fmt: skip
@click.option(
    "--wal", is_flag=True,
    help="With --adopt: switch FILE to WAL mode, for every program that uses it.",
)  # fmt: skip
def init(session: Session, adopt: bool, wal: bool) -> None:
    """Create FILE if it does not exist, or upgrade it to the schema of this version. Every command that
    writes upgrades FILE, too.

    With --adopt, all is done in one commit. A file that cannot be adopted is left unchanged, byte for
    byte, and the error names every obstacle.

    \b
    Example:
      eosdb init shop.db
      eosdb init app.db --adopt
    """
    if wal and not adopt:
        raise click.UsageError("--wal needs --adopt")
    how: bool | str = "wal" if wal else adopt
    with output.progress("init"), session.open(create=not adopt, adopt=how) as db:
        output.done(f"{db.path} is ready: schema {db.info()['schema_version']}")


@click.command(cls=FileCommand)
def migrate(session: Session) -> None:
    """Upgrade FILE to the schema of this version, as `eosdb init` does. A missing file is an error here."""
    with output.progress("migrate"), session.open() as db:
        output.done(f"{db.path} is ready: schema {db.info()['schema_version']}")


@click.command(cls=FileCommand)
@click.option(
    "--sizes", is_flag=True,
    help="Show the bytes of tables, indexes and topics instead. A table shows the ten largest, other "
    "formats show all. Reads the journal and every index.",
)  # fmt: skip
@output.format_option
def info(session: Session, sizes: bool) -> None:
    """Show sizes, counts and versions of the file.

    \b
    Example:
      eosdb info shop.db
      eosdb info shop.db --sizes
    """
    with session.open(read_only=True) as db:
        if not sizes:
            output.facts(db.info())
            return
        with output.progress("info", "pages") as on_progress:
            report = db.admin.stats(on_progress=on_progress)
    lines: list[tuple[object, ...]] = [("total", "", None, report.total_bytes)]
    lines += [(part.kind, part.name, None, part.bytes) for part in report.parts]
    for topic in report.topics:
        lines.append(("topic", topic.topic, topic.records, topic.record_bytes))
        lines.append(("journal of topic", topic.topic, None, topic.journal_bytes))
    each = round(report.bytes_per_transaction)
    lines.append(("journal of a transaction", "", report.transactions, each))
    shown = lines if not output.is_format("table") else _largest(lines)
    output.rows(("PART", "NAME", "COUNT", "BYTES"), shown)
    if len(shown) < len(lines):
        output.line(
            f"{len(lines) - len(shown)} smaller parts: eosdb info --sizes --format csv", err=True
        )
    if report.is_estimate:
        output.line("estimated: this SQLite is built without dbstat, which counts pages", err=True)


def _largest(lines: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The first and the last line, and between them the largest ones, in their order."""
    inner = sorted(lines[1:-1], key=itemgetter(3), reverse=True)[: _SIZES_SHOWN - 2]
    return [lines[0], *(line for line in lines[1:-1] if line in inner), lines[-1]]


@click.command(cls=FileCommand)
@click.argument("query")
@options.files
@output.format_option
def sql(session: Session, query: str, files: tuple[str, ...]) -> None:
    """Run a read-only SQL QUERY. `-` reads it from standard input; `.views` lists the views, with their
    columns and meaning. With --files, the column file has the path.

    \b
    Example:
      eosdb sql shop.db .views
      eosdb sql shop.db "SELECT topic, count(*) AS n FROM committed_records GROUP BY topic"
      eosdb sql --files 'fleet/*.db' "SELECT file, count(*) AS n FROM committed_records GROUP BY file"
    """
    if query == "-":
        query = sys.stdin.read()
    if files:
        if session.is_named:
            raise click.UsageError("give FILE or --files, not both")
        with output.progress("sql", "files") as on_progress:
            found = eosdb.fleet(files).query(query, on_progress=on_progress)
        _show(found)
        return
    with session.open(read_only=True) as db:
        if query.strip() == ".views":
            output.rows(("View", "Columns", "Shows"), _views(db))
            return
        if query.strip().startswith("."):
            raise InvalidRequestError(f"{query.strip()}: expected .views, or one SQL statement")
        _show(db.query(query))


def _show(result: eosdb.QueryResult) -> None:
    if not result.columns:
        raise InvalidRequestError("the statement returns no rows; give a SELECT")
    output.rows(result.columns, result.rows)


def _views(db: eosdb.Database) -> Iterator[tuple[str, str, str]]:
    for view in db.views():
        yield view.name, ", ".join(view.columns), view.text
    for typed in db.admin.list_views():
        columns = ", ".join(f"{name} {kind}" for name, kind in typed.columns.items())
        yield typed.name, columns, f"JSON values of topic {typed.topic}"
