"""The layout of a topic's picture: the places of boxes, lines and words, in characters and lines. Pure.

All partitions share one axis, one legend and the marks; each has a lane. A terminal rounds the places, the
SVG multiplies them.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from eosdb.admin.timeline.reading import PartitionTimeline, TimelineBin, TransactionSpan, rows
from eosdb.model.clock import format_time_ms
from eosdb.model.words import counted, duration, printable, shortened

KINDS: Final = ("aborted", "open", "committed", "plain")
"""The parts of a column from the bottom up. The rare ones come first, where heights compare best."""
_RARE: Final = KINDS[:2]
LANES_MAX: Final = 48
"""More partitions than this are too many to look at."""
_CHART: Final = 5
_TICK: Final = 16
_NAMES_MAX, _NAME_LENGTH = 3, 28
_OFFSETS: Final = tuple(base * 10**power for power in range(18) for base in (1, 2, 5))
_S, _MIN, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
_TIMES: Final = (
    *(base * 10**power for power in range(3) for base in (1, 2, 5)),
    *(base * _S for base in (1, 2, 5, 10, 15, 30)),
    *(base * _MIN for base in (1, 2, 5, 10, 15, 30)),
    *(base * _H for base in (1, 2, 3, 6, 12)),
    *(base * _D * 10**power for power in range(8) for base in (1, 2, 5)),
)


@dataclass(frozen=True, slots=True)
class Medium:
    """The width in characters, the least width and height that can be seen, and the most rows of bars."""

    columns: float
    least_width: float
    least_height: float
    bars: int


Target = TransactionSpan | tuple[int, int]
"""What a box stands for: a transaction, or a part [start, end) of the axis."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A box; without a width or a height, a line; without both, a line of text."""

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
    """The shapes that all lanes share, each lane's name and shapes, and notes for the reader."""

    lines: float
    shapes: list[Shape]
    lanes: list[tuple[str, list[Shape]]]
    notes: list[str]


def cells(text: str) -> int:
    """How many characters wide a text is."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def _fitted(text: str, room: float) -> str:
    """As much of the text as fits into `room`; empty if fewer than five characters would be left."""
    width = cells(text)
    if width <= room:
        return text
    most = int(room / width * len(text))
    return shortened(text, most) if most >= 5 else ""


def _placed(texts: Iterable[tuple[float, str]], length: float) -> list[tuple[str, float, int]]:
    """Centre each text on its place, or move it into [0, length]. Texts that would touch get different
    levels. The texts are in order. Returns each with its left edge and its level."""
    lefts = [(text, max(0.0, min(x - cells(text) / 2, length - cells(text)))) for x, text in texts]
    levels = rows((left, left + cells(text) + 2) for text, left in lefts)
    return [(*label, level) for label, level in zip(lefts, levels, strict=True)]


Group = tuple[float, str, int]
"""A consumer group's place, its name and its offset."""


def _clustered(groups: Iterable[Group], length: float) -> list[tuple[float, str, float]]:
    """Give groups that are close together one label, so that all labels fit on a line. Returns the places,
    the labels and their left edges."""
    clusters = [[group] for group in sorted(groups)]
    while True:
        labels = _placed([(cluster[0][0], _label(cluster)) for cluster in clusters], length)
        touching = next((i for i, (*_, level) in enumerate(labels) if level), 0)
        if not touching:
            break
        clusters[touching - 1] += clusters.pop(touching)
    return [(of[0][0], text, left) for of, (text, left, _) in zip(clusters, labels, strict=True)]


def _label(groups: Sequence[Group]) -> str:
    low, high = min(g[2] for g in groups), max(g[2] for g in groups)
    at = f"{low:,}" if low == high else f"{low:,}–{high:,}"
    names = ", ".join(shortened(name, _NAME_LENGTH) for _, name, _ in groups[:_NAMES_MAX])
    more = f" and {len(groups) - _NAMES_MAX:,} more" if len(groups) > _NAMES_MAX else ""
    return f"{names}{more} @ {at}"


