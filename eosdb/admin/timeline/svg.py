"""The picture of a topic as SVG, the same for `eosdb timeline` and for `eosdb ui`.

For a screen reader each lane is a table with a row for each transaction, or for each part of the axis.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby
from operator import attrgetter
from typing import Final

from eosdb.admin.timeline.layout import Medium, Picture, Shape, Target, cells, draw
from eosdb.admin.timeline.reading import PartitionTimeline
from eosdb.model.words import printable, shortened

# Okabe and Ito's colours, which differ for colour-blind readers and in a print without colours.
STYLE: Final = """\
.timeline text { font: 11px system-ui, "DejaVu Sans", sans-serif; fill: #4b5563; }
.timeline .title { font-size: 20px; font-weight: bold; fill: #111827; }
.timeline .partition { font-size: 12px; font-weight: bold; fill: #111827; }
.timeline .paper { fill: #fff; } .timeline .ground { fill: #f3f5f8; }
.timeline .grid { stroke: #d8dce2; } .timeline .axis { stroke: #6b7280; }
.timeline .committed { fill: #56b4e9; stroke: #0072b2; }
.timeline .aborted { fill: #d55e00; stroke: #7a3500; }
.timeline .open { fill: #f0e442; stroke: #222; stroke-dasharray: 4 2; } .timeline .plain { fill: #c3c8d0; }
.timeline .band { stroke: none; } .timeline .part { fill: transparent; }
.timeline .marker { stroke: #33373d; stroke-width: 2; }
.timeline .lso { stroke: #8e3b8e; stroke-dasharray: 5 3; } .timeline .end { stroke: #111827; }
.timeline .mark { stroke: #c0143c; stroke-width: 1.5; }
.timeline text.mark { stroke: none; fill: #c0143c; font-weight: bold; }
.timeline text.group { fill: #007a5a; }
.timeline text.name { font-size: 10px; text-anchor: end; pointer-events: none; }
.timeline text.inside { fill: #14171c; stroke: none; text-anchor: start; }
.timeline a:hover rect, .timeline a:focus rect { stroke: #111827; stroke-width: 1.5; }
"""

WIDTH: Final = 1_160
_X, _Y, _MARGIN = 6.4, 17, 12
_MEDIUM: Final = Medium((WIDTH - 2 * _MARGIN) / _X, 3 / _X, 3 / _Y, 24)
Link = Callable[[Target], str]
"""Returns the address of a page: a transaction's, or the same picture for a part of the axis."""


class Timelines(tuple[PartitionTimeline, ...]):
    """The partitions of a topic; a notebook draws them, as wide as the cell."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return re.sub(' width="[^"]*" height="[^"]*"', "", document(self), count=1)


def document(timelines: Sequence[PartitionTimeline], marks: Sequence[tuple[int, str]] = ()) -> str:
    """The picture as a complete file, with a title and notes for the reader. `marks` are times (epoch ms)
    with names."""
    picture = draw(timelines, _MEDIUM, marks)
    title = f"Timeline of {shortened(printable(timelines[0].topic), 100)}"
    notes = [line for note in picture.notes for line in textwrap.wrap(note, 175)]
    below = (picture.lines + 1) * _Y
    height = below + 15 * len(notes) + 40
    parts = [
        f'<style>\n{STYLE}</style>\n<rect class="paper" y="-40" width="{WIDTH}" height="{height:g}"/>',
        _text(_MARGIN, -14, title, "title"),
        *_painted(picture, None),
        *(_text(_MARGIN, below + 15 * number, line) for number, line in enumerate(notes)),
    ]
    return _framed(parts, -40, height, title, 'xmlns="http://www.w3.org/2000/svg" ')


def embedded(it: PartitionTimeline, link: Link) -> tuple[str, str]:
    """The picture of one partition for a page that has a title and `STYLE`, and the picture's notes."""
    picture = draw([it], _MEDIUM)
    parts = [*_painted(picture, link)]
    svg = _framed(parts, -6, picture.lines * _Y + 6, f"Transactions by {it.by}", "")
    return svg, " ".join(picture.notes)


def _framed(parts: Sequence[str], top: float, height: float, label: str, attributes: str) -> str:
    size = f'width="{WIDTH}" height="{height:g}" viewBox="0 {top} {WIDTH} {height:g}"'
    opening = f'<svg {attributes}class="timeline" {size} role="group" aria-label="{escape(label)}">'
    return "\n".join([opening, f"<title>{escape(label)}</title>", *parts, "</svg>"])


def _painted(picture: Picture, link: Link | None) -> Iterator[str]:
    for name, shapes in picture.lanes:
        yield f'<g role="table" aria-label="{escape(name)}">'
        for key, group in groupby(shapes, attrgetter("key")):
            if key.startswith("band-"):
                yield _band(list(group))
            else:
                yield from (text for shape in group for text in _element(shape, link))
        yield "</g>"
    for shape in picture.shapes:
        yield from _element(shape, link)


def _band(columns: Sequence[Shape]) -> str:
    """Draw the columns of one kind as one path."""
    outline = ""
    for x, y, width, height in map(_place, columns):
        outline += f"M{x:.2f} {y + height:.2f}v{-height:.2f}h{width:.2f}v{height:.2f}z"
    return f'<path id="{columns[0].key}" class="band {columns[0].kind}" d="{outline}"/>'


def _element(shape: Shape, link: Link | None) -> Iterator[str]:
    x, y, width, height = _place(shape)
    if shape.is_text:
        if shape.kind == "name":  # Fonts differ in width, so names are aligned on the right.
            x += cells(shape.text) * _X
        if shape.text != "┴":
            yield _text(x, y + 0.7 * _Y, shape.text, shape.kind)
        return
    if not width or not height:
        yield f'<path class="{shape.kind}" d="M{x:.2f} {y:.2f}l{width:.2f} {height:.2f}"/>'
        return
    if shape.kind == "part" and link is None:
        return
    if shape.kind not in ("ground", "part"):
        y, height = y + 1.5, height - 3
    place = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    title = f"<title>{escape(shape.title)}</title>" if shape.title else ""
    rect = f'<rect class="{shape.kind}" {place}>{title}</rect>'
    if shape.goes_to is not None:
        if link is not None:
            rect = f'<a href="{escape(link(shape.goes_to))}">{rect}</a>'
        name = f' id="{shape.key}"' if shape.key else ""
        rect = f'<g role="row"{name}><g role="cell">{rect}</g></g>'
    yield rect
    if shape.is_closed and shape.text:  # A bar without text is too narrow for a marker.
        yield f'<path class="marker" d="M{x + width:.2f} {y - 1:.2f}v{height + 2:g}"/>'
    if shape.text:
        yield _text(x + 4, y + height / 2 + 3.5, shape.text, f"name inside {shape.kind}")


def _place(shape: Shape) -> tuple[float, float, float, float]:
    return _MARGIN + shape.left * _X, shape.top * _Y, shape.width * _X, shape.height * _Y


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:.2f}" y="{y:.2f}">{escape(text)}</text>'
