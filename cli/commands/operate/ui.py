"""`eosdb ui`: the file as a page in a browser of this machine."""

from __future__ import annotations

import threading
import webbrowser

import click

from eosdb.cli import output
from eosdb.cli.session import Session, pass_session
from eosdb.cli.stopping import stopped_by_signals

_PORT = 8765


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=_PORT, show_default=True,
    help="Port on 127.0.0.1; 0 takes a free one, which the address shows.",
)  # fmt: skip
@click.option("--open", "show", is_flag=True, help="Open the page in the browser.")
@click.option(
    "--allow-changes", is_flag=True,
    help="Let who has the address with the token send dead letters back and abort transactions.",
)  # fmt: skip
@pass_session
def ui(session: Session, file: str | None, port: int, show: bool, allow_changes: bool) -> None:
    """Show FILE (or that of --db) as a page in a browser, live, until SIGTERM or Ctrl-C.

    Topics, records and what became of them, groups, transactions, dead letters, a timeline. Listens on
    127.0.0.1 alone and only reads. Needs pip install 'eosdb[ui]'.

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
        raise click.ClickException(
            f"the page needs {error.name}, which is not installed: pip install 'eosdb[ui]'"
        ) from None
    if file is not None:
        session = session.at(file)
    if allow_changes:
        session.check_may_write()
    stopped = threading.Event()
    with (
        stopped_by_signals(stopped.set),
        session.open(read_only=True) as db,
        UiServer(db, port, open_to_write=session.open if allow_changes else None) as server,
    ):
        output.line(f"{db.path} is at {server.url} (Ctrl-C ends it)")
        if show:
            webbrowser.open(server.url)
        stopped.wait()
