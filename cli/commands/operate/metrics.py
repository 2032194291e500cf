"""`eosdb metrics`: the metrics of a file for Prometheus, printed once or served."""

from __future__ import annotations

import click

import eosdb
from eosdb.cli import options, output
from eosdb.cli.file_command import FileCommand, Session, figures_served
from eosdb.integrations.exposition import of_file, written
from eosdb.system.signals import Stop, stopped_by_signals


@click.command(cls=FileCommand)
@options.port(
    help="Serve metrics at http://ADDRESS:PORT/metrics until SIGTERM or Ctrl-C; 0 takes a free port."
)
@click.option(
    "--listen", metavar="ADDRESS",
    help="Address to listen on, with --port.  [default: 127.0.0.1]",
)  # fmt: skip
def metrics(session: Session, port: int | None, listen: str | None) -> None:
    """Print metrics for Prometheus, or serve them: partitions, groups, open transactions, dead letters and
    sizes of FILE. The file is only read, and no writer waits. A program's own counters are in its
    db.metrics_text().

    \b
    Example:
      eosdb metrics shop.db
      eosdb metrics shop.db --port 9404
    """
    if listen is not None and port is None:
        raise click.UsageError(f"--listen: got {listen!r} without --port, expected both")
    stop = Stop()
    with stopped_by_signals(stop.request), session.open(read_only=True) as db:
        if port is None:
            output.exact(text_of(db))
            return
        with figures_served(port, lambda: text_of(db), listen or "127.0.0.1"):
            stop.wait()


def text_of(db: eosdb.Database) -> str:
    """The metrics of the file, without the counters of this process."""
    return written(of_file(db.admin.overview()))
