"""`eosdb timeline`: a picture of a topic's transactions, in the terminal or as SVG.

In a terminal each outcome has its own character, so the picture needs no colours.
"""

from __future__ import annotations

from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from eosdb.admin.timeline import svg
from eosdb.admin.timeline.layout import Medium, Picture, cells, draw
from eosdb.admin.timeline.reading import BY
from eosdb.cli import options, output
from eosdb.cli.file_command import FileCommand, Session
from eosdb.cli.options import TIME_MS
from eosdb.model.words import printable

_NUMBER: Final = click.IntRange(min=0)


@click.command(cls=FileCommand)
@click.argument("topic")
@options.partition
@click.option("--from-offset", "start", type=_NUMBER, metavar="OFFSET", help="The first offset.")
@click.option(
    "--before-offset", "end", type=_NUMBER, metavar="OFFSET", help="Only offsets below this one."
)
@click.option("--since", type=TIME_MS, metavar="TIME", help="Only records appended since TIME.")
@click.option("--until", type=TIME_MS, metavar="TIME", help="Only records appended before TIME.")
@click.option(
    "--by", type=click.Choice(BY), default=BY[0], show_default=True,
    help="Unit of the horizontal axis.",
)  # fmt: skip
@output.file_option
def timeline(session: Session, topic: str, partition: int | None, by: str, **window: Any) -> None:
    """Draw the transactions of TOPIC along offsets or time, and the positions of its readers.

    Each partition has a lane. If there are too many transactions to draw one by one, columns count them by
    outcome; long and open ones still have bars. TIME: milliseconds since the epoch, or ISO 8601 (UTC unless
    it names a zone). With -o, the picture is an SVG.

    \b
    Example:
      eosdb timeline shop.db orders
      eosdb timeline shop.db orders --by time --since 2026-11-22T10:00 -o orders.svg
    """
    console = Console(highlight=False)
    with session.open(read_only=True) as db:
        is_file = click.get_current_context().params["output_file"] is not None
        most = {} if is_file else {"max_bins": console.width, "max_transactions": 60}
        timelines = db.admin.timeline(topic, partition, by=by, **window, **most)
    if is_file:
        output.exact(svg.document(timelines) + "\n")
        return
    console.print(Text(printable(topic), "bold"))
    show(draw(timelines, Medium(console.width, 1, 1, 12)), console)


_STYLES: Final = {
    "committed": ("█", "bright_blue"), "aborted": ("╳", "red"), "open": ("░", "yellow"),
    "plain": ("·", "bright_black"), "axis": ("─", "bright_black"), "tick": ("", "bright_black"),
    "group": ("", "green"), "partition": ("", "bold"),
}  # fmt: skip
"""A shape's character, unless it is text, and its style."""


def show(picture: Picture, console: Console) -> None:
    """Print the picture, as wide as the terminal."""
    lines = [[(" ", "")] * console.width for _ in range(int(picture.lines))]

    def write(number: int, column: int, text: str, style: str) -> None:
        for character in text:
            if 0 <= column <= console.width - (width := cells(character)):
                lines[number][column] = (character, style)
                if width == 2:
                    lines[number][column + 1] = ("", style)
            column += width

    for shape in [*(shape for _, lane in picture.lanes for shape in lane), *picture.shapes]:
        (block, style), top = _STYLES.get(shape.kind, ("", "")), round(shape.top)
        if shape.is_text:
            write(int(shape.top), int(shape.left), shape.text, style)
        elif block:
            first = min(int(shape.left), console.width - 1)
            count = max(int(shape.left + shape.width) - first, 1)
            end = "▌" if shape.is_closed and shape.kind == "committed" else block
            bottom = max(round(shape.top + shape.height), int(shape.top) + (not shape.height))
            for number in range(min(top, bottom - 1), bottom):
                write(number, first, block * (count - 1) + end, style)
            write(top, first, shape.text, f"reverse {style}")
    for line in lines:
        (text := Text.assemble(*line)).rstrip()
        console.print(text, no_wrap=True, overflow="crop")
    for note in picture.notes:
        console.print(Text(note, "dim"))