@dataclass(frozen=True, slots=True)
class _Axis:
    """The offsets, or times, that all lanes share, and the length on which they are drawn."""

    by: str
    low: int
    high: int
    length: float

    @classmethod
    def around(cls, timelines: Sequence[PartitionTimeline], length: float) -> _Axis:
        """The axis that encloses the windows of all lanes."""
        axes = [it.axis for it in timelines if it.start < it.end] or [timelines[0].axis]
        low = min(first for first, _ in axes)
        return cls(timelines[0].by, low, max(max(last for _, last in axes), low + 1), length)

    def at(self, place: float) -> float:
        """How far from the left edge a place lies; places outside of the axis are moved to its ends."""
        inside = min(max(place, self.low), self.high)
        return (inside - self.low) * self.length / (self.high - self.low)

    def ticks(self) -> list[tuple[float, int]]:
        """About so many round offsets, or times (round in UTC), as the length has room for, and where they
        lie."""
        steps = _OFFSETS if self.by == "offset" else _TIMES
        width = max(self.high - self.low, 1) / max(int(self.length / _TICK), 1)
        step = steps[min(bisect_left(steps, width), len(steps) - 1)]
        places = range(-(-self.low // step) * step, self.high + 1, step)
        return [(self.at(place), place) for place in places]

    def drawn(self, y: float) -> Iterator[Shape]:
        """The line and its ticks (UTC); the day stands where one begins."""
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


def _moment(time_ms: int) -> str:
    return format_time_ms(time_ms, "milliseconds")


def _counts(*counts: tuple[int, str]) -> str:
    return ", ".join(f"{count:,} {name}" for count, name in counts if count)


def _described(span: TransactionSpan) -> str:
    """A transaction in one line of text."""
    where = f"from offset {span.first_offset:,}, {_moment(span.first_ms)}"
    if span.marker_offset >= 0:
        where = (
            f"offsets {span.first_offset:,} to {span.marker_offset:,}, "
            f"{_moment(span.first_ms)} to {_moment(span.marker_ms)}"
        )
    name = "(unknown)" if span.transactional_id is None else printable(span.transactional_id)
    records = counted(span.records, "record")
    return f"{name}: {span.outcome}, {records}, {where}, producer id {span.producer_id}"


def _part(part: TimelineBin, by: str) -> str:
    """A part of the axis in one line of text."""
    where = f"offsets {part.start:,} to {part.end - 1:,}"
    if by == "time":
        where = f"{_moment(part.start)}, from offset {part.first_offset:,}"
    return f"{where}: " + _counts(
        (part.aborted, "aborted"), (part.open, "open"), (part.committed, "committed"),
        (part.plain, "plain"), (part.markers, "markers"),
    )  # fmt: skip


def _summary(it: PartitionTimeline) -> str:
    """The partition in one line of text."""
    text = counted(it.total, "transaction")
    if it.total:
        outcomes = (it.committed, "committed"), (it.aborted, "aborted"), (it.open, "open")
        text += ": " + _counts(*outcomes)
    if plain := sum(part.plain for part in it.bins):
        text += f" · {counted(plain, 'plain record')}"
    log = it.offsets
    ends = f"log {log.log_start_offset:,} to {log.log_end_offset:,}"
    return f"{text} · {ends}, LSO {log.last_stable_offset:,}"


def draw(
    timelines: Sequence[PartitionTimeline], medium: Medium, marks: Sequence[tuple[int, str]] = ()
) -> Picture:
    """Lay out all partitions. `marks` are times (epoch ms) with a name each. If the axis is time, each is
    drawn as a line through all lanes."""
    axis = _Axis.around(timelines, medium.columns)
    shown = [(axis.at(time), text) for time, text in sorted(marks) if axis.by == "time"]
    labels = _placed(shown, medium.columns)
    top = y = 3 + max((level for *_, level in labels), default=-1.0)
    lanes = []
    for it in timelines:
        lanes.append(_Lane(it, axis, medium, y))
        y = lanes[-1].bottom
    shapes = [
        *_legend(bool(shown)),
        *(Shape("mark", left, 2 + level, text=text) for text, left, level in labels),
        *(Shape("mark", x, top, height=y - top - 1) for x, _ in shown),
        *axis.drawn(y - 1),
    ]
    return Picture(y + 1, shapes, [(it.name, it.shapes) for it in lanes], _notes(lanes, axis.by))


def _legend(has_marks: bool) -> Iterator[Shape]:
    x = 0.0
    for kind, name in (
        ("committed", "committed"), ("aborted", "aborted"), ("open", "open"),
        ("plain", "outside of transactions"), ("group", "consumer group"),
        *([("mark", "killed")] if has_marks else []),
    ):  # fmt: skip
        if kind == "group":
            yield Shape(kind, x, 0, text="▲")
        else:
            yield Shape(kind, x, 0, 0 if kind == "mark" else 2, 1)
        yield Shape("", x + 3, 0, text=name)
        x += cells(name) + 6


@dataclass
class _Lane:
    """One partition from the top down: a heading, bars, columns or plain records, consumer groups."""

    it: PartitionTimeline
    axis: _Axis
    medium: Medium
    top: float
    shapes: list[Shape] = field(default_factory=list)

    def __post_init__(self) -> None:
        it, axis, medium = self.it, self.axis, self.medium
        self.clearance = max(1, round((axis.high - axis.low) / axis.length * medium.least_width))
        spans: Sequence[TransactionSpan] = it.transactions
        most = max(it.rows(self.clearance), default=0)
        self.is_aggregated = it.aggregated or most >= medium.bars
        if self.is_aggregated:
            spans = self._standing_out()
        self.bars = list(zip(spans, it.rows(self.clearance, spans), strict=True))
        self.body = self.top + 1
        self.chart = self.body + max((row for _, row in self.bars), default=-1) + 1
        has_plain = any(part.plain for part in it.bins)
        self.ground = self.chart + (_CHART if self.is_aggregated else has_plain)
        name, summary = f"partition {it.partition}", _summary(it)
        self.name = f"{name}: {summary}"
        self.shapes += [
            Shape("partition", 0, self.top, text=name), Shape("", 16, self.top, text=summary)
        ]  # fmt: skip
        if it.start == it.end:
            is_empty = it.offsets.log_start_offset == it.offsets.log_end_offset
            text = "no records" if is_empty else "no records in this window"
            self.shapes.append(Shape("", 2, self.body, text=text))
            self.ground = self.body + 1
        else:
            self.shapes += [*self._background(), *self._columns(), *self._bars()]
        groups = [(axis.at(it.place(g.offset)), printable(g.group_id), g.offset) for g in it.groups]
        for x, text, left in _clustered(groups, medium.columns):
            self.shapes.append(Shape("group", min(x, medium.columns - 1), self.ground, text="▲"))
            self.shapes.append(Shape("group", left, self.ground + 1, text=text))
        self.bottom = self.ground + (3 if groups else 1)

    def _standing_out(self) -> list[TransactionSpan]:
        """Choose what to draw one by one when there are too many transactions: open and long ones, as many
        as fit into a third of the rows."""
        it = self.it
        kept = [span for span in it.longest or it.transactions if it.stands_out(span)]
        for dropped in sorted(kept, key=lambda span: (span.outcome == "open", it.length(span))):
            if max(it.rows(self.clearance, kept), default=0) < self.medium.bars // 3:
                break
            kept.remove(dropped)
        return kept

    def _background(self) -> Iterator[Shape]:
        it, log, height = self.it, self.it.offsets, self.ground - self.body
        left, right = map(self.axis.at, it.axis)
        yield Shape("ground", left, self.body, right - left, height)
        yield from (Shape("grid", x, self.body, 0, height) for x, _ in self.axis.ticks())
        for kind, offset in (("lso", log.last_stable_offset), ("end", log.log_end_offset)):
            if it.start <= offset <= it.end:
                yield Shape(kind, self.axis.at(it.place(offset)), self.body, 0, height)

    def _columns(self) -> Iterator[Shape]:
        """Columns stacked by kind of record; below bars, a line of plain records only.

        If the axis is offsets, a height is the share of the part's offsets. If it is time, it is
        proportional to the number of records, and the fullest part has the full height. A marker is
        counted with its transaction.
        """
        it, least, high = self.it, self.medium, self.ground - self.chart
        most = max((part.stored for part in it.bins), default=0)
        for part in it.bins:
            counts, full = {"plain": part.plain}, 1
            if self.is_aggregated:
                counts["aborted"] = part.aborted + part.abort_markers
                counts["open"] = part.open
                counts["committed"] = part.committed + part.commit_markers
                full = max(part.end - part.start if it.by == "offset" else most, 1)
            heights = {
                kind: max(count * high / full, least.least_height / (1 if kind in _RARE else 3))
                for kind in KINDS
                if (count := counts.get(kind))
            }
            if (surplus := sum(heights.values()) - high) > 0:
                heights[max(heights, key=lambda kind: heights[kind])] -= surplus
            left, right = self.axis.at(part.start), self.axis.at(part.end)
            width, bottom = max(right - left, least.least_width / 4), self.ground
            for kind, height in heights.items():
                bottom -= height
                wide = max(width, least.least_width) if kind in _RARE else width
                key = f"band-{it.partition}-{kind}"
                yield Shape(kind, left, bottom, wide, height, key=key)
            if self.is_aggregated and part.stored:
                title, goes_to = _part(part, it.by), (part.start, part.end)
                yield Shape("part", left, self.chart, width, high, title=title, goes_to=goes_to)

    def _bars(self) -> Iterator[Shape]:
        """Bars with their names: inside, or before a narrow one. A name stands once before narrow bars of
        one name, unless a bar of another lies between them in their row."""
        it, in_row = self.it, dict[int, str]()
        before, began = "", 0.0
        for span, row in self.bars:
            first, last = it.extent(span)
            is_closed = span.marker_offset >= 0
            left, top = self.axis.at(first), self.chart - 1 - row
            right = self.axis.at(last + (is_closed and it.by == "offset"))
            width = max(right - left, self.medium.least_width)
            name = printable(span.transactional_id or "")
            text = named = _fitted(name, max(width - 1.3, 0))
            others = (self.axis.at(it.extent(s)[1]) for s, at in self.bars if at == row)
            ended = max((end for end in others if end <= left), default=0)
            follows = name == before and (ended <= began or in_row.get(row) == name)
            if text != name and (follows or cells(name) <= left - ended - 2):
                if not follows:
                    yield Shape("name", left - cells(name) - 1, top, text=name)
                text, named = "", name
            began = began if follows else left
            before = in_row[row] = named
            key = f"transaction-{it.partition}-{span.producer_id}-{span.first_offset}"
            yield Shape(
                span.outcome, left, top, width, 1, text, _described(span), key,
                is_closed and last <= self.axis.high, span,
            )  # fmt: skip


def _notes(lanes: Sequence[_Lane], by: str) -> list[str]:
    """The notes for the reader, in sentences."""
    texts = []
    if any(lane.bars and not lane.is_aggregated for lane in lanes):
        end = "now, or the window's end" if by == "time" else "the log end"
        texts.append(
            "A bar is a transaction, from its first stored record to its marker; an open one extends to "
            f"{end}. Transactions that overlap lie in rows."
        )
    if many := [lane.it for lane in lanes if lane.is_aggregated]:
        width = many[0].bins[0].end - many[0].bins[0].start
        each = counted(width, "offset")
        if by == "time":
            each = f"{duration(width)}: the more records, the higher"
        names = ", ".join(str(it.partition) for it in many)
        texts.append(
            f"Too many transactions to be drawn one by one: partition {names}. Each column sums up "
            f"{each}. Its colours are the shares of the outcomes. Aborted and open ones are always wide "
            "enough to be seen. Bars above are the long and the open transactions."
        )
    if left_out := sum(lane.it.groups_left_out for lane in lanes):
        texts.append(f"{counted(left_out, 'more group position')} not shown.")
    if by == "time":
        texts.append("Times (UTC) are those at which records were appended.")
    return texts
