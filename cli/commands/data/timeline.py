"""`eosdb timeline`: a picture of a topic's transactions along its offsets, or along time.

In a terminal each outcome has a character of its own, so that colours are not needed to read it. A page
adds tables of the transactions and groups.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

import click
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from eosdb.admin.timeline import svg
from eosdb.admin.timeline.layout import (
    KINDS,
    LANES_MAX,
    Label,
    Lane,
    fitted,
    heights,
    lanes,
    notes,
    placed,
    summary,
)
from eosdb.admin.timeline.timeline import BY, PartitionTimeline
from eosdb.cli import output
from eosdb.cli.file_command import FileCommand
from eosdb.cli.params import TIME_MS
from eosdb.cli.session import Session
from eosdb.model.clock import format_time_ms
from eosdb.model.words import printable

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
    """Draw the transactions of TOPIC along offsets or time, and the positions of its readers.

    One lane per partition, in the terminal or in a file. Transactions that are too many to be drawn one by
    one become columns in the colours of their outcomes, with the long and the open ones above them. TIME:
    milliseconds since the epoch, or ISO 8601 (UTC unless it names a zone).

    \b
    Example:
      eosdb timeline shop.db orders
      eosdb timeline shop.db orders -o orders.html
      eosdb timeline shop.db orders --by time --since 2026-11-22T10:00 --until 2026-11-22T12:00 -o noon.svg
    """
    console = Console(highlight=False)
    with session.open(read_only=True) as db:
        count = 1 if partition is not None else len(db.admin.describe_topic(topic).partitions)
        if count > LANES_MAX:
            raise click.ClickException(
                f"{topic} has {count} partitions, a picture holds {LANES_MAX}: "
                "name one with --partition"
            )
        most = {} if path is not None else {"max_bins": console.width, "max_transactions": 60}
        timelines = db.admin.timeline(
            topic, partition, by=by, start=start, end=end, since=since, until=until, **most
        )
    if path is None:
        show(timelines, console)
        return
    page = path.suffix.lower() == ".html"
    _write(path, (html if page else svg.document)(timelines))
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


_BLOCKS: Final = {"committed": "█", "aborted": "╳", "open": "░", "plain": "·"}
_STYLES: Final = {
    "committed": "bright_blue", "aborted": "red", "open": "yellow", "plain": "bright_black",
    "log start": "bright_black", "LSO": "magenta", "log end": "bold", "group": "green",
}  # fmt: skip
_ROWS_MAX, _CHART = 12, 6


class _Canvas:
    """Lines of characters of one column each."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lines: list[dict[int, tuple[str, str]]] = []

    def add(self, count: int = 1) -> int:
        """Append empty lines; returns the number of the first."""
        self._lines += [{} for _ in range(count)]
        return len(self._lines) - count

    def column(self, place: float) -> int:
        return min(int(place), self._width - 1)

    def write(self, number: int, column: int, text: str, style: str) -> None:
        for character in text:
            width = cell_len(character)
            if 0 <= column <= self._width - width:
                self._lines[number][column] = (character, style)
                if width == 2:
                    self._lines[number][column + 1] = ("", style)
            column += width

    def lines(self) -> Iterator[Text]:
        for cells in self._lines:
            line = Text()
            for column in range(max(cells, default=-1) + 1):
                line.append(*cells.get(column, (" ", "")))
            yield line


def show(timelines: Sequence[PartitionTimeline], console: Console) -> None:
    """Print all lanes, as wide as the terminal."""
    width = console.width
    drawn = lanes(timelines, width, cell_len, least=1, rows_max=_ROWS_MAX)
    for lane in drawn:
        name = f"{printable(lane.timeline.topic)}-{lane.timeline.partition}"
        console.print(Text(name, "bold").append(f"  {summary(lane.timeline)}", "not bold"))
        for line in _drawn(lane, width):
            console.print(line, no_wrap=True, overflow="crop")
        console.print()
    legend = Text()
    for kind, block in _BLOCKS.items():
        name = "outside of transactions" if kind == "plain" else kind
        legend.append(f"{block * 2} ", _STYLES[kind]).append(f"{name}   ")
    console.print(legend.append("▲ ", _STYLES["group"]).append("consumer group"))
    for note in notes(drawn):
        console.print(Text(note, "dim"))


def _drawn(lane: Lane, width: int) -> Iterator[Text]:
    canvas = _Canvas(width)
    if lane.emptiness:
        canvas.write(canvas.add(), 2, lane.emptiness, "dim")
        return canvas.lines()
    marks = [(mark.label, _STYLES[mark.name]) for mark in lane.marks]
    _labels(canvas, marks, "▼", is_above=True)
    _bars(canvas, lane)
    _columns(canvas, lane)
    _labels(canvas, [(label, _STYLES["group"]) for label in lane.groups], "▲", is_above=False)
    _axes(canvas, lane, width)
    return canvas.lines()


def _labels(
    canvas: _Canvas, labels: Sequence[tuple[Label, str]], pointer: str, *, is_above: bool
) -> None:
    """The labels, and on the side of the lane a line of pointers to their places."""
    if not labels:
        return
    levels = 1 + max(label.level for label, _ in labels)
    first = canvas.add(levels + 1)
    for label, style in labels:
        level, at = (levels - 1 - label.level, levels) if is_above else (label.level + 1, 0)
        canvas.write(first + level, int(label.left), label.text, style)
        canvas.write(first + at, canvas.column(label.x), pointer, style)


