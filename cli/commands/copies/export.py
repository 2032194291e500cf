"""`eosdb export`: committed records appended to a table (Parquet, Delta, Iceberg), once or repeatedly."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Unpack

import click

from eosdb.cli import options, output
from eosdb.cli.file_command import FileCommand, Session
from eosdb.errors import ConfigError, EosdbError, StorageError
from eosdb.model.words import counted
from eosdb.system.signals import stopped_by_signals

if TYPE_CHECKING:
    from eosdb.integrations.lakehouse.exporting import Exported, Where


@click.command(cls=FileCommand)
@click.argument("target")
@click.option(
    "--table-format", type=click.Choice(["parquet", "delta", "iceberg"]), default="parquet",
    show_default=True,
    help="Table format. TARGET is a folder, for delta also a URI, for iceberg NAMESPACE.TABLE.",
)  # fmt: skip
@options.topics
@options.files
@click.option(
    "--catalog", default="default", show_default=True, help="Name of the Iceberg catalog."
)
@options.setting(
    "--option", "options",
    help="Storage option of Delta, or property of the Iceberg catalog, such as uri=sqlite:///catalog.db "
    "(repeatable).",
)  # fmt: skip
@click.option(
    "--allow-data-loss", is_flag=True,
    help="Continue if records were deleted before they were exported: by retention, or because the file "
    "was replaced.",
)  # fmt: skip
@options.follow
@click.option(
    "--every", type=click.IntRange(min=1), default=60, show_default=True, metavar="SECONDS",
    help="Pause between two exports with --follow; each export of new records creates data files.",
)  # fmt: skip
def export(
    session: Session,
    /,
    target: str,
    table_format: str,
    topics: tuple[str, ...],
    files: tuple[str, ...],
    follow: bool,
    every: int,
    **where: Unpack[Where],
) -> None:
    """Append new committed records to the table TARGET, each exactly once. Restarted after a kill, it
    resumes. With --files, unreadable files are left out. Needs the extra lakehouse.

    \b
    Example:
      eosdb export shop.db lake/events --table-format delta --topic orders --topic payments
    """
    chosen = list(topics) or None
    results = _Results(quiet=follow)

    def work() -> None:
        try:
            from eosdb.integrations import lakehouse

            if not files:
                with (
                    session.open_for_reading() as db,
                    output.progress("export", "offsets") as report,
                ):
                    done = lakehouse.export(
                        db, target, table_format, topics=chosen, on_progress=report, **where
                    )
                results.tell(session.named_path(), done)
                return
            paths, principal = _paths(files), session.principal
            with output.progress("export", "files") as report:
                found = lakehouse.export_files(
                    paths, target, table_format, topics=chosen, principal=principal, **where
                )
                for number, (path, result) in enumerate(found, 1):
                    report(number, len(paths))
                    results.tell(path, result)
        except ImportError as error:
            raise ConfigError(str(error)) from None

    if follow:
        _repeat(work, every)
    else:
        work()
        results.check()


class _Results:
    """Prints the result of each file; with `quiet` only new records and new errors."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._left_out: dict[str, str] = {}

    def tell(self, path: str, result: Exported | EosdbError) -> None:
        if not isinstance(result, EosdbError):
            self._left_out.pop(path, None)
            if result.records or not self._quiet:
                output.done(f"{path}: {result.records} records in {result.files} files exported")
        elif self._left_out.get(path) != (why := f"{type(result).__name__}: {result}"):
            self._left_out[path] = why
            output.line(f"{path} was left out: {why}", err=True)

    def check(self) -> None:
        """Raises StorageError if files were left out."""
        if self._left_out:
            raise StorageError(
                f"{counted(len(self._left_out), 'file')} left out, as named above; all others were "
                "exported. Export again when these can be read"
            )


def _paths(files: Sequence[str]) -> Sequence[str]:
    from eosdb.spark_io.planning.errors import SparkOptionError
    from eosdb.spark_io.planning.files import resolve

    try:
        return resolve(files).paths
    except SparkOptionError as error:
        raise ConfigError(str(error)) from None


def _repeat(work: Callable[[], None], every_s: int) -> None:
    """Repeat the work until SIGTERM or Ctrl-C, which take effect after the current pass."""
    stopped = threading.Event()
    with stopped_by_signals(stopped.set):
        work()
        while not stopped.wait(every_s):
            work()
