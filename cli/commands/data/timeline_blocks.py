"""The picture of a topic for a terminal, in blocks and colours. Each outcome has a character of its own, so
that colours are not needed to read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from eosdb.model.timeline.labels import Label, fitted, placed
from eosdb.model.timeline.lanes import Lane, lanes, notes, summary
from eosdb.model.timeline.scale import KINDS, heights
from eosdb.model.timeline.timeline import PartitionTimeline
from eosdb.model.words import printable

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
