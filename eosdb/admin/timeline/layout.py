"""What lies where in a picture of a topic: boxes and words, in characters and lines. Pure.

All partitions share one axis, one legend and the marks; each has a lane. A terminal rounds the places, the
SVG multiplies them.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from eosdb.admin.timeline.timeline import PartitionTimeline, TimelineBin, TransactionSpan, rows
from eosdb.model.clock import format_time_ms
from eosdb.model.words import counted, duration, printable, shortened

KINDS: Final = ("aborted", "open", "committed", "plain")
"""The parts of a column from the bottom up. The rare ones come first, where heights compare best."""
LANES_MAX: Final = 48
"""More partitions than this are too many to look at."""
_LONG: Final = 100
"""A transaction stands out if it takes at least this part of the axis."""
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


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, or without a width a line; `goes_to` is its transaction or its part of the axis."""

    kind: str
    left: float
    top: float
    width: float
    height: float
    key: str = ""
    title: str = ""
    text: str = ""
    is_closed: bool = False
    goes_to: TransactionSpan | tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """A line of text."""

    text: str
    left: float
    top: float
    kind: str = ""


Shape = Box | Words


@dataclass(frozen=True, slots=True)
class Picture:
    """What all lanes share, each lane's name and shapes, and what must be known to read them."""

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


