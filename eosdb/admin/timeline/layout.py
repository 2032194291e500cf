"""The layout of a topic's picture: the places of boxes, lines and words, in characters and lines. Pure.

All partitions share one axis, one legend and the marks; each has a lane. A terminal rounds the places, the
SVG scales them.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import Final

from eosdb.admin.timeline.reading import PartitionTimeline, TimelineBin, TransactionSpan
from eosdb.model.clock import format_time_ms
from eosdb.model.words import counted, printable, shortened

KINDS: Final = ("aborted", "open", "committed", "plain")
"""The kinds of records in a column, from the bottom up. Rare kinds come first, where heights compare
best."""
_LEGEND: Final = {
    "committed": "committed", "aborted": "aborted", "open": "open",
    "plain": "outside of transactions", "group": "consumer group",
}  # fmt: skip
_LONG: Final = 100
"""A transaction is drawn on its own if it takes at least this part of the axis."""
_CHART: Final = 5
_TICK: Final = 16
_NAMES_MAX, _NAME_LENGTH = 3, 28
_moment: Final = partial(format_time_ms, timespec="milliseconds")
_OFFSETS: Final = tuple(base * 10**power for power in range(18) for base in (1, 2, 5))
_S: Final = 1_000
_TIMES: Final = (
    *_OFFSETS[:9],
    *(base * unit for unit in (_S, 60 * _S) for base in (1, 2, 5, 10, 15, 30)),
    *(hours * 3_600 * _S for hours in (1, 2, 3, 6, 12, *(24 * days for days in _OFFSETS[:24]))),
)


@dataclass(frozen=True, slots=True)
class Medium:
    """A medium: its width in characters, the least visible width and height, and the most rows of bars."""

    columns: float
    least_width: float
    least_height: float
    bars: int


Target = TransactionSpan | tuple[int, int]
"""The meaning of a box: a transaction, or a part [start, end) of the axis."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A box; without a width or a height a line, without both a text."""

    kind: str
    left: float
    top: float
    width: float = 0
    height: float = 0
    text: str = ""
    title: str = ""
    key: str = ""
    is_closed: bool = False
    goes_to: Target | None = None

    @property
    def is_text(self) -> bool:
        return not self.width and not self.height


@dataclass(frozen=True, slots=True)
class Picture:
    """The shapes that all lanes share, the name and shapes of each lane, and notes for the reader."""

    lines: float
    shapes: list[Shape]
    lanes: list[tuple[str, list[Shape]]]
    notes: list[str]


