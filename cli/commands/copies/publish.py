"""Commands for readers on other hosts: publish snapshots to object storage, and fetch them."""

from __future__ import annotations

import os

import click

from eosdb.cli import output
from eosdb.cli.file_command import FileCommand, Session, quiet_option
from eosdb.integrations import publishing


@click.command(cls=FileCommand)
@click.argument("target")
@click.option(
    "--keep", type=click.IntRange(min=1), default=10, show_default=True,
    help="Number of snapshots to keep.",
)  # fmt: skip
@click.option("--anew", is_flag=True, help="Upload everything again, to repair a damaged snapshot.")
@click.option(
    "--folder", type=click.Path(), help="Folder for the temporary copy (default: FILE's folder)."
)
def publish(session: Session, target: str, keep: int, anew: bool, folder: str | None) -> None:
    """Upload a snapshot of FILE to object storage at the URL TARGET; only changed data is sent. If it
    fails, run it again and it resumes.

    If TARGET is a path, it is replaced by a backup of FILE, atomically.

    \b
    Example:
      eosdb publish shop.db s3://bucket/fleet
    """
    with session.open(read_only=True) as db, output.progress("publish", "bytes") as report:
        done = db.publish_copy(target, keep=keep, anew=anew, folder=folder, on_progress=report)
    if done is None:
        output.done(f"published a backup at {target}: {os.path.getsize(target)} bytes")
        return
    output.done(
        f"published {done.url}, snapshot {done.snapshot}: {done.size} bytes; sent "
        f"{done.sent_bytes} bytes in {done.sent_objects} chunks"
    )


@click.command()
@click.argument("url")
@click.argument("target", required=False, type=click.Path())
@click.option("--snapshot", help="Name of an earlier snapshot.")
@quiet_option
def fetch(url: str, target: str | None, snapshot: str | None) -> None:
    """Download the latest published snapshot at URL to TARGET or into the cache, verify its checksums, and
    print the path.

    \b
    Example:
      eosdb fetch s3://bucket/fleet/4kYQbJ0cTQm0vYb0yGJx5w copy.db
    """
    with output.progress("fetch", "bytes") as report:
        path = publishing.fetch(url, target, snapshot=snapshot, on_progress=report)
    output.line(path)
