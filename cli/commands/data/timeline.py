"""`eosdb timeline`: a picture of a topic's transactions along its offsets, or along time."""

from __future__ import annotations

import os
from pathlib import Path

import click

from eosdb.cli import output
from eosdb.cli.file_command import FileCommand
from eosdb.cli.params import TIME_MS
from eosdb.cli.session import Session
from eosdb.model.timeline.timeline import BY

_SUFFIXES = (".svg", ".html")


def _suffix(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and path.suffix.lower() not in _SUFFIXES:
        png = " (PNG is not drawn any more: a browser converts an .svg)"
        raise click.BadParameter(
            f"got {path.name!r}, expected a name that ends in {' or '.join(_SUFFIXES)}"
            + (png if path.suffix.lower() == ".png" else "")
        )
    return path


@click.command(cls=FileCommand)
@click.argument("topic")
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option(
    "--from-offset",
    "start",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="Start at this offset.",
)
@click.option(
    "--before-offset", "end", type=click.IntRange(min=0), metavar="OFFSET",
    help="Only offsets below this one.",
)  # fmt: skip
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
    "-o",
    "--output",
    "path",
    callback=_suffix,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Write a file instead: .svg, or .html with a table of the transactions.",
)
def timeline(
    session: Session,
    topic: str,
    partition: int | None,
    start: int | None,
    end: int | None,
    since: int | None,
    until: int | None,
    by: str,
    path: Path | None,
) -> None:
    """Draw the transactions of TOPIC along its offsets, or along time, and the positions of its readers.

    One lane per partition, in the terminal or in a file. Transactions that are too many to be drawn one by
    one become columns in the colours of their outcomes, with the long and the open ones above them. TIME:
    milliseconds since the epoch, or ISO 8601 (UTC unless it names a zone).

    \b
    Example:
      eosdb timeline shop.db orders
      eosdb timeline shop.db orders -o orders.html
      eosdb timeline shop.db orders --by time --since 2026-11-22T10:00 --until 2026-11-22T12:00 -o noon.svg
    """
    from rich.console import Console

    from eosdb.model.timeline import lanes, svg

    from . import timeline_blocks, timeline_page

    console = Console(highlight=False)
    with session.open(read_only=True) as db:
        count = 1 if partition is not None else len(db.admin.describe_topic(topic).partitions)
        if count > lanes.LANES_MAX:
            raise click.ClickException(
                f"{topic} has {count} partitions, a picture holds {lanes.LANES_MAX}: "
                "name one with --partition"
            )
        most = {} if path is not None else {"max_bins": console.width, "max_transactions": 60}
        timelines = db.admin.timeline(
            topic, partition, by=by, start=start, end=end, since=since, until=until, **most
        )
    if path is None:
        timeline_blocks.show(timelines, console)
        return
    page = path.suffix.lower() == ".html"
    _write(path, (timeline_page.html if page else svg.document)(timelines))
    output.line(f"wrote {path}")


def _write(path: Path, content: str) -> None:
    """Write the file atomically."""
    temporary = path.with_name(f".timeline-{os.getpid()}.tmp")
    file = temporary.open("x", encoding="utf-8")  # Not through a link that somebody has put there.
    try:
        with file:
            file.write(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
