"""Draws a table of lanes as SVG: a column for each step, and in each lane what the step did there.

The colours are those of the timeline (`eosdb/admin/timeline/svg.py`). A page that is dark gets light words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_STYLE: Final = """\
text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #1f2937; }
text.quiet { fill: #5b6472; } text.name { font-weight: 600; }
text.step, text.cell { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 12px; }
.lane { stroke: #d3d8df; } .frame { fill: none; stroke: #0072b2; stroke-dasharray: 4 3; }
.committed { fill: #56b4e9; stroke: #0072b2; } .aborted { fill: #d55e00; stroke: #7a3500; }
.open { fill: #f0e442; stroke: #222; stroke-dasharray: 4 2; } .plain { fill: #c3c8d0; stroke: #8b929e; }
.blank { fill: none; stroke: #8b929e; stroke-dasharray: 2 3; }
text.cell { fill: #14171c; } text.in-aborted { fill: #fff; } text.in-blank { fill: #5b6472; }
.mark { stroke: #8e3b8e; stroke-width: 2; stroke-dasharray: 5 3; }
text.mark { fill: #8e3b8e; stroke: none; }
@media (prefers-color-scheme: dark) {
text { fill: #e5e7eb; } text.quiet, text.in-blank { fill: #a7b0bd; } .lane { stroke: #434b58; }
.frame { stroke: #56b4e9; } text.mark { fill: #d79bd7; } .mark { stroke: #d79bd7; }
text.cell { fill: #14171c; } text.in-aborted { fill: #fff; } text.in-blank { fill: #a7b0bd; }
}
"""
_LANE, _CELL, _GAP, _PAD = 36, 24, 4, 12


@dataclass(frozen=True, slots=True)
class Cell:
    """What a step did in a lane: `committed`, `aborted`, `open`, `plain` or `blank` (nothing is left)."""

    text: str
    kind: str = "plain"

    @property
    def width(self) -> float:
        return _width(self.text, 7.3) + 12


@dataclass(frozen=True, slots=True)
class Lane:
    """A name, and the cells of each column."""

    name: str
    cells: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class Picture:
    """`mark` is a line before a column, with its name; `framed` are columns in which the lanes from
    `frame_from` on are framed as `frame_name` says. `legend` explains kinds of cells."""

    label: str
    steps: Sequence[str]
    lanes: Sequence[Lane]
    legend: Sequence[tuple[str, str]]
    mark: tuple[int, str] | None = None
    framed: Sequence[int] = ()
    frame_from: int = 0
    frame_name: str = ""

    def drawn(self) -> str:
        """The file. The same picture gives the same text."""
        left = max(_width(lane.name, 7.6) for lane in self.lanes) + 20
        edges = [left]
        for column, step in enumerate(self.steps):
            cells = [_row(lane.cells[column]) for lane in self.lanes]
            edges.append(edges[-1] + max(_width(step, 7.3), *cells) + 2 * _PAD)
        top = 46 if self.mark else 28
        bottom = top + _LANE * len(self.lanes)
        height = bottom + (24 if self.framed else 8) + 24
        legend = list(self._legend(height - 8))
        width = max(edges[-1] + 8, legend[-1][0])
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
                f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(self.label)}">',
                f"<style>\n{_STYLE}</style>",
                *self._around(edges, top, bottom),
                *self._table(edges, top),
                *(part for _, part in legend),
                "</svg>\n",
            ]
        )

    def _around(self, edges: Sequence[float], top: float, bottom: float) -> Iterator[str]:
        for column in self.framed:
            y, x = top + _LANE * self.frame_from, edges[column] + 3
            size = f'width="{edges[column + 1] - x - 3:.1f}" height="{bottom - y:g}"'
            yield f'<rect class="frame" x="{x:.1f}" y="{y:g}" {size} rx="6"/>'
            middle = (edges[column] + edges[column + 1]) / 2
            yield _text(middle, bottom + 15, self.frame_name, "quiet", "middle")
        if self.mark:
            column, name = self.mark
            x = edges[column]
            yield f'<line class="mark" x1="{x:.1f}" y1="18" x2="{x:.1f}" y2="{bottom:g}"/>'
            yield _text(x, 13, name, "mark", "middle")

    def _table(self, edges: Sequence[float], top: float) -> Iterator[str]:
        for column, step in enumerate(self.steps):
            middle = (edges[column] + edges[column + 1]) / 2
            yield _text(middle, top - 8, step, "step", "middle")
            for number, lane in enumerate(self.lanes):
                half = _row(lane.cells[column]) / 2
                x = middle - half
                line = top + _LANE * number + _LANE / 2
                yield _line(edges[column], x, line)
                yield _line(middle + half, edges[column + 1], line)
                for cell in lane.cells[column]:
                    yield from _cell(x, top + _LANE * number + (_LANE - _CELL) / 2, cell)
                    x += cell.width + _GAP
        for number, lane in enumerate(self.lanes):
            yield _text(4, top + _LANE * number + _LANE / 2 + 4, lane.name, "name")

    def _legend(self, y: float) -> Iterator[tuple[float, str]]:
        """Each sample with its right end."""
        x = 4.0
        for kind, text in self.legend:
            sample = (
                f'<rect class="{kind}" x="{x:.1f}" y="{y - 10:g}" width="16" height="12" rx="2"/>'
            )
            end = x + 22 + _width(text, 7) + 16
            yield end, sample + _text(x + 22, y, text, "quiet")
            x = end


def _cell(x: float, y: float, cell: Cell) -> Iterator[str]:
    size = f'width="{cell.width:.1f}" height="{_CELL}"'
    yield f'<rect class="{cell.kind}" x="{x:.1f}" y="{y:g}" {size} rx="4"/>'
    yield _text(x + cell.width / 2, y + 16, cell.text, f"cell in-{cell.kind}", "middle")


def _line(left: float, right: float, y: float) -> str:
    return f'<line class="lane" x1="{left:.1f}" y1="{y:g}" x2="{right:.1f}" y2="{y:g}"/>'


def _row(cells: Sequence[Cell]) -> float:
    return sum(cell.width + _GAP for cell in cells) - _GAP if cells else 0.0


def _width(text: str, letter: float) -> float:
    return letter * len(text)


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(text)}</text>'
