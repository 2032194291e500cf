"""What lies where in a drawing of a topic: one axis for all lanes, and for each partition a lane with its
transactions, the offsets of its log, its consumer groups, the ticks of its scale and the places of labels.

Pure, in any unit of length: the picture counts pixels, a terminal columns. A `Measure` gives the width of a
text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from eosdb.admin.timeline.timeline import PartitionTimeline, TimelineBin, TransactionSpan, rows
from eosdb.model.clock import format_time_ms
from eosdb.model.words import counted, duration, printable, shortened

KINDS: Final = ("aborted", "open", "committed", "plain")
"""The parts of a column from the bottom up. The rare ones come first, where heights compare best."""
_RARE: Final = ("aborted", "open")
_LONG: Final = 100
"""A transaction stands out if it takes at least this part of the axis."""
_OFFSETS: Final = tuple(base * 10**power for power in range(18) for base in (1, 2, 5))
_S, _MIN, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
_TIMES: Final = (
    *(base * 10**power for power in range(3) for base in (1, 2, 5)),
    *(base * _S for base in (1, 2, 5, 10, 15, 30)),
    *(base * _MIN for base in (1, 2, 5, 10, 15, 30)),
    *(base * _H for base in (1, 2, 3, 6, 12)),
    *(base * _D * 10**power for power in range(8) for base in (1, 2, 5)),
)


def ticks(low: int, high: int, by: str, most: int) -> tuple[int, ...]:
    """The round offsets, or times (epoch ms, round in UTC), in [low, high]: about `most` of them."""
    steps = _OFFSETS if by == "offset" else _TIMES
    step = steps[min(bisect_left(steps, max(high - low, 1) / most), len(steps) - 1)]
    return tuple(range(-(-low // step) * step, high + 1, step))


def moments(times: Sequence[float]) -> list[tuple[str, str]]:
    """Return for each time (epoch ms, ascending) its day and its time of day (UTC); each is "" if it equals
    the previous one. Milliseconds are included if the times are less than a second apart on average."""
    whole = [round(time) for time in times]
    close = len(whole) < 2 or whole[-1] - whole[0] < _S * len(whole)
    timespec = "milliseconds" if close and any(time % _S for time in whole) else "seconds"
    words = []
    before = ("", "")
    for time in whole:
        day, _, clock = format_time_ms(time, timespec).rstrip("Z").partition("T")
        is_new = (day, clock) != before
        words.append((day if day != before[0] else "", clock if is_new else ""))
        before = day, clock
    return words


def heights(timeline: PartitionTimeline, height: float, least: float) -> list[dict[str, float]]:
    """Return for each bin the height of each of KINDS, a marker counted with its transaction.

    If the axis is offsets, that is the share of the bin's offsets. If it is time, it is proportional to
    the number of records, and the fullest bin is `height` high. Aborted and open parts are at least
    `least` high.
    """
    counts = [_counts(part) for part in timeline.bins]
    most = max((sum(records.values()) for records in counts), default=0)
    columns = []
    for part, records in zip(timeline.bins, counts, strict=True):
        unit = height / max(part.end - part.start if timeline.by == "offset" else most, 1)
        parts = {
            kind: max(count * unit, least if kind in _RARE else least / 3)
            for kind, count in records.items()
            if count
        }
        surplus = sum(parts.values()) - height
        if surplus > 0:
            highest = max(parts, key=lambda kind: parts[kind])
            parts[highest] -= surplus
        columns.append(parts)
    return columns


def _counts(part: TimelineBin) -> dict[str, int]:
    return {
        "aborted": part.aborted + part.abort_markers,
        "open": part.open,
        "committed": part.committed + part.commit_markers,
        "plain": part.plain,
    }


def fullest(timeline: PartitionTimeline) -> int:
    """How many records the fullest bin holds, markers included."""
    return max((part.stored for part in timeline.bins), default=0)


def standing_out(
    timeline: PartitionTimeline, clearance: float, most_rows: int
) -> list[tuple[TransactionSpan, int]]:
    """Choose what to draw one by one when there are too many transactions: open and long ones, as many as
    fit into `most_rows` rows. Returns each with its row."""
    low, high = timeline.axis

    def length(span: TransactionSpan) -> int:
        first, last = timeline.extent(span)
        return min(last, high) - max(first, low)

    spans = timeline.longest
    if not timeline.aggregated:
        spans = tuple(
            span
            for span in timeline.transactions
            if span.outcome == "open" or length(span) * _LONG >= high - low
        )
    least_first = sorted(spans, key=lambda span: (span.outcome == "open", length(span)))
    kept = list(spans)
    for dropped in least_first:
        if max(rows([timeline.extent(span) for span in kept], clearance), default=0) < most_rows:
            break
        kept.remove(dropped)
    return list(zip(kept, rows([timeline.extent(span) for span in kept], clearance), strict=True))


Measure = Callable[[str], float]
Position = tuple[str, int]
"""A group's name as shown, and its offset."""