def cells(text: str) -> int:
    """The width of a text in characters."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def rows(intervals: Iterable[tuple[float, float]]) -> list[int]:
    """Return for each interval the lowest row in which it does not overlap an earlier interval."""
    ends: list[float] = []
    chosen = []
    for first, end in intervals:
        row = next((i for i, before in enumerate(ends) if before <= first), len(ends))
        ends[row : row + 1] = [end]
        chosen.append(row)
    return chosen


def _placed(texts: Iterable[tuple[float, str]], length: float) -> list[tuple[str, float, int]]:
    """Centre each text at its place, but within [0, length]. Texts, in order, that would touch get
    different levels. Returns each text with its left edge and its level."""
    lefts = [(text, max(0.0, min(x - cells(text) / 2, length - cells(text)))) for x, text in texts]
    levels = rows((left, left + cells(text) + 2) for text, left in lefts)
    return [(*label, level) for label, level in zip(lefts, levels, strict=True)]


@dataclass(frozen=True, slots=True)
class _Axis:
    """The offsets, or times, that all lanes share, and the length on which they are drawn."""

    by: str
    low: int
    high: int
    length: float

    def at(self, place: float) -> float:
        """The distance of a place from the left edge; places outside of the axis are moved to its ends."""
        inside = min(max(place, self.low), self.high)
        return (inside - self.low) * self.length / (self.high - self.low)

    def ticks(self) -> list[tuple[float, int]]:
        """Round offsets, or times (round in UTC), as many as have room, each with its distance from the
        left edge."""
        steps = _OFFSETS if self.by == "offset" else _TIMES
        width = max(self.high - self.low, 1) / max(int(self.length / _TICK), 1)
        step = steps[min(bisect_left(steps, width), len(steps) - 1)]
        places = range(-(-self.low // step) * step, self.high + 1, step)
        return [(self.at(place), place) for place in places]

    def drawn(self, y: float) -> Iterator[Shape]:
        """Draw the line and its ticks (UTC). Where a day begins, its date is shown."""
        yield Shape("axis", 0, y, self.length)
        ticks = self.ticks()
        spec = "milliseconds" if len(ticks) > 1 and ticks[1][1] - ticks[0][1] < _S else "seconds"
        before, texts = "", []
        for x, place in ticks:
            text = f"{place:,}"
            if self.by == "time":
                day, _, text = format_time_ms(place, spec).rstrip("Z").partition("T")
                text, before = text if day == before else f"{day} {text}", day
            texts.append((x, text))
        for text, left, level in _placed(texts, self.length):
            if not level:
                yield Shape("tick", left, y + 1, text=text)
        yield from (Shape("axis", x, y, text="┴") for x, _ in ticks if x < self.length)


def _groups(it: PartitionTimeline, axis: _Axis, y: float) -> Iterator[Shape]:
    """The positions of consumer groups. Groups in the same column have one label."""
    columns = groupby(it.groups, lambda group: int(axis.at(it.place(group.offset))))
    groups = [list(same) for _, same in columns]
    places = [axis.at(it.place(same[0].offset)) for same in groups]
    labels = _placed(zip(places, map(_label, groups), strict=True), axis.length)
    for x, (text, left, level) in zip(places, labels, strict=True):
        yield Shape("group", min(x, axis.length - 1), y, text="▲")
        yield Shape("group", left, y + 1 + level, text=text)


def _label(groups: Sequence[tuple[str, int]]) -> str:
    """The names and offsets of the groups in one column, in the order of their offsets."""
    (_, low), (_, high) = groups[0], groups[-1]
    at = f"{low:,}" if low == high else f"{low:,}–{high:,}"
    names = [shortened(printable(group_id), _NAME_LENGTH) for group_id, _ in groups[:_NAMES_MAX]]
    more = f" and {len(groups) - _NAMES_MAX:,} more" if len(groups) > _NAMES_MAX else ""
    return f"{', '.join(names)}{more} @ {at}"


def _counts(it: PartitionTimeline | TimelineBin, *names: str) -> str:
    return ", ".join(f"{count:,} {name}" for name in names if (count := getattr(it, name)))


def _described(span: TransactionSpan) -> str:
    """Describe a transaction in one line of text."""
    where = f"from offset {span.first_offset:,}, {_moment(span.first_ms)}"
    if span.marker_offset >= 0:
        where += f", to offset {span.marker_offset:,}, {_moment(span.marker_ms)}"
    name = "(unknown)" if span.transactional_id is None else printable(span.transactional_id)
    records = counted(span.records, "record")
    return f"{name}: {span.outcome}, {records}, {where}, producer id {span.producer_id}"


def _part(part: TimelineBin, by: str) -> str:
    """Describe a part of the axis in one line of text."""
    where = _moment(part.start) if by == "time" else f"offsets {part.start:,} to {part.end - 1:,}"
    return f"{where}: {_counts(part, *KINDS, 'markers')}"


def _summary(it: PartitionTimeline) -> str:
    """Describe the partition in one line of text."""
    text = counted(it.total, "transaction")
    if it.total:
        text += f": {_counts(it, 'committed', 'aborted', 'open')}"
    if plain := sum(part.plain for part in it.bins):
        text += f" · {counted(plain, 'plain record')}"
    log = it.offsets
    ends = f"log {log.log_start_offset:,} to {log.log_end_offset:,}"
    return f"{text} · {ends}, LSO {log.last_stable_offset:,}"


def draw(
    timelines: Sequence[PartitionTimeline], medium: Medium, marks: Sequence[tuple[int, str]] = ()
) -> Picture:
    """Lay out all partitions. `marks` are times (epoch ms), each with a name. If the axis is time, each
    mark is a line through all lanes."""
    ends = [end for it in timelines if it.start < it.end for end in it.axis] or timelines[0].axis
    axis = _Axis(timelines[0].by, min(ends), max(*ends, min(ends) + 1), medium.columns)
    shown = [(axis.at(time), text) for time, text in sorted(marks) if axis.by == "time"]
    labels = _placed(shown, medium.columns)
    top = y = 3 + max((level for *_, level in labels), default=-1.0)
    lanes = []
    for it in timelines:
        lanes.append(_Lane(it, axis, medium, y))
        y = lanes[-1].bottom
    shapes = [
        *_legend(),
        *(Shape("mark", left, 2 + level, text=text) for text, left, level in labels),
        *(Shape("mark", x, top, height=y - top - 1) for x, _ in shown),
        *axis.drawn(y - 1),
    ]
    end = "now, or the window's end" if axis.by == "time" else "the log end"
    notes = [
        "A bar is a transaction, from its first stored record to its marker; an open one extends to "
        f"{end}. Transactions that overlap lie in rows."
    ]
    if many := [str(lane.it.partition) for lane in lanes if lane.is_aggregated]:
        notes.append(
            f"Too many transactions to be drawn one by one: partition {', '.join(many)}. Columns count "
            "records by outcome; only open and long transactions have bars."
        )
    if axis.by == "time":
        notes.append("Times (UTC) are those at which records were appended.")
    return Picture(y + 1, shapes, [(": ".join(lane.name), lane.shapes) for lane in lanes], notes)


def _legend() -> Iterator[Shape]:
    x = 0.0
    for kind, name in _LEGEND.items():
        yield Shape(kind, x, 0, text="▲") if kind == "group" else Shape(kind, x, 0, 2, 1)
        yield Shape("", x + 3, 0, text=name)
        x += cells(name) + 6


class _Lane:
    """One partition from the top down: a heading, bars, columns or plain records, consumer groups."""

    def __init__(self, it: PartitionTimeline, axis: _Axis, medium: Medium, top: float) -> None:
        self.it, self.axis, self.medium = it, axis, medium
        self.clearance = max(1, round((axis.high - axis.low) / axis.length * medium.least_width))
        spans: Sequence[TransactionSpan] = it.transactions
        self.is_aggregated = it.aggregated or max(self._rows(spans), default=0) >= medium.bars
        if self.is_aggregated:
            spans = self._standing_out()
        self.bars = list(zip(spans, self._rows(spans), strict=True))
        self.body = top + 1
        self.chart = self.body + max((row for _, row in self.bars), default=-1) + 1
        has_plain = any(part.plain for part in it.bins)
        self.ground = self.chart + (_CHART if self.is_aggregated else has_plain)
        name, summary = self.name = f"partition {it.partition}", _summary(it)
        self.shapes = [Shape("partition", 0, top, text=name), Shape("", 16, top, text=summary)]
        if it.start == it.end:
            is_empty = it.offsets.log_start_offset == it.offsets.log_end_offset
            text = "no records" if is_empty else "no records in this window"
            self.shapes.append(Shape("", 2, self.body, text=text))
            self.ground = self.body + 1
        else:
            self.shapes += [*self._body(), *self._bars()]
        groups = list(_groups(it, axis, self.ground))
        self.shapes += groups
        self.bottom = max([self.ground - 1, *(shape.top for shape in groups)]) + 2

    def _rows(self, spans: Sequence[TransactionSpan]) -> list[int]:
        """The row of each transaction: no two overlap, and narrow transactions have room to be seen."""
        extents = map(self.it.extent, spans)
        return rows((first, max(last + 1, first + self.clearance)) for first, last in extents)

    def _standing_out(self) -> list[TransactionSpan]:
        """Choose the transactions to draw one by one if there are too many: open and long ones, as many as
        fit into a third of the rows."""
        it = self.it
        least = (it.axis[1] - it.axis[0]) / _LONG
        kept = [s for s in it.transactions if s.outcome == "open" or it.length(s) >= least]
        while max(self._rows(kept), default=0) >= self.medium.bars // 3:
            kept.remove(min(kept, key=lambda span: (span.outcome == "open", it.length(span))))
        return kept

    def _body(self) -> Iterator[Shape]:
        """Draw the background, and on it a column for each kind of record; with bars, only a line of plain
        records.

        On an axis of offsets, the height is the part's share of offsets. On an axis of time, it is
        proportional to the number of records, and the fullest part has the full height. Markers count, too.
        """
        it, log, least, high = self.it, self.it.offsets, self.medium, self.ground - self.chart
        left, right = map(self.axis.at, it.axis)
        yield Shape("ground", left, self.body, right - left, self.ground - self.body)
        for x, _ in self.axis.ticks():
            yield Shape("grid", x, self.body, 0, self.ground - self.body)
        most = max((part.stored for part in it.bins), default=0)
        bands: dict[str, list[Shape]] = {kind: [] for kind in (*reversed(KINDS), "part")}
        for part in it.bins:
            counts, full = {"plain": part.plain}, 1
            if self.is_aggregated:
                counts["aborted"] = part.aborted + part.abort_markers
                counts["open"] = part.open
                counts["committed"] = part.committed + part.commit_markers
                full = max(part.end - part.start if it.by == "offset" else most, 1)
            left, right, height = self.axis.at(part.start), self.axis.at(part.end), 0.0
            width = max(right - left, least.least_width)
            for kind in KINDS:
                if count := counts.get(kind):
                    # Columns of rarer kinds cover this one from the bottom, so its height includes theirs.
                    height = min(height + max(count * high / full, least.least_height), high)
                    key = f"band-{it.partition}-{kind}"
                    bands[kind].append(
                        Shape(kind, left, self.ground - height, width, height, key=key)
                    )
            if self.is_aggregated and part.stored:
                title, goes_to = _part(part, it.by), (part.start, part.end)
                box = Shape("part", left, self.chart, width, high, title=title, goes_to=goes_to)
                bands["part"].append(box)
        yield from chain.from_iterable(bands.values())
        for kind, offset in (("lso", log.last_stable_offset), ("end", log.log_end_offset)):
            if it.start <= offset <= it.end:
                place = self.axis.at(it.place(offset))
                yield Shape(kind, place, self.body, 0, self.ground - self.body)

    def _bars(self) -> Iterator[Shape]:
        """Draw bars with their names: inside, or to the left of a narrow bar if there is room. Of
        successive narrow bars with one name, only the first gets it."""
        it, before = self.it, ""
        ended, named = defaultdict[int, float](float), dict[int, str]()
        for span, row in self.bars:
            first, last = it.extent(span)
            is_closed = span.marker_offset >= 0
            left, top = self.axis.at(first), self.chart - 1 - row
            right = self.axis.at(last + (is_closed and it.by == "offset"))
            width = max(right - left, self.medium.least_width)
            name = printable(span.transactional_id or "")
            most = int(min((width - 1.3) / max(cells(name), 1), 1) * len(name))
            text = shown = shortened(name, most) if most >= min(5, len(name)) else ""
            follows = name in (before, named.get(row))
            if text != name and (follows or cells(name) <= left - ended[row] - 2):
                if not follows:
                    yield Shape("name", left - cells(name) - 1, top, text=name)
                text, shown = "", name
            before = named[row] = shown
            ended[row] = left + width
            key = f"transaction-{it.partition}-{span.producer_id}-{span.first_offset}"
            yield Shape(
                span.outcome, left, top, width, 1, text, _described(span), key,
                is_closed and last <= self.axis.high, span,
            )  # fmt: skip
