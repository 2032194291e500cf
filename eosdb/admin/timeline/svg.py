"""The picture of a topic as SVG, the same for `eosdb timeline` and for `eosdb ui`.

To a screen reader each lane is a table with a row for each transaction, or part of the axis.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from eosdb.admin.timeline.layout import Box, Medium, Picture, Shape, draw
from eosdb.admin.timeline.timeline import PartitionTimeline, TransactionSpan
from eosdb.model.words import printable, shortened

# Okabe and Ito's colours: distinct for colour-blind readers, and by lightness in print.
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
.timeline text.group { fill: #007a5a; } .timeline text.name { font-size: 10px; pointer-events: none; }
.timeline text.inside { fill: #14171c; stroke: none; } .timeline text.inside.aborted { fill: #fff; }
.timeline a:hover rect, .timeline a:focus rect { stroke: #111827; stroke-width: 1.5; }
"""

WIDTH: Final = 1_160
_X, _Y, _MARGIN = 6.4, 17, 12
_MEDIUM: Final = Medium((WIDTH - 2 * _MARGIN) / _X, 3 / _X, 3 / _Y, 24)


@dataclass(frozen=True, slots=True)
class Links:
    """The addresses of a page: of a transaction, and of the same picture for [start, end) of the axis."""

    transaction: Callable[[TransactionSpan], str]
    part: Callable[[int, int], str]


class Timelines(tuple[PartitionTimeline, ...]):
    """The partitions of a topic; a notebook draws them."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return document(self)


def document(timelines: Sequence[PartitionTimeline], marks: Sequence[tuple[int, str]] = ()) -> str:
    """The picture as a file of its own, with a title and what must be known to read it. `marks` are times
    (epoch ms) with names."""
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


def embedded(it: PartitionTimeline, links: Links) -> str:
    """The picture of one partition for a page that has a style sheet with `STYLE`, and a title."""
    picture = draw([it], _MEDIUM)
    along = "time" if it.by == "time" else "the offsets"
    label = f"Transactions along {along}"
    return _framed([*_painted(picture, links)], -6, picture.lines * _Y + 6, label, "")


def caption(it: PartitionTimeline) -> str:
    """What must be known to read the picture of one partition."""
    return " ".join(draw([it], _MEDIUM).notes)


def _framed(parts: Sequence[str], top: float, height: float, label: str, attributes: str) -> str:
    size = f'width="{WIDTH}" height="{height:g}" viewBox="0 {top} {WIDTH} {height:g}"'
    opening = f'<svg {attributes}class="timeline" {size} role="group" aria-label="{escape(label)}">'
    return "\n".join([opening, f"<title>{escape(label)}</title>", *parts, "</svg>"])


def _painted(picture: Picture, links: Links | None) -> Iterator[str]:
    for name, shapes in picture.lanes:
        yield f'<g role="table" aria-label="{escape(name)}">'
        behind = [s for s in shapes if s.kind in ("ground", "grid")]
        yield from _elements(behind, links)
        yield from _elements([s for s in shapes if s not in behind], links)
        yield "</g>"
    yield from _elements(picture.shapes, links)


def _elements(shapes: Sequence[Shape], links: Links | None) -> Iterator[str]:
    bands: dict[str, tuple[str, str]] = {}
    for shape in shapes:
        if isinstance(shape, Box) and shape.key.startswith("band-"):
            kind, outline = bands.get(shape.key, (shape.kind, ""))
            x, y, width, height = _place(shape)
            outline += f"M{x:.2f} {y + height:.2f}v{-height:.2f}h{width:.2f}v{height:.2f}z"
            bands[shape.key] = kind, outline
    for key, (kind, outline) in bands.items():
        yield f'<path id="{key}" class="band {kind}" d="{outline}"/>'
    for shape in shapes:
        if not isinstance(shape, Box):
            if shape.text != "┴":
                left, top = _MARGIN + shape.left * _X, (shape.top + 0.7) * _Y
                yield _text(left, top, shape.text, shape.kind)
        elif (shape.kind != "part" or links is not None) and not shape.key.startswith("band-"):
            yield from _box(shape, links)


def _box(box: Box, links: Links | None) -> Iterator[str]:
    x, y, width, height = _place(box)
    if not box.width or not box.height:
        yield f'<path class="{box.kind}" d="M{x:.2f} {y:.2f}l{width:.2f} {height:.2f}"/>'
        return
    if box.kind not in ("ground", "part"):
        y, height = y + 1.5, height - 3
    place = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    title = f"<title>{escape(box.title)}</title>" if box.title else ""
    rect = f'<rect class="{box.kind}" {place}>{title}</rect>'
    if box.title:
        if links is not None and box.goes_to is not None:
            to = box.goes_to
            href = links.part(*to) if isinstance(to, tuple) else links.transaction(to)
            rect = f'<a href="{escape(href)}">{rect}</a>'
        name = f' id="{box.key}"' if box.key else ""
        rect = f'<g role="row"{name}><g role="cell">{rect}</g></g>'
    yield rect
    if box.is_closed and box.text:  # A narrow bar would be nothing but its marker.
        yield f'<path class="marker" d="M{x + width:.2f} {y - 1:.2f}v{height + 2:g}"/>'
    if box.text:
        yield _text(x + 4, y + height / 2 + 3.5, box.text, f"name inside {box.kind}")


def _place(box: Box) -> tuple[float, float, float, float]:
    return _MARGIN + box.left * _X, box.top * _Y, box.width * _X, box.height * _Y


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.2f}" y="{y:.2f}"{named}>{escape(text)}</text>'