def _bars(canvas: _Canvas, lane: Lane) -> None:
    rows = canvas.add(lane.rows)
    for span, row in lane.bars:
        left, right = lane.extent(span)
        first = canvas.column(left)
        columns = max(int(right) - first, 1)
        block, style = _BLOCKS[span.outcome], _STYLES[span.outcome]
        end = "" if lane.marker(span) is None else "▌" if span.outcome == "committed" else block
        name = fitted(printable(span.transactional_id or ""), columns - 2, cell_len)
        text = name + block * (columns - cell_len(name) - len(end)) + end
        number = rows + lane.rows - 1 - row
        canvas.write(number, first, text, style)
        canvas.write(number, first, name, f"reverse {style}")


def _columns(canvas: _Canvas, lane: Lane) -> None:
    """Columns in the blocks of what became of their records; below bars a line of plain records."""
    it = lane.timeline
    high = _CHART if lane.is_aggregated else 1
    if not lane.is_aggregated and not any(part.plain for part in it.bins):
        return
    ground = canvas.add(high) + high - 1
    for part, counts in zip(it.bins, heights(it, high, 1), strict=True):
        parts = counts if lane.is_aggregated else {"plain": min(part.plain, 1)}
        stack = [kind for kind in KINDS for _ in range(round(parts.get(kind, 0)))]
        if not stack and lane.is_aggregated and parts:
            stack = [max(parts, key=lambda kind: counts[kind])]
        first = int(lane.axis.at(part.start))
        columns = max(int(lane.axis.at(part.end)) - first, 1)
        for up, kind in enumerate(stack[:high]):
            canvas.write(ground - up, first, _BLOCKS[kind] * columns, _STYLES[kind])


def _axes(canvas: _Canvas, lane: Lane, width: int) -> None:
    scale = list(lane.scale(max(width // 14, 1)))
    line = canvas.add()
    canvas.write(line, 0, "─" * width, "bright_black")
    rows = [
        [(x, f"{offset:,}") for x, offset, _, _ in scale],
        [(x, time) for x, _, time, _ in scale if time],
        [(x, day) for x, _, _, day in scale if day],
    ]
    if lane.axis.by == "time":
        rows = [*rows[1:], rows[0]]
    for x, *_ in scale:
        canvas.write(line, canvas.column(x), "┴", "bright_black")
    for row in rows:
        number = canvas.add()
        for label in placed(row, width, cell_len, 1):
            if not label.level:
                canvas.write(number, int(label.left), label.text, "bright_black")


_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #111827; margin: 1.5rem; }
svg { width: 100%; height: auto; max-width: 1500px; }
svg.sample { width: .7em; height: .7em; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem .2rem 0; text-align: left; border-bottom: 1px solid #E5E7EB; }
td.name { max-width: 40rem; overflow-wrap: anywhere; }
td.number, th.number { text-align: right; }
"""


def html(lanes: Sequence[PartitionTimeline]) -> str:
    """One self-contained page."""
    title = escape(f"Timeline of {printable(lanes[0].topic)}")
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>',
        f"<style>{_STYLE}</style>\n</head>\n<body>",
        svg.document(lanes),
        *_transactions(lanes),
        *_groups(lanes),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _transactions(lanes: Sequence[PartitionTimeline]) -> Iterator[str]:
    yield "<h2>Transactions</h2>"
    for lane in lanes:
        if lane.aggregated:
            yield (
                f"<p>Partition {lane.partition}: {escape(summary(lane))}; too many to "
                "list, so these are the long and the open ones. A smaller window (--from-offset, "
                "--before-offset, --since, --until) lists all.</p>"
            )
    yield from _table(
        ("Partition", "#First offset", "#Marker offset", "First appended", "Marker appended", "#Records",
         "Outcome", "Transactional id", "#Producer id"),
        (
            (
                _number(lane.partition),
                _number(span.first_offset),
                _number(span.marker_offset) if span.marker_offset >= 0 else _number(None),
                _text(format_time_ms(span.first_ms, "milliseconds")),
                _text(
                    format_time_ms(span.marker_ms, "milliseconds")
                    if span.marker_offset >= 0
                    else "–"
                ),
                _number(span.records),
                _outcome(span.outcome),
                _text("(unknown)" if span.transactional_id is None else span.transactional_id),
                _number(span.producer_id),
            )
            for lane in lanes
            for span in lane.transactions or lane.longest
        ),
    )  # fmt: skip


def _outcome(outcome: str) -> str:
    sample = f'<rect class="{outcome}" width="99" height="99"/>'
    return f'<td><svg class="timeline sample">{sample}</svg> {outcome}</td>'


def _groups(lanes: Sequence[PartitionTimeline]) -> Iterator[str]:
    if not any(lane.groups for lane in lanes):
        return
    yield "<h2>Consumer groups</h2>"
    yield from _table(
        ("Partition", "#Committed offset", "#Behind the log end", "Group"),
        (
            (
                _number(lane.partition),
                _number(group.offset),
                _number(max(lane.offsets.log_end_offset - group.offset, 0)),
                _text(group.group_id),
            )
            for lane in lanes
            for group in lane.groups
        ),
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Rows of cells; a column with # holds numbers."""
    yield (
        "<table>\n<tr>"
        + "".join(
            f'<th class="number">{name[1:]}</th>' if name[0] == "#" else f"<th>{name}</th>"
            for name in columns
        )
        + "</tr>"
    )
    for row in rows:
        yield f"<tr>{''.join(row)}</tr>"
    yield "</table>"


def _number(value: int | None) -> str:
    return f'<td class="number">{"–" if value is None else f"{value:,}"}</td>'


def _text(value: str) -> str:
    return f'<td class="name">{escape(printable(value))}</td>'
