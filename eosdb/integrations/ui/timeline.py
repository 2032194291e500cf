"""A partition's transactions as an SVG picture: offsets along the axis with the times below them, or the
other way round.

A few transactions are bars, each a link to itself; many are columns, each a part of the axis in the colours
of what became of its records and a link into it, with the long and the open transactions as bars above. So
the picture has some hundred elements whatever there is to show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from eosdb.database import Database
from eosdb.integrations.ui.text import moment
from eosdb.model.clock import format_time_ms
from eosdb.model.timeline.scale import heights, moments, standing_out, ticks
from eosdb.model.timeline.timeline import PartitionTimeline, TransactionSpan

WIDTH: Final = 1_160
MARGIN: Final = 20
COLUMNS: Final = 290
BARS: Final = 150
ROW: Final = 16
CHART: Final = 130
_ROWS_MAX: Final = 16
_STANDING_OUT_MAX: Final = 6
_TICKS: Final = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """A rectangle of the picture, which leads to a transaction, or to the part [start, end) of the axis."""

    x: float
    y: float
    width: float
    height: float
    fate: str
    title: str
    start: int
    end: int
    transactional_id: str | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """A line across the picture: an offset and its time, or a mark such as the LSO."""

    x: float
    offset: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture, ready for the template."""

    timeline: PartitionTimeline
    height: float
    shapes: tuple[Shape, ...]
    ticks: tuple[Tick, ...]
    marks: tuple[Tick, ...]
    is_aggregated: bool

    @property
    def is_part(self) -> bool:
        """Whether some of the log lies outside."""
        it = self.timeline
        return (it.start, it.end) != (it.offsets.log_start_offset, it.offsets.log_end_offset)

    @property
    def window(self) -> tuple[str, str]:
        """The axis as a form shows it and takes it: offsets, or times."""
        return self._worded(*self.timeline.axis)

    @property
    def halves(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The windows to the left and to the right of this one."""
        low, high = self.timeline.axis
        width = max(high - low, 1)
        return self._worded(max(low - width, 0), low), self._worded(high, high + width)

    def _worded(self, low: int, high: int) -> tuple[str, str]:
        if self.timeline.by == "offset":
            return str(low), str(high)
        return format_time_ms(low, "milliseconds"), format_time_ms(high, "milliseconds")


def draw(
    db: Database, topic: str, partition: int, start: int | None, end: int | None, by: str = "offset"
) -> Drawn:
    """`start` and `end` are offsets, or by="time" times (epoch ms); None for all there is.

    Raises UnknownTopicOrPartitionError, TopicAuthorizationFailedError and InvalidRequestError.
    """
    window = {"start": start, "end": end} if by == "offset" else {"since": start, "until": end}
    (found,) = db.admin.timeline(
        topic, partition, by=by, **window, max_transactions=BARS, max_bins=COLUMNS
    )
    return picture(found)


def picture(found: PartitionTimeline) -> Drawn:
    """Lay the shapes out."""
    low, high = found.axis
    axis = _Axis(low, max(high, low + 1))
    clearance = max(1, round(3 * axis.per_pixel))
    rows = found.rows(clearance)
    is_aggregated = found.aggregated or max(rows, default=0) >= _ROWS_MAX
    bars = list(zip(found.transactions, rows, strict=True))
    if is_aggregated:
        bars = standing_out(found, clearance, _STANDING_OUT_MAX)
    height = float((max((row for _, row in bars), default=-1) + 1) * ROW)
    shapes = list(_bars(found, bars, axis))
    if is_aggregated:
        height += CHART
        shapes += _columns(found, axis, height)
    height = max(height, 2.0 * ROW)
    lines = tuple(_ticks(found, axis))
    return Drawn(found, height, tuple(shapes), lines, tuple(_marks(found, axis)), is_aggregated)


@dataclass(frozen=True, slots=True)
class _Axis:
    low: int
    high: int

    @property
    def per_pixel(self) -> float:
        return (self.high - self.low) / (WIDTH - 2 * MARGIN)

    def x(self, offset: float) -> float:
        inside = min(max(offset, self.low), self.high)
        return round(MARGIN + (inside - self.low) / self.per_pixel, 2)


def _bars(
    found: PartitionTimeline, bars: list[tuple[TransactionSpan, int]], axis: _Axis
) -> Iterator[Shape]:
    for span, row in bars:
        first, last = found.extent(span)
        if found.by == "offset" and span.marker_offset >= 0:
            last += 1
        x = axis.x(first)
        width = max(axis.x(last) - x, 3.0)
        name = span.transactional_id or f"producer {span.producer_id}"
        label = name if 7 * len(name) < width - 6 else ""
        yield Shape(
            x, row * ROW + 1, width, ROW - 3, span.outcome, _title(span), first, last + 1,
            span.transactional_id, label,
        )  # fmt: skip


def _title(span: TransactionSpan) -> str:
    name = span.transactional_id or f"producer {span.producer_id}"
    where = f"from offset {span.first_offset}, {moment(span.first_ms)}"
    if span.marker_offset >= 0:
        where = (
            f"offsets {span.first_offset} to {span.marker_offset}, "
            f"{moment(span.first_ms)} to {moment(span.marker_ms)}"
        )
    return f"{name}: {span.outcome}, {span.records} records, {where}"


def _columns(found: PartitionTimeline, axis: _Axis, bottom: float) -> Iterator[Shape]:
    for one, parts in zip(found.bins, heights(found, CHART - 8, 3.0), strict=True):
        if not parts:
            continue
        x = axis.x(one.start)
        width = max(axis.x(one.end) - x - 0.4, 1.0)
        counts = (
            (one.aborted, "aborted"), (one.open, "open"), (one.committed, "committed"),
            (one.plain, "plain"), (one.commit_markers + one.abort_markers, "markers"),
        )  # fmt: skip
        where = f"offsets {one.start} to {one.end - 1}"
        if found.by == "time":
            where = f"{moment(one.start)}, from offset {one.first_offset}"
        title = f"{where}: " + ", ".join(f"{count} {name}" for count, name in counts if count)
        y = bottom
        for fate, height in parts.items():
            y -= height
            yield Shape(x, round(y, 2), width, round(height, 2), fate, title, one.start, one.end)


def _ticks(found: PartitionTimeline, axis: _Axis) -> Iterator[Tick]:
    """The day is written where it begins, and a time only where it is another than the one before."""
    if found.start == found.end:
        return
    places = ticks(axis.low, axis.high, found.by, _TICKS)
    if found.by == "offset":
        offsets = list(places)
        times = [found.time_at(place) for place in places if place < found.end]
    else:
        offsets, times = [found.offset_at(place) for place in places], list[float](places)
    # What is not yet written has no time.
    names = [f"{day} {time}".strip() for day, time in moments(times)]
    names += [""] * (len(places) - len(names))
    for place, offset, name in zip(places, offsets, names, strict=True):
        yield Tick(axis.x(place), offset, name)


def _marks(found: PartitionTimeline, axis: _Axis) -> Iterator[Tick]:
    """The log's own offsets and the groups' positions in the window; those at one offset together."""
    offsets = found.offsets
    named = [
        (offsets.log_start_offset, "log start"),
        (offsets.last_stable_offset, "LSO"),
        (offsets.log_end_offset, "log end"),
        *((group.offset, group.group_id) for group in found.groups),
    ]
    by_offset: dict[int, list[str]] = {}
    for offset, name in named:
        if found.start <= offset <= found.end:
            by_offset.setdefault(offset, []).append(name)
    for offset, names in sorted(by_offset.items()):
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield Tick(axis.x(found.place(offset)), offset, ", ".join(names[:3]) + more)
