"""`eosdb metrics`: the figures of a file for Prometheus, once or for as long as somebody asks."""

from __future__ import annotations

import dataclasses
import re
import threading
from typing import Final

import click

import eosdb
from eosdb.cli import output
from eosdb.cli.session import Session, pass_session
from eosdb.cli.stopping import stopped_by_signals
from eosdb.integrations.exposition.figures import of_file
from eosdb.model.protocol.prometheus import written

_ADDRESS: Final = re.compile(r"(?:\[?([^\[\]/]+?)\]?:)?(\d{1,5})")


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--listen", metavar="HOST:PORT",
    help="Serve them at http://HOST:PORT/metrics until SIGTERM or Ctrl-C; without HOST on loopback alone.",
)  # fmt: skip
@pass_session
def metrics(session: Session, file: str | None, listen: str | None) -> None:
    """Print the figures of FILE for Prometheus, or serve them. FILE (or that of --db) is read: its
    partitions, groups, open transactions, dead letters and sizes. Nothing is written to it, and nobody who
    writes it waits.
    What a program itself has done is in its own db.metrics_text().

    \b
    Example:
      eosdb metrics shop.db
      eosdb metrics shop.db --listen 127.0.0.1:9404
    """
    if file is not None:
        session = dataclasses.replace(session, path=file)
    address = None if listen is None else _address(listen)
    stopped = threading.Event()
    with stopped_by_signals(stopped.set), session.open(read_only=True) as db:
        if address is None:
            output.exact(text_of(db))
            return
        from eosdb.integrations.exposition.server import FigureServer

        host, port = address
        with FigureServer(port, lambda: text_of(db), host) as server:
            shown = f"[{host}]" if ":" in host else host
            output.line(f"figures at http://{shown}:{server.port}/metrics", err=True)
            stopped.wait()


def text_of(db: eosdb.Database) -> str:
    """The figures of the file: those of this process would say nothing."""
    return written(of_file(db.admin.overview()))


def _address(text: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[2]) > 65_535:
        raise click.UsageError(
            f"--listen: got {text!r}, expected HOST:PORT, such as 127.0.0.1:9404"
        )
    return found[1] or "127.0.0.1", int(found[2])
