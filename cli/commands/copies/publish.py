"""Commands for readers that share no file system: publish to object storage, and fetch from there."""

from __future__ import annotations

import os

import click

import eosdb
from eosdb.cli import output
from eosdb.cli.progress import progress
from eosdb.cli.session import Session, pass_session
from eosdb.integrations import publishing


@click.command()
@click.argument("target")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="How many snapshots stay there.",
)
@click.option("--anew", is_flag=True, help="Send everything again, also what should be there.")
@click.option(
    "--folder", type=click.Path(), help="Where the file is copied first; by default beside it."
)
@pass_session
def publish(session: Session, target: str, keep: int, anew: bool, folder: str | None) -> None:
    """Publish the file as it is now at TARGET, a URL (s3://bucket/fleet) or the path of a copy.

    At a URL it is a snapshot, of which only what has changed is sent; run it again after a failure, and it
    goes on where it was. A copy replaces the one before.

    \b
    Example:
      eosdb --db shop.db publish s3://bucket/fleet
    """
    with session.open(read_only=True) as db, progress(db.clock, "publish", "bytes") as report:
        done = db.publish(target, keep=keep, anew=anew, folder=folder, on_progress=report)
    if done is None:
        output.line(f"published a copy at {target}: {os.path.getsize(target)} bytes")
        return
    output.line(
        f"published {done.url}, snapshot {done.snapshot}: {done.size} bytes, of which "
        f"{done.sent_bytes} in {done.sent_objects} chunks were sent"
    )


@click.command()
@click.argument("url")
@click.argument("target", required=False, type=click.Path())
@click.option("--snapshot", help="An earlier snapshot, by name, instead of the latest.")
def fetch(url: str, target: str | None, snapshot: str | None) -> None:
    """Fetch the latest published snapshot at URL, checked, to TARGET or into the cache; print its path.

    \b
    Example:
      eosdb fetch s3://bucket/fleet/4kYQbJ0cTQm0vYb0yGJx5w copy.db
    """
    with progress(eosdb.SystemClock(), "fetch", "bytes") as report:
        path = publishing.fetch(url, target, snapshot=snapshot, on_progress=report)
    output.line(path)
