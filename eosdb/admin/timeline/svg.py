"""The picture of a topic as SVG, the same for `eosdb timeline` and for `eosdb ui`.

A few transactions are bars. Many are columns in the colours of what became of their records, with the long
and the open ones as bars above, so that the picture has some hundred elements whatever there is to show.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from eosdb.admin.timeline.layout import KINDS, Lane, fitted, fullest, heights, lanes, notes, summary
from eosdb.admin.timeline.timeline import PartitionTimeline, TimelineBin, TransactionSpan
from eosdb.model.clock import format_time_ms
from eosdb.model.words import counted, printable, shortened

# Okabe and Ito's colours: distinct for colour-blind readers, and by lightness in print.
STYLE: Final = """\
.timeline text { font: 11px system-ui, "DejaVu Sans", sans-serif; fill: #4b5563; }
.timeline .title { font-size: 20px; font-weight: bold; fill: #111827; }
.timeline .partition { font-size: 13px; font-weight: bold; fill: #111827; }
.timeline .ground { fill: #f3f5f8; } .timeline .grid { stroke: #d8dce2; }
.timeline .committed { fill: #56b4e9; stroke: #0072b2; }
.timeline .aborted { fill: #d55e00; stroke: #7a3500; }
.timeline .open { fill: #f0e442; stroke: #222; stroke-dasharray: 4 2; } .timeline .plain { fill: #c3c8d0; }
.timeline .band { stroke: none; } .timeline .part { fill: transparent; }
.timeline .marker { stroke: #33373d; stroke-width: 1.5; fill: none; } .timeline .abort { stroke: #7a3500; }
.timeline .start { stroke: #6b7280; } .timeline .lso { stroke: #8e3b8e; stroke-dasharray: 5 3; }
.timeline .end { stroke: #111827; } .timeline .start, .timeline .lso, .timeline .end { stroke-width: 1.5; }
.timeline text.start { fill: #6b7280; } .timeline text.lso { fill: #8e3b8e; }
.timeline text.end { fill: #111827; }
.timeline text.start, .timeline text.lso, .timeline text.end { stroke: none; }
.timeline .group { fill: #007a5a; } .timeline line.group { stroke: #007a5a; stroke-width: .5; }
.timeline text.name { font-size: 10px; pointer-events: none; }
.timeline text.inside { fill: #14171c; stroke: none; } .timeline text.inside.aborted { fill: #fff; }
.timeline a:hover rect, .timeline a:focus rect { stroke: #111827; stroke-width: 1.5; }
"""

WIDTH: Final = 1_160
_LEFT, _RIGHT = 50, 22
_LENGTH: Final = WIDTH - _LEFT - _RIGHT
_LEVEL, _ROW, _LOW_ROW, _CHART, _STRIP = 14, 16, 12, 120, 8
_ROWS_MAX, _TICKS = 24, 10
_SEEN: Final = 3
"""The least height and width of what must be seen."""
_CLASSES: Final = {"log start": "start", "LSO": "lso", "log end": "end"}


@dataclass(frozen=True, slots=True)
class Links:
    """The addresses of a page: of a transaction, and of the same picture for [start, end) of the axis."""

    transaction: Callable[[TransactionSpan], str]
    part: Callable[[int, int], str]


def document(timelines: Sequence[PartitionTimeline]) -> str:
    """The picture as a file of its own, with a title and what must be known to read it. The same timelines
    give the same text."""
    drawn = _lanes(timelines)
    caption = [line for note in notes(drawn) for line in textwrap.wrap(note, 185)]
    parts = [f"<style>\n{STYLE}</style>"]
    title = f"Timeline of {shortened(printable(timelines[0].topic), 100)}"
    parts.append(_text(_LEFT, 32, title, "title"))
    parts += _legend(48)
    y = 66.0
    for lane in drawn:
        it = lane.timeline
        name = f"partition {it.partition}"
        parts.append(_text(_LEFT, y + 20, name, "partition"))
        parts.append(_text(_LEFT + _width(name) * 1.35 + 14, y + 20, summary(it)))
        body, height = _Painter(lane, y + 26, None).painted()
        parts += body
        y += 26 + height + 18
    parts += [_text(_LEFT, y + 10 + 15 * number, line) for number, line in enumerate(caption)]
    return _framed(parts, y + 15 * len(caption) + 14, title, 'xmlns="http://www.w3.org/2000/svg"')


def embedded(it: PartitionTimeline, links: Links) -> str:
    """The picture of one partition for a page that has a style sheet with `STYLE`, and a title."""
    (lane,) = _lanes([it])
    body, height = _Painter(lane, 24, links).painted()
    along = "time" if it.by == "time" else "the offsets"
    return _framed([*_legend(6), *body], height + 24, f"Transactions along {along}", "")


def caption(it: PartitionTimeline) -> str:
    """What must be known to read the picture of one partition."""
    return " ".join(notes(_lanes([it])))


def described(span: TransactionSpan) -> str:
    """A transaction in one line of text."""
    where = f"from offset {span.first_offset:,}, {_moment(span.first_ms)}"
    if span.marker_offset >= 0:
        where = (
            f"offsets {span.first_offset:,} to {span.marker_offset:,}, "
            f"{_moment(span.first_ms)} to {_moment(span.marker_ms)}"
        )
    name = span.transactional_id
    return (
        f"{'(unknown)' if name is None else printable(name)}: {span.outcome}, "
        f"{counted(span.records, 'record')}, {where}, producer id {span.producer_id}"
    )


def _lanes(timelines: Sequence[PartitionTimeline]) -> list[Lane]:
    return lanes(timelines, _LENGTH, _width, least=_SEEN, rows_max=_ROWS_MAX)


def _framed(parts: Sequence[str], height: float, label: str, attributes: str) -> str:
    size = f'width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}"'
    opening = f'<svg {attributes} class="timeline" {size} role="img" aria-label="{escape(label)}">'
    return "\n".join([opening, *parts, "</svg>"])


class _Painter:
    """Draws one lane from the top down: labels of the log's offsets, bars, columns or plain records,
    consumer groups, and the axes."""

    def __init__(self, lane: Lane, top: float, links: Links | None) -> None:
        self._lane = lane
        self._links = links
        self._row = _ROW if lane.rows <= 8 else _LOW_ROW
        levels = 1 + max(mark.label.level for mark in lane.marks)
        self._body = top + _LEVEL * levels + 5
        """Where the rows begin."""
        self._chart = self._body + self._row * max(lane.rows, 0 if lane.is_aggregated else 2) + 4
        """Where the columns begin, or the strip of plain records."""
        self._ground = self._chart + (_CHART if lane.is_aggregated else _STRIP)
        levels = 1 + max((label.level for label in lane.groups), default=-1)
        self._axes = self._ground + (10 + _LEVEL * levels if levels else 0) + 5
        self._bottom = self._axes + 3 * _LEVEL + 4
        self._top = top

    def painted(self) -> tuple[list[str], float]:
        """The elements, and the height they take."""
        parts = [*self._background(), *self._columns(), *self._bars(), *self._marks()]
        return [*parts, *self._groups()], self._bottom - self._top

    def _background(self) -> Iterator[str]:
        lane = self._lane
        log, axis = lane.timeline.offsets, lane.axis
        low, high = lane.timeline.axis
        if axis.by == "offset":
            low, high = log.log_start_offset, log.log_end_offset
        left, right = axis.at(low), axis.at(high)
        yield _rect(left, self._body, right - left, self._ground - self._body, "ground")
        by_time = axis.by == "time"
        first = self._axes + _LEVEL
        offset_y, time_y = (first + 2 * _LEVEL, first) if by_time else (first, first + _LEVEL)
        yield _text(4, offset_y, "offset")
        yield _text(4, time_y, "UTC")
        for x, offset, time, day in lane.scale(_TICKS):
            yield _line(x, self._body, x, self._axes + 3, "grid")
            for y, text in ((offset_y, f"{offset:,}"), (time_y, time), (time_y + _LEVEL, day)):
                if text:
                    left = max(0.0, min(x - _width(text) / 2, _LENGTH - _width(text)))
                    yield _text(_LEFT + left, y, text)
        if lane.emptiness:
            yield _text(
                WIDTH / 2, (self._body + self._ground) / 2 + 4, lane.emptiness, "", "middle"
            )

    def _columns(self) -> Iterator[str]:
        """A band for each outcome; below bars, one for plain records alone."""
        lane, it = self._lane, self._lane.timeline
        high = _CHART if lane.is_aggregated else _STRIP
        columns = heights(it, high, _SEEN if lane.is_aggregated else 0)
        if not lane.is_aggregated:
            columns = [{"plain": parts.get("plain", 0)} for parts in columns]
        below = [self._ground] * len(columns)
        for kind in KINDS:
            outline = ""
            for number, (part, parts) in enumerate(zip(it.bins, columns, strict=True)):
                if height := parts.get(kind, 0):
                    outline += self._column(part, below[number], height, kind in KINDS[:2])
                    below[number] -= height
            if outline:
                yield f'<path id="band-{it.partition}-{kind}" class="band {kind}" d="{outline}"/>'
        if lane.is_aggregated:
            most = "100 %" if it.by == "offset" else f"{fullest(it):,}"
            for y, text in ((self._chart + 9, most), (self._ground - 1, "0")):
                yield _text(_LEFT - 6, y, text, "", "end")
            if self._links is not None:
                for part in it.bins:
                    if part.stored:
                        yield self._part(part, self._links)

    def _column(self, part: TimelineBin, bottom: float, height: float, must_be_seen: bool) -> str:
        """The outline of one kind in one column."""
        left, right = self._lane.axis.at(part.start), self._lane.axis.at(part.end)
        width = max(right - left, _SEEN if must_be_seen else 0.5)
        return f"M{_LEFT + left:.2f} {bottom:.2f}v{-height:.2f}h{width:.2f}v{height:.2f}z"

    def _part(self, part: TimelineBin, links: Links) -> str:
        """The rectangle that leads into a part of the axis."""
        axis = self._lane.axis
        counts = (
            (part.aborted, "aborted"), (part.open, "open"), (part.committed, "committed"),
            (part.plain, "plain"), (part.commit_markers + part.abort_markers, "markers"),
        )  # fmt: skip
        where = f"offsets {part.start:,} to {part.end - 1:,}"
        if axis.by == "time":
            where = f"{_moment(part.start)}, from offset {part.first_offset:,}"
        title = f"{where}: " + ", ".join(f"{count:,} {name}" for count, name in counts if count)
        left, right = axis.at(part.start), axis.at(part.end)
        height = self._ground - self._chart
        rect = _rect(left, self._chart, max(right - left, 1), height, "part", title)
        return f'<a href="{escape(links.part(part.start, part.end))}">{rect}</a>'

    def _bars(self) -> Iterator[str]:
        for span, row in self._lane.bars:
            left, right = self._lane.extent(span)
            width = max(right - left, _SEEN)
            y = self._chart - 4 - self._row * (row + 1)
            partition = self._lane.timeline.partition
            name = f'id="transaction-{partition}-{span.producer_id}-{span.first_offset}"'
            bar = _rect(left, y + 1, width, self._row - 3, span.outcome, described(span))
            if self._links is None:
                yield f"<g {name}>{bar}</g>"
            else:
                yield f'<a {name} href="{escape(self._links.transaction(span))}">{bar}</a>'
            yield from self._name(span, row, left, width)
            x = self._lane.marker(span)
            if x is not None:
                yield from _marker(_LEFT + x, y, self._row - 1, span.outcome)

    def _name(self, span: TransactionSpan, row: int, left: float, width: float) -> Iterator[str]:
        """The transactional id: in the bar, before it if it has room only there, or else in short."""
        name = printable(span.transactional_id or "")
        y = self._chart - 4 - self._row * row - self._row / 2 + 3
        lane = self._lane
        before = [lane.extent(other)[1] for other, at in lane.bars if at == row]
        free = left - max((end for end in before if end <= left), default=0) - 16
        if width - 8 < _width(name) <= free:
            yield _text(_LEFT + left - 5, y, name, "name", "end")
        elif text := fitted(name, width - 8, _width):
            yield _text(_LEFT + left + 4, y, text, f"name inside {span.outcome}")

    def _marks(self) -> Iterator[str]:
        for mark in self._lane.marks:
            kind, label = _CLASSES[mark.name], mark.label
            y = self._body - 5 - _LEVEL * label.level
            if mark.is_inside:
                yield _line(label.x, y + 2, label.x, self._ground + 3, kind)
            yield _text(_LEFT + label.left, y - 2, label.text, kind)

    def _groups(self) -> Iterator[str]:
        for label in self._lane.groups:
            x, y = _LEFT + label.x, self._ground + 3
            below = y + 20 + _LEVEL * label.level
            if label.level:
                yield _line(label.x, y + 8, label.x, below - 10, "group")
            yield _triangle(x, y)
            yield _text(_LEFT + label.left, below, label.text, "group")


def _legend(y: float) -> list[str]:
    """A row of samples: the outcomes, the markers, the offsets of the log, the groups."""
    parts = []
    x = 0.0

    def name(text: str, room: float) -> None:
        nonlocal x
        parts.append(_text(_LEFT + x + room, y + 9, text))
        x += room + _width(text) + 18

    for outcome in ("committed", "aborted", "open", "plain"):
        parts.append(_rect(x, y, 16, 10, outcome))
        name("outside of transactions" if outcome == "plain" else outcome, 21)
    for outcome, text in (("committed", "COMMIT marker"), ("aborted", "ABORT marker")):
        parts += _marker(_LEFT + x + 5, y - 2, 13, outcome)
        name(text, 13)
    for text, kind in _CLASSES.items():
        parts.append(_line(x, y + 5, x + 16, y + 5, kind))
        name(text, 21)
    parts.append(_triangle(_LEFT + x + 6, y + 1))
    name("consumer group", 16)
    return parts


def _marker(x: float, y: float, height: float, outcome: str) -> Iterator[str]:
    """A stroke higher than the bar, crossed for ABORT."""
    kind = "marker" if outcome == "committed" else "marker abort"
    cross = f"M{x - 3:.2f} {y + height / 2 - 3:.2f}l6 6m0 -6l-6 6" if outcome == "aborted" else ""
    yield f'<path class="{kind}" d="M{x:.2f} {y:.2f}v{height:g}{cross}"/>'


def _triangle(x: float, y: float) -> str:
    return f'<path class="group" d="M{x:.2f} {y:.2f}l4 8h-8z"/>'


def _rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    """A rectangle at `x` of the axis."""
    inner = f"><title>{escape(title)}</title></rect>" if title else "/>"
    place = f'x="{_LEFT + x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    return f'<rect class="{kind}" {place}{inner}'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A line between places of the axis."""
    ends = f'x1="{_LEFT + x1:.2f}" y1="{y1:.2f}" x2="{_LEFT + x2:.2f}" y2="{y2:.2f}"'
    return f'<line class="{kind}" {ends}/>'


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    attributes = (f' class="{kind}"' if kind else "") + (
        f' text-anchor="{anchor}"' if anchor != "start" else ""
    )
    return f'<text x="{x:.2f}" y="{y:.2f}"{attributes}>{escape(text)}</text>'


def _width(text: str) -> float:
    """About how wide a text is; a viewer shows it in a font of its own."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return 6.4 * sum(not unicodedata.combining(c) for c in text) + 4.6 * wide


def _moment(time_ms: int) -> str:
    return format_time_ms(time_ms, "milliseconds")
