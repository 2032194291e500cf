"""What lies where in a drawing of a topic: one axis for all lanes, and for each partition a lane with its
transactions, the offsets of its log and its consumer groups. Pure, in any unit of length: the picture
counts pixels, a terminal columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from eosdb.model.timeline.labels import Label, Measure, clustered, placed
from eosdb.model.timeline.scale import moments, standing_out, ticks
from eosdb.model.timeline.timeline import PartitionTimeline, TransactionSpan
from eosdb.model.words import counted, duration, printable

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