_NAMES_MAX: Final = 3
_NAME_LENGTH: Final = 28
_LEVELS_MAX: Final = 6


@dataclass(frozen=True, slots=True)
class Label:
    """A text for the place `x` on the axis: its left edge, and its level, counted from the axis."""

    text: str
    x: float
    left: float
    level: int


def fitted(text: str, room: float, measure: Measure) -> str:
    """As much of the text as fits into `room`; empty if fewer than five characters would be left."""
    width = measure(text)
    if width <= room:
        return text
    most = int(room / width * len(text))
    return shortened(text, most) if most >= 5 else ""


def placed(
    texts: Sequence[tuple[float, str]], length: float, measure: Measure, gap: float
) -> list[Label]:
    """Centre the texts, which are in order, on their places; move them into [0, length], and onto levels
    on which none touch."""
    ends: list[float] = []
    labels = []
    for x, text in texts:
        width = measure(text)
        left = max(0.0, min(x - width / 2, length - width))
        level = next((i for i, end in enumerate(ends) if end <= left), len(ends))
        ends[level : level + 1] = [left + width + gap]
        labels.append(Label(text, x, left, level))
    return labels


def clustered(
    positions: Sequence[tuple[float, Position]], length: float, measure: Measure, gap: float
) -> list[Label]:
    """Give groups that are close together one label, and widen what counts as close until the labels need
    at most six levels."""
    reach = gap
    while True:
        clusters: list[list[tuple[float, Position]]] = []
        for x, group in sorted(positions):
            if clusters and x - clusters[-1][0][0] <= reach:
                clusters[-1].append((x, group))
            else:
                clusters.append([(x, group)])
        texts = [(cluster[0][0], _cluster_text([g for _, g in cluster])) for cluster in clusters]
        labels = placed(texts, length, measure, gap)
        if len(clusters) <= 1 or max(label.level for label in labels) < _LEVELS_MAX:
            return labels
        reach *= 2


def _cluster_text(groups: Sequence[Position]) -> str:
    low, high = min(g[1] for g in groups), max(g[1] for g in groups)
    at = f"{low:,}" if low == high else f"{low:,}–{high:,}"
    names = ", ".join(shortened(g[0], _NAME_LENGTH) for g in groups[:_NAMES_MAX])
    more = f" and {len(groups) - _NAMES_MAX:,} more" if len(groups) > _NAMES_MAX else ""
    return f"{names}{more} @ {at}"


LANES_MAX: Final = 48
"""More partitions than this are too many to look at."""
OFFSETS: Final = ("log start", "LSO", "log end")


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
        return (min(max(place, self.low), self.high) - self.low) / self.unit

    @property
    def unit(self) -> float:
        """How many offsets, or milliseconds, one unit of length holds."""
        return (self.high - self.low) / self.length

    def ticks(self, most: int) -> tuple[int, ...]:
        return ticks(self.low, self.high, self.by, most)


@dataclass(frozen=True, slots=True)
class Mark:
    """An offset of the log: the last of its names in OFFSETS, and its label."""

    name: str
    label: Label
    is_inside: bool
    """Whether it lies in the window; otherwise an arrow in the label points to it."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One partition: what is drawn of it, and where on the axis."""

    timeline: PartitionTimeline
    axis: Axis
    is_aggregated: bool
    bars: list[tuple[TransactionSpan, int]]
    """The transactions that are drawn one by one, and their rows."""
    marks: list[Mark]
    groups: list[Label]

    @property
    def rows(self) -> int:
        return max((row for _, row in self.bars), default=-1) + 1

    def extent(self, span: TransactionSpan) -> tuple[float, float]:
        """Where the transaction is drawn, its marker included."""
        first, last = self.timeline.extent(span)
        return self.axis.at(first), self.axis.at(last + self._is_marked(span))

    def marker(self, span: TransactionSpan) -> float | None:
        """Where its marker is drawn; None for an open transaction, and outside of the window."""
        place = self.timeline.extent(span)[1] + self._is_marked(span) / 2
        is_inside = span.marker_offset >= 0 and self.axis.low <= place <= self.axis.high
        return self.axis.at(place) if is_inside else None

    def _is_marked(self, span: TransactionSpan) -> bool:
        return self.axis.by == "offset" and span.marker_offset >= 0

    def scale(self, most: int) -> Iterator[tuple[float, int, str, str]]:
        """About `most` ticks: the place, its offset, its time of day and, where one begins, its day."""
        it, axis = self.timeline, self.axis
        low, high = it.axis
        places = [place for place in axis.ticks(most) if low <= place <= high]
        if it.start == it.end:
            return
        if it.by == "time":
            offsets, times = [it.offset_at(place) for place in places], list[float](places)
        else:
            # The log end has no time yet.
            offsets, times = places, [it.time_at(place) for place in places if place < high]
        named = [*moments(times), ("", "")]
        for place, offset, (day, time) in zip(places, offsets, named, strict=False):
            yield axis.at(place), offset, time, day

    @property
    def emptiness(self) -> str:
        """What is written where there is nothing to draw."""
        it = self.timeline
        if it.start < it.end:
            return ""
        is_empty = it.offsets.log_start_offset == it.offsets.log_end_offset
        return "no records" if is_empty else "no records in this window"