def ticks(low: int, high: int, by: str, most: int) -> tuple[int, ...]:
    """The round offsets, or times (epoch ms, round in UTC), in [low, high]: about `most` of them."""
    steps = _OFFSETS if by == "offset" else _TIMES
    step = steps[min(bisect_left(steps, max(high - low, 1) / most), len(steps) - 1)]
    return tuple(range(-(-low // step) * step, high + 1, step))


def heights(timeline: PartitionTimeline, height: float, least: float) -> list[dict[str, float]]:
    """Return for each bin the height of each of KINDS, a marker counted with its transaction.

    If the axis is offsets, that is the share of the bin's offsets. If it is time, it is proportional to
    the number of records, and the fullest bin is `height` high. Aborted and open parts are at least
    `least` high.
    """
    most = max((part.stored for part in timeline.bins), default=0)
    columns = []
    for part in timeline.bins:
        unit = height / max(part.end - part.start if timeline.by == "offset" else most, 1)
        counts = {
            "aborted": part.aborted + part.abort_markers,
            "open": part.open,
            "committed": part.committed + part.commit_markers,
            "plain": part.plain,
        }
        parts = {
            kind: max(count * unit, least if kind in KINDS[:2] else least / 3)
            for kind, count in counts.items()
            if count
        }
        if (surplus := sum(parts.values()) - height) > 0:
            parts[max(parts, key=lambda kind: parts[kind])] -= surplus
        columns.append(parts)
    return columns


def standing_out(
    timeline: PartitionTimeline, clearance: float, most_rows: int
) -> list[tuple[TransactionSpan, int]]:
    """Choose what to draw one by one when there are too many transactions: open and long ones, as many as
    fit into `most_rows` rows. Returns each with its row."""
    low, high = timeline.axis

    def length(span: TransactionSpan) -> int:
        first, last = timeline.extent(span)
        return min(last, high) - max(first, low)

    kept = [
        span
        for span in (timeline.longest or timeline.transactions)
        if span.outcome == "open" or length(span) * _LONG >= high - low
    ]
    least_first = sorted(kept, key=lambda span: (span.outcome == "open", length(span)))
    for dropped in least_first:
        if max(rows([timeline.extent(s) for s in kept], clearance), default=0) < most_rows:
            break
        kept.remove(dropped)
    return list(zip(kept, rows([timeline.extent(s) for s in kept], clearance), strict=True))


def fitted(text: str, room: float) -> str:
    """As much of the text as fits into `room`; empty if fewer than five characters would be left."""
    width = cells(text)
    if width <= room:
        return text
    most = int(room / width * len(text))
    return shortened(text, most) if most >= 5 else ""


def placed(texts: Sequence[tuple[float, str]], length: float) -> list[tuple[str, float, int]]:
    """Centre the texts, which are in order, on their places; move them into [0, length], and onto levels
    on which none touch. Returns each with its left edge and its level."""
    ends: list[float] = []
    labels = []
    for x, text in texts:
        left = max(0.0, min(x - cells(text) / 2, length - cells(text)))
        level = next((i for i, end in enumerate(ends) if end <= left), len(ends))
        ends[level : level + 1] = [left + cells(text) + 2]
        labels.append((text, left, level))
    return labels


def clustered(
    positions: Sequence[tuple[float, str, int]], length: float
) -> list[tuple[float, str, float]]:
    """Give groups that are close together one label, and widen what counts as close until all labels fit
    on a line. Returns the places, the labels and their left edges."""
    reach = 1.0
    while True:
        clusters: list[list[tuple[float, str, int]]] = []
        for group in sorted(positions):
            if clusters and group[0] - clusters[-1][0][0] <= reach:
                clusters[-1].append(group)
            else:
                clusters.append([group])
        labels = placed([(cluster[0][0], _cluster_text(cluster)) for cluster in clusters], length)
        if len(clusters) <= 1 or not any(level for *_, level in labels):
            return [
                (cluster[0][0], text, left)
                for cluster, (text, left, _) in zip(clusters, labels, strict=True)
            ]
        reach *= 2


def _cluster_text(groups: Sequence[tuple[float, str, int]]) -> str:
    low, high = min(g[2] for g in groups), max(g[2] for g in groups)
    at = f"{low:,}" if low == high else f"{low:,}–{high:,}"
    names = ", ".join(shortened(name, _NAME_LENGTH) for _, name, _ in groups[:_NAMES_MAX])
    more = f" and {len(groups) - _NAMES_MAX:,} more" if len(groups) > _NAMES_MAX else ""
    return f"{names}{more} @ {at}"


@dataclass(frozen=True, slots=True)
class Axis:
    """The offsets, or times, that all lanes share, and the length on which they are drawn."""

    by: str
    low: int
    high: int
    length: float

    @classmethod
    def around(cls, timelines: Sequence[PartitionTimeline], length: float) -> Axis:
        """The axis that encloses the windows of all lanes."""
        axes = [it.axis for it in timelines if it.start < it.end] or [timelines[0].axis]
        low = min(first for first, _ in axes)
        return cls(timelines[0].by, low, max(max(last for _, last in axes), low + 1), length)

    def at(self, place: float) -> float:
        """How far from the left edge a place lies; places outside of the axis are moved to its ends."""
        return (
            (min(max(place, self.low), self.high) - self.low) * self.length / (self.high - self.low)
        )


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


def _moment(time_ms: int) -> str:
    return format_time_ms(time_ms, "milliseconds")


def summary(it: PartitionTimeline) -> str:
    """The partition in one line of text."""
    text = counted(it.total, "transaction")
    if it.total:
        parts = [(it.committed, "committed"), (it.aborted, "aborted"), (it.open, "open")]
        text += ": " + ", ".join(f"{count:,} {name}" for count, name in parts if count)
    if plain := sum(part.plain for part in it.bins):
        text += f" · {counted(plain, 'plain record')}"
    log = it.offsets
    ends = f"log {log.log_start_offset:,} to {log.log_end_offset:,}"
    return f"{text} · {ends}, LSO {log.last_stable_offset:,}"


def draw(
    timelines: Sequence[PartitionTimeline], medium: Medium, marks: Sequence[tuple[int, str]] = ()
) -> Picture:
    """Lay out all partitions. `marks` are times (epoch ms) with a name, lines through all lanes if the axis
    is time."""
    axis = Axis.around(timelines, medium.columns)
    shown = [(axis.at(time), text) for time, text in sorted(marks) if axis.by == "time"]
    shapes: list[Shape] = [*_legend(bool(shown))]
    labels = placed(shown, medium.columns)
    top = 2 + 1 + max((level for *_, level in labels), default=-1)
    shapes += [Words(text, left, 2 + level, "mark") for text, left, level in labels]
    drawn = []
    y = float(top)
    for it in timelines:
        lane = _Lane(it, axis, medium, y)
        drawn.append(lane)
        y = lane.bottom
    shapes += [Box("mark", x, top, 0, y - top - 1) for x, _ in shown]
    shapes += _scale(axis, y - 1)
    return Picture(y + 1, shapes, [(lane.name, lane.shapes) for lane in drawn], _notes(drawn, axis))


def _legend(has_marks: bool) -> Iterator[Shape]:
    x = 0.0
    for kind, name in (
        ("committed", "committed"), ("aborted", "aborted"), ("open", "open"),
        ("plain", "outside of transactions"), ("group", "consumer group"), ("mark", "killed"),
    ):  # fmt: skip
        if kind == "group":
            yield Words("▲", x, 0, "group")
        elif kind != "mark" or has_marks:
            yield Box(kind, x, 0, 0 if kind == "mark" else 2, 1)
        if kind != "mark" or has_marks:
            yield Words(name, x + 3, 0)
        x += cells(name) + 6


def _ticks(axis: Axis) -> list[tuple[float, int]]:
    most = max(int(axis.length / _TICK), 1)
    return [(axis.at(place), place) for place in ticks(axis.low, axis.high, axis.by, most)]


def _scale(axis: Axis, y: float) -> Iterator[Shape]:
    """The line, and about so many round offsets or times (UTC); the day stands where one begins."""
    yield Box("axis", 0, y, axis.length, 0)
    places = _ticks(axis)
    close = len(places) > 1 and places[1][1] - places[0][1] < _S
    before, texts = "", []
    for x, place in places:
        text = f"{place:,}"
        if axis.by == "time":
            day, _, text = format_time_ms(place, "milliseconds" if close else "seconds").partition(
                "T"
            )
            text = text.rstrip("Z") if day == before else f"{day} {text.rstrip('Z')}"
            before = day
        texts.append((x, text))
    yield from (
        Words(text, left, y + 1, "tick")
        for text, left, level in placed(texts, axis.length)
        if not level
    )
    yield from (Words("┴", x, y, "axis") for x, _ in places if x < axis.length)


@dataclass
class _Lane:
    """One partition from the top down: a heading, bars, columns or plain records, consumer groups."""

    it: PartitionTimeline
    axis: Axis
    medium: Medium
    top: float
    shapes: list[Shape] = field(default_factory=list)

    def __post_init__(self) -> None:
        it, medium = self.it, self.medium
        clearance = max(
            1, round((self.axis.high - self.axis.low) / self.axis.length * medium.least_width)
        )
        numbers = it.rows(clearance)
        self.bars = list(zip(it.transactions, numbers, strict=True))
        self.is_aggregated = it.aggregated or max(numbers, default=0) >= medium.bars
        if self.is_aggregated:
            self.bars = standing_out(it, clearance, medium.bars // 3)
        self.name = f"partition {it.partition}: {summary(it)}"
        self.body = self.top + 1
        self.chart = self.body + max((row for _, row in self.bars), default=-1) + 1
        has_plain = any(part.plain for part in it.bins)
        self.ground = self.chart + (_CHART if self.is_aggregated else has_plain)
        name = f"partition {it.partition}"
        self.shapes += [Words(name, 0, self.top, "partition"), Words(summary(it), 16, self.top)]
        if it.start == it.end:
            log = it.offsets
            is_empty = log.log_start_offset == log.log_end_offset
            text = "no records" if is_empty else "no records in this window"
            self.shapes.append(Words(text, 2, self.body))
            self.ground = self.body + 1
        else:
            self.shapes += [*self._background(), *self._columns(), *self._bars()]
        self.bottom = self.ground + 1
        groups = [
            (self.axis.at(self._place(group.offset)), printable(group.group_id), group.offset)
            for group in it.groups
        ]
        for x, text, left in clustered(groups, medium.columns) if groups else ():
            self.shapes.append(Words("▲", min(x, medium.columns - 1), self.ground, "group"))
            self.shapes.append(Words(text, left, self.ground + 1, "group"))
            self.bottom = self.ground + 3

    def _place(self, offset: int) -> float:
        """Where the offset lies on the axis; beyond its ends if it is outside of the window."""
        it = self.it
        if it.by == "offset" or it.start <= offset <= it.end:
            return it.place(offset)
        return float("-inf") if offset < it.start else float("inf")

    def _background(self) -> Iterator[Shape]:
        left, right = (self.axis.at(end) for end in self.it.axis)
        yield Box("ground", left, self.body, right - left, self.ground - self.body)
        for x, _ in _ticks(self.axis):
            yield Box("grid", x, self.body, 0, self.ground - self.body)
        log = self.it.offsets
        for kind, offset in (("lso", log.last_stable_offset), ("end", log.log_end_offset)):
            if self.it.start <= offset <= self.it.end:
                x = self.axis.at(self._place(offset))
                yield Box(kind, x, self.body, 0, self.ground - self.body)

    def _columns(self) -> Iterator[Shape]:
        """Stacks in the kinds of their records; below bars a line of plain records alone."""
        it, least = self.it, self.medium
        high = self.ground - self.chart
        for part, parts in zip(it.bins, heights(it, high, least.least_height), strict=True):
            left, right = self.axis.at(part.start), self.axis.at(part.end)
            width, bottom = max(right - left, least.least_width / 4), self.ground
            for kind in KINDS if self.is_aggregated else KINDS[3:]:
                if (height := parts.get(kind, 0) if self.is_aggregated else high) and kind in parts:
                    wide = max(width, least.least_width) if kind in KINDS[:2] else width
                    key = f"band-{it.partition}-{kind}"
                    yield Box(kind, left, bottom - height, wide, height, key)
                    bottom -= height
            if self.is_aggregated and part.stored:
                goes_to, text = (part.start, part.end), self._part(part)
                yield Box("part", left, self.chart, width, high, title=text, goes_to=goes_to)

    def _part(self, part: TimelineBin) -> str:
        counts = (
            (part.aborted, "aborted"), (part.open, "open"), (part.committed, "committed"),
            (part.plain, "plain"), (part.commit_markers + part.abort_markers, "markers"),
        )  # fmt: skip
        where = f"offsets {part.start:,} to {part.end - 1:,}"
        if self.axis.by == "time":
            where = f"{_moment(part.start)}, from offset {part.first_offset:,}"
        return f"{where}: " + ", ".join(f"{count:,} {name}" for count, name in counts if count)

    def _bars(self) -> Iterator[Shape]:
        for span, row in self.bars:
            first, last = self.it.extent(span)
            is_closed = span.marker_offset >= 0
            left = self.axis.at(first)
            right = self.axis.at(last + (is_closed and self.axis.by == "offset"))
            width = max(right - left, self.medium.least_width)
            name = printable(span.transactional_id or "")
            others = [self.axis.at(self.it.extent(s)[1]) for s, at in self.bars if at == row]
            free = left - max((end for end in others if end <= left), default=0) - 2
            if width - 1.3 < cells(name) <= free:
                yield Words(name, left - cells(name) - 1, self.chart - 1 - row, "name")
                name = ""
            yield Box(
                span.outcome, left, self.chart - 1 - row, width, 1,
                f"transaction-{self.it.partition}-{span.producer_id}-{span.first_offset}",
                described(span), fitted(name, max(width - 1.3, 0)),
                is_closed and last <= self.axis.high, span,
            )  # fmt: skip


def _notes(drawn: Sequence[_Lane], axis: Axis) -> list[str]:
    """What must be known to read the lanes, in sentences."""
    texts = []
    if any(lane.bars and not lane.is_aggregated for lane in drawn):
        end = "now, or the window's end" if axis.by == "time" else "the log end"
        texts.append(
            "A bar is a transaction, from its first stored record to its marker; an open one extends to "
            f"{end}. Transactions that overlap lie in rows."
        )
    if many := [lane.it for lane in drawn if lane.is_aggregated]:
        part = many[0].bins[0]
        width = part.end - part.start
        each = (
            f"{duration(width)}: the more records, the higher"
            if axis.by == "time"
            else counted(width, "offset")
        )
        names = ", ".join(str(it.partition) for it in many)
        texts.append(
            f"Too many transactions to be drawn one by one: partition {names}. Each column sums up "
            f"{each}. Its colours are the shares of the outcomes. Aborted and open ones are always wide "
            "enough to be seen. Bars above are the long and the open transactions."
        )
    if left_out := sum(lane.it.groups_left_out for lane in drawn):
        texts.append(f"{counted(left_out, 'more group position')} not shown.")
    if axis.by == "time":
        texts.append("Times (UTC) are those at which records were appended.")
    return texts
