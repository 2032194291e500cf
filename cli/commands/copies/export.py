"""`eosdb export`: records into a lakehouse, once or for as long as the command runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from eosdb.cli import output
from eosdb.cli.params import settings
from eosdb.cli.session import Session, pass_session
from eosdb.errors import ConfigError
from eosdb.model.clock import SystemClock

if TYPE_CHECKING:
    from eosdb.integrations.lakehouse import Exported


@click.command()
@click.argument("target")
@click.option(
    "--format",
    "table_format",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Format of the table. TARGET is a folder, with delta also a URI, with iceberg NAMESPACE.TABLE.",
)
@click.option("--subscribe", metavar="TOPICS", help="Comma-separated list of topics; default: all.")
@click.option("--files", metavar="PATH", help="Directory or glob of files, instead of --db.")
@click.option("--catalog", default="default", show_default=True, help="Name of Iceberg's catalog.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=settings,
    help="Storage option of Delta, or property of Iceberg's catalog, such as uri=sqlite:///catalog.db "
    "(repeatable).",
)
@click.option(
    "--allow-data-loss",
    is_flag=True,
    help="Go on where records are gone that were not exported: removed by retention, or with a file that "
    "was replaced.",
)
@click.option("--follow", is_flag=True, help="Export what is new again and again; Ctrl-C ends it.")
@click.option(
    "--every",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Pause between two exports with --follow; each that finds something makes new files.",
)
@pass_session
def export(
    session: Session,
    target: str,
    table_format: str,
    subscribe: str | None,
    files: str | None,
    catalog: str,
    options: dict[str, str],
    allow_data_loss: bool,
    follow: bool,
    every: int,
) -> None:
    """Append the committed records that TARGET does not have yet, each exactly once: killed and started
    again, it continues. Needs pip install 'eosdb[lakehouse]'.

    \b
    Example:
      eosdb --db shop.db export lake/events --format delta --subscribe orders,payments
    """
    topics = None
    if subscribe is not None:
        topics = [name.strip() for name in subscribe.split(",") if name.strip()]
        if not topics:
            raise click.UsageError(f"--subscribe: got {subscribe!r}, expected topics, such as a,b")

    def once(source: Session) -> Exported:
        try:
            from eosdb.integrations import lakehouse

            with source.open(read_only=True) as db:
                return lakehouse.export(
                    db,
                    target,
                    table_format,
                    topics=topics,
                    catalog=catalog,
                    options=options,
                    allow_data_loss=allow_data_loss,
                )
        except ImportError as error:
            raise ConfigError(str(error)) from None

    def all_files() -> None:
        for source in _sources(session, files):
            done = once(source)
            if done.records or not follow:
                output.line(f"{source.path}: {done.records} records in {done.files} files exported")

    all_files()
    if follow:
        _repeat(all_files, every)


def _sources(session: Session, files: str | None) -> list[Session]:
    if files is None:
        return [session]
    from eosdb.spark_io.planning.errors import SparkOptionError
    from eosdb.spark_io.planning.files import resolve

    try:
        paths = resolve(files).paths
    except SparkOptionError as error:
        raise ConfigError(str(error)) from None
    return [dataclasses.replace(session, path=path) for path in paths]


def _repeat(work: Callable[[], None], every_s: int) -> None:
    clock = SystemClock()
    try:
        while True:
            clock.sleep_ms(every_s * 1_000)
            work()
    except KeyboardInterrupt:
        return
