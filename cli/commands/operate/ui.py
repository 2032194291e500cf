"""`eosdb ui`: a web page that shows the file, for browsers on this machine."""

from __future__ import annotations

import webbrowser

import click

from eosdb.cli import options, output
from eosdb.cli.file_command import FileCommand, Session
from eosdb.model.words import needs_extra
from eosdb.system.signals import Stop, stopped_by_signals


@click.command(cls=FileCommand)
@options.port(
    default=8765, show_default=True,
    help="Port to listen on, at 127.0.0.1; 0 takes a free port, which the printed address shows.",
)  # fmt: skip
@click.option("--open", "show", is_flag=True, help="Open the page in the browser.")
@click.option(
    "--allow-changes", is_flag=True,
    help="Let everybody who has the printed address, with its token, replay dead letters and abort "
    "transactions.",
)  # fmt: skip
def ui(session: Session, port: int, show: bool, allow_changes: bool) -> None:
    """Serve a web page that shows FILE, updated live, until SIGTERM or Ctrl-C: topics, records and their
    outcome, groups, transactions, dead letters, a timeline.

    Listens on 127.0.0.1 only. Without --allow-changes FILE is only read. Needs the extra ui.

    \b
    Example:
      eosdb ui shop.db --open
      eosdb ui shop.db --allow-changes
    """
    try:
        from eosdb.integrations.ui.server import UiServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "jinja2"):
            raise
        raise click.ClickException(needs_extra("the page", "ui", error)) from None
    if allow_changes:
        session.check_may_write()
    stop = Stop()
    with (
        stopped_by_signals(stop.request),
        session.open(read_only=True) as db,
        UiServer(db, port, open_to_write=session.open if allow_changes else None) as server,
    ):
        output.line(f"{db.path} is at {server.url} (Ctrl-C ends it)")
        if show:
            webbrowser.open(server.url)
        stop.wait()