def lanes(
    timelines: Sequence[PartitionTimeline],
    length: float,
    measure: Measure,
    *,
    least: float,
    rows_max: int,
) -> list[Lane]:
    """Lay out all partitions on an axis of this length.

    `least` is the least length that can be seen. A partition is aggregated if its transactions need more
    than `rows_max` rows; the long and the open ones then get a third of them.
    """
    axis = Axis.around(timelines, length)
    clearance = max(1, round(axis.unit * least))
    drawn = []
    for it in timelines:
        rows = it.rows(clearance)
        bars = list(zip(it.transactions, rows, strict=True))
        is_aggregated = it.aggregated or max(rows, default=0) >= rows_max
        if is_aggregated:
            bars = standing_out(it, clearance, rows_max // 3)
        groups = [
            (axis.at(_place(it, group.offset)), (printable(group.group_id), group.offset))
            for group in it.groups
        ]
        drawn.append(
            Lane(
                it, axis, is_aggregated, bars, _marks(it, axis, measure, 2 * least),
                clustered(groups, length, measure, 2 * least),
            )
        )  # fmt: skip
    return drawn


def _place(it: PartitionTimeline, offset: int) -> float:
    """Where the offset lies on the axis; beyond its ends if it is outside of the window."""
    if it.by == "time" and it.start == it.end:
        return it.start_ms
    if it.by == "offset" or it.start <= offset <= it.end:
        return it.place(offset)
    return float("-inf") if offset < it.start else float("inf")


def _marks(it: PartitionTimeline, axis: Axis, measure: Measure, gap: float) -> list[Mark]:
    """The offsets of the log; those that are equal have one mark."""
    names: dict[int, list[str]] = {}
    log = it.offsets
    for name, offset in zip(
        OFFSETS, (log.log_start_offset, log.last_stable_offset, log.log_end_offset), strict=True
    ):
        names.setdefault(offset, []).append(name)
    texts, inside = [], []
    for offset in names:
        place = _place(it, offset)
        before = "← " if place < axis.low else ""
        after = " →" if place > axis.high else ""
        texts.append((axis.at(place), f"{before}{' = '.join(names[offset])} {offset:,}{after}"))
        inside.append(not before and not after)
    labels = placed(texts, axis.length, measure, gap)
    return [
        Mark(same[-1], label, is_inside)
        for same, label, is_inside in zip(names.values(), labels, inside, strict=True)
    ]


def summary(it: PartitionTimeline) -> str:
    """The partition in one line of text."""
    text = counted(it.total, "transaction")
    if it.total:
        parts = [(it.committed, "committed"), (it.aborted, "aborted"), (it.open, "open")]
        text += ": " + ", ".join(f"{count:,} {name}" for count, name in parts if count)
    return f"{text} · {counted(sum(part.plain for part in it.bins), 'plain record')}"


def notes(drawn: Sequence[Lane]) -> list[str]:
    """What must be known to read the lanes, in sentences."""
    texts = []
    by_time = drawn[0].axis.by == "time"
    if any(lane.bars and not lane.is_aggregated for lane in drawn):
        end = "now, or the window's end" if by_time else "the log end"
        texts.append(
            "A bar is a transaction, from its first stored record to its marker, an open one to "
            f"{end}; transactions that overlap lie in rows above each other. Grey below them: records "
            "outside of transactions."
        )
    texts += [_aggregated(lane) for lane in drawn if lane.is_aggregated]
    left_out = sum(lane.timeline.groups_left_out for lane in drawn)
    if left_out:
        texts.append(f"{counted(left_out, 'more group position')} not shown.")
    texts.append(
        "Times (UTC) are those at which records were appended; between two known times "
        + ("an offset is estimated." if by_time else "a time is estimated.")
    )
    return texts


def _aggregated(lane: Lane) -> str:
    it = lane.timeline
    width = it.bins[0].end - it.bins[0].start
    if it.by == "time":
        columns = f"{duration(width)}: the more records, the higher"
    else:
        columns = counted(width, "offset")
    text = (
        f"Partition {it.partition} is aggregated: {it.total:,} transactions are too many (or too many "
        f"overlap) to be drawn one by one. Each of {len(it.bins):,} columns sums up {columns}; its colours "
        "are the shares of what became of the records, markers counted with their transaction. What "
        "aborted or is open is never thinner than can be seen."
    )
    count = len(lane.bars)
    if count:
        text += (
            f" Above them one by one: {count:,} that {'is' if count == 1 else 'are'} long or open."
        )
    return text
