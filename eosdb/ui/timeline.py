"""A partition's transactions as an SVG picture: offsets along the axis, with the times below them.

A few transactions are bars, each a link to itself; many are columns, each a share of the offsets in the
colour of what became of them, and a link into its part of the log. So the picture has some hundred
elements whatever there is to show, and long transactions stand out from among 20,000.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from eosdb.database import Database
from eosdb.model.timeline import PartitionTimeline, TimelineBin, TransactionSpan
from eosdb.model.values import TopicPartition
from eosdb.ui.text import moment

WIDTH: Final = 1_160
MARGIN: Final = 20
COLUMNS: Final = 290
BARS: Final = 150
ROW: Final = 16
CHART: Final = 130
_ROWS_MAX: Final = 16
_TICKS: Final = 8
_TIME: Final = (
    "SELECT timestamp FROM all_records WHERE topic = ? AND partition = ? "
    'AND "offset" >= ? AND "offset" < ? ORDER BY "offset" LIMIT 1'
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A rectangle of the picture, which leads to a part of the log or to a transaction."""

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
    """A line across the picture: an offset of the axis and the time of its record, or a mark such as the
    LSO."""

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
    def halves(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The windows to the left and to the right of this one."""
        it = self.timeline
        width = max(it.end - it.start, 1)
        return (max(it.start - width, 0), it.start), (it.end, it.end + width)


def draw(db: Database, topic: str, partition: int, start: int | None, end: int | None) -> Drawn:
    """Raises UnknownTopicOrPartitionError, TopicAuthorizationFailedError and InvalidRequestError."""
    (found,) = db.admin.timeline(
        topic, partition, start=start, end=end, max_transactions=BARS, max_bins=COLUMNS
    )

    def time_of(offset: int) -> int:
        high = found.offsets.log_end_offset
        rows = list(db.query(_TIME, (*TopicPartition(topic, partition), offset, high)).rows)
        return int(rows[0][0]) if rows else -1

    return picture(found, time_of)


def picture(found: PartitionTimeline, time_of: Callable[[int], int]) -> Drawn:
    """Lay the shapes out; `time_of` gives the time of the first record from an offset on, -1 for none."""
    axis = _Axis(found.start, max(found.end, found.start + 1))
    rows = found.rows(max(1, round(3 * axis.per_pixel)))
    is_aggregated = found.aggregated or max(rows, default=0) >= _ROWS_MAX
    if is_aggregated:
        shapes, height = tuple(_columns(found.bins, axis)), float(CHART)
    else:
        shapes = tuple(_bars(found, rows, axis))
        height = float(max((max(rows, default=0) + 1) * ROW, 2 * ROW))
    ticks = tuple(_times(_ticks(found.start, found.end), axis, time_of))
    return Drawn(found, height, shapes, ticks, tuple(_marks(found, axis)), is_aggregated)


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


def _bars(found: PartitionTimeline, rows: Sequence[int], axis: _Axis) -> Iterator[Shape]:
    end = found.offsets.log_end_offset
    for span, row in zip(found.transactions, rows, strict=True):
        last = end if span.marker_offset < 0 else span.marker_offset + 1
        x = axis.x(span.first_offset)
        width = max(axis.x(last) - x, 3.0)
        name = span.transactional_id or f"producer {span.producer_id}"
        label = name if 7 * len(name) < width - 6 else ""
        yield Shape(
            x, row * ROW + 1, width, ROW - 3, span.outcome, _title(span), span.first_offset, last,
            span.transactional_id, label,
        )  # fmt: skip


def _title(span: TransactionSpan) -> str:
    name = span.transactional_id or f"producer {span.producer_id}"
    where = f"from offset {span.first_offset}"
    if span.marker_offset >= 0:
        where = f"offsets {span.first_offset} to {span.marker_offset}"
    return f"{name}: {span.outcome}, {span.records} records, {where}"


def _columns(bins: Sequence[TimelineBin], axis: _Axis) -> Iterator[Shape]:
    for one in bins:
        if not one.stored:
            continue
        x = axis.x(one.start)
        width = max(axis.x(one.end) - x - 0.4, 1.0)
        parts = (
            ("open", one.open), ("aborted", one.aborted), ("committed", one.committed),
            ("plain", one.plain),
        )  # fmt: skip
        markers = one.commit_markers + one.abort_markers
        title = f"offsets {one.start} to {one.end - 1}: " + ", ".join(
            f"{count} {name}" for name, count in (*parts, ("markers", markers)) if count
        )
        y, whole = float(CHART), max(one.stored - markers, 1)
        # Every transaction has a marker, so the markers say nothing more.
        for fate, count in (*reversed(parts), ("marker", 0 if one.stored > markers else markers)):
            if count:
                # What is rare must be seen: an aborted record among thousands has a height, too.
                height = max(
                    count / whole * (CHART - 8), 3.0 if fate in ("open", "aborted") else 0.6
                )
                y -= height
                yield Shape(x, y, width, height, fate, title, one.start, one.end)


def _ticks(start: int, end: int) -> list[int]:
    """Round offsets, about eight of them."""
    width = max(end - start, 1)
    steps = [base * 10**power for power in range(16) for base in (1, 2, 5)]
    step = steps[min(bisect_left(steps, width / _TICKS), len(steps) - 1)]
    return list(range(-(-start // step) * step, end + 1, step))


def _times(offsets: Sequence[int], axis: _Axis, time_of: Callable[[int], int]) -> Iterator[Tick]:
    """The day is written where it begins, and a time only where it is another than the one before."""
    day = time = ""
    for at in offsets:
        before, ms = (day, time), time_of(at)
        if ms >= 0:
            day, _, time = moment(ms).partition("T")
        name = "" if (day, time) == before else f"{day} {time}" if day != before[0] else time
        yield Tick(axis.x(at), at, name.rstrip("Z"))


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
        yield Tick(axis.x(offset), offset, ", ".join(names[:3]) + more)
