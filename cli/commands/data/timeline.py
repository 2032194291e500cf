"""`eosdb timeline`: a picture of a topic's transactions along its offsets, or along time."""

from __future__ import annotations

import os
from pathlib import Path

import click

from eosdb.cli import output
from eosdb.cli.params import TIME_MS
from eosdb.cli.session import Session, pass_session
from eosdb.model.timeline.timeline import BY

_SUFFIXES = (".svg", ".html", ".png")


def _suffix(_: click.Context, __: click.Parameter, path: Path) -> Path:
    if path.suffix.lower() not in _SUFFIXES:
        raise click.BadParameter(
            f"got {path.name!r}, expected a name that ends in one of {', '.join(_SUFFIXES)}"
        )
    return path


@click.command()
@click.argument("topic")
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option(
    "--from", "start", type=click.IntRange(min=0), metavar="OFFSET", help="First offset to show."
)
@click.option(
    "--to", "end", type=click.IntRange(min=0), metavar="OFFSET", help="Show offsets below this one."
)
@click.option(
    "--since", type=TIME_MS, metavar="TIME", help="Show what was appended at this time or later."
)
@click.option(
    "--until", type=TIME_MS, metavar="TIME", help="Show what was appended before this time."
)
@click.option(
    "--by",
    type=click.Choice(BY),
    default="offset",
    show_default=True,
    help="What the picture runs along.",
)
@click.option(
    "--out",
    "path",
    required=True,
    callback=_suffix,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Output file: .svg, .png, or .html with a table of the transactions.",
)
@pass_session
def timeline(
    session: Session,
    topic: str,
    partition: int | None,
    start: int | None,
    end: int | None,
    since: int | None,
    until: int | None,
    by: str,
    path: Path,
) -> None:
    """Draw the transactions of TOPIC along its offsets, or along time, and the positions of its readers.

    One lane per partition. Transactions that are too many to be drawn one by one become columns in the
    colours of their outcomes, with the long and the open ones above them. TIME: milliseconds since the
    epoch, or ISO 8601 (UTC unless it names a zone). Needs Matplotlib: pip install "eosdb[timeline]".

    \b
    Example:
      eosdb timeline orders --out orders.html
      eosdb timeline orders --partition 2 --from 1000 --to 1500 --out window.png
      eosdb timeline orders --by time --since 2026-11-22T10:00 --until 2026-11-22T12:00 --out noon.svg
    """
    try:
        from . import timeline_page, timeline_picture
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise click.ClickException(
            'pictures are drawn with Matplotlib, which is not installed: pip install "eosdb[timeline]"'
        ) from None
    with session.open(read_only=True) as db:
        count = 1 if partition is not None else len(db.admin.describe_topic(topic).partitions)
        if count > timeline_picture.LANES_MAX:
            raise click.ClickException(
                f"{topic} has {count} partitions, a picture holds {timeline_picture.LANES_MAX}: "
                "name one with --partition"
            )
        lanes = db.admin.timeline(
            topic, partition, by=by, start=start, end=end, since=since, until=until
        )
    drawers = {
        ".svg": timeline_page.svg,
        ".html": timeline_page.html,
        ".png": timeline_picture.png,
    }
    _write(path, drawers[path.suffix.lower()](lanes))
    output.line(f"wrote {path}")


def _write(path: Path, content: bytes) -> None:
    """The file appears whole or not at all."""
    temporary = path.with_name(f".timeline-{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
