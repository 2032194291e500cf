"""`eosdb scheduled`: list and cancel records that are not due yet."""

from __future__ import annotations

import click

from eosdb.cli import options, output
from eosdb.cli.file_command import FileGroup, Session
from eosdb.model.words import counted


@click.group(cls=FileGroup)
def scheduled() -> None:
    """List and cancel records that are not due yet."""


@scheduled.command(name="list")
@options.topic
@output.format_option
def list_(session: Session, topic: str | None) -> None:
    """List the records that are not due yet, by due time.

    \b
    Example:
      eosdb scheduled list shop.db --topic reminders
    """
    columns = ("ID", "TOPIC", "PARTITION", "DELIVER-AT", "KEY", "VALUE")
    with session.open(read_only=True) as db:
        waiting = db.admin.list_scheduled(topic)
    output.listing(columns, waiting, deliver_at=lambda it: output.Time(it.deliver_at))


@scheduled.command()
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
def cancel(session: Session, ids: tuple[str, ...]) -> None:
    """Cancel records by the IDs that `scheduled list` prints. Records that have entered their topics stay
    there.

    \b
    Example:
      eosdb scheduled cancel shop.db 7.12 7.13
    """
    with session.open() as db:
        cancelled = db.admin.cancel_scheduled(ids)
    output.done(
        f"cancelled {counted(cancelled, 'record')}; {len(set(ids)) - cancelled} waited no longer"
    )
