"""`eosdb timeline`: a picture of a topic's transactions along its offsets."""

from __future__ import annotations

import os
from pathlib import Path

import click

from .session import Session, pass_session

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
    path: Path,
) -> None:
    """Draw the transactions of TOPIC along its offsets, and the positions of its readers.

    One lane per partition. What is too dense to be drawn one by one is aggregated, and the picture says
    so. Needs Matplotlib: pip install "eosdb[timeline]".

    \b
    Example:
      eosdb timeline orders --out orders.html
      eosdb timeline orders --partition 2 --from 1000 --to 1500 --out window.png
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
        lanes = db.admin.timeline(topic, partition, start=start, end=end)
    drawers = {
        ".svg": timeline_page.svg,
        ".html": timeline_page.html,
        ".png": timeline_picture.png,
    }
    _write(path, drawers[path.suffix.lower()](lanes))
    click.echo(f"wrote {path}")


def _write(path: Path, content: bytes) -> None:
    """The file appears whole or not at all."""
    temporary = path.with_name(f".timeline-{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
