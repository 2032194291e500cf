"""One lane of the picture: what is drawn in it from the bottom up, and how high it is.

Inside a lane one unit up is one inch, so that bars and labels keep their size whatever is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from eosdb.cli.output import cell
from eosdb.model.timeline.scale import KINDS, fullest, heights, moments, standing_out, ticks

from .timeline_labels import clustered, fitted, placed, width_of

if TYPE_CHECKING:
    from eosdb.model.timeline.timeline import PartitionTimeline, TransactionSpan

# Okabe and Ito's colours: distinct for colour-blind readers, and by lightness in print.
COLOURS = {"committed": "#56B4E9", "aborted": "#D55E00", "open": "#F0E442"}
EDGES = {"committed": "#0072B2", "aborted": "#7A3500", "open": "#222222"}
_TEXT = {"committed": "#0B2239", "aborted": "#FFFFFF", "open": "#222222"}
PLAIN, MARKER, GROUP = "#C9CDD4", "#33373D", "#007A5A"
LINES = {"log start": "#6B7280", "LSO": "#8E3B8E", "log end": "#111827"}
STYLES: dict[str, Any] = {"log start": "-", "LSO": (0, (4, 2)), "log end": "-"}

WIDTH, LEFT, RIGHT = 15.0, 0.75, 0.45
LENGTH = WIDTH - LEFT - RIGHT
WORDS, SMALL = 8.0, 7.0
LINE = 0.165
"""The height of a level of labels."""
TICKS = 11
_ROWS_MAX, _STANDING_OUT_MAX = 24, 8
_CHART, _STRIP = 1.2, 0.11
_SEEN = 0.04
"""The least height and width of what must be seen."""
_LABEL_LEVELS = 6


@dataclass(frozen=True, slots=True)
class Window:
    """The offsets, or times, all lanes share, and where on the axis (inches) one of them lies."""

    first: int
    last: int

    @classmethod
    def around(cls, lanes: Sequence[PartitionTimeline]) -> Window:
        """Encloses all windows; a margin, in which lines at their edges are visible, comes to it."""
        axes = [lane.axis for lane in lanes if lane.start < lane.end] or [lanes[0].axis]
        first = min(low for low, _ in axes)
        return cls(first, max(max(high for _, high in axes), first + 1))

    @property
    def _margin(self) -> float:
        return (self.last - self.first) * 0.012

    @property
    def low(self) -> float:
        return self.first - self._margin

    @property
    def high(self) -> float:
        return self.last + self._margin

    @property
    def per_inch(self) -> float:
        return (self.high - self.low) / LENGTH

    def inches(self, place: float) -> float:
        return min(max((place - self.low) / self.per_inch, 0.0), LENGTH)

    def place(self, inches: float) -> float:
        return self.low + inches * self.per_inch

    def ticks(self, by: str) -> tuple[int, ...]:
        """The round places of the axis."""
        return ticks(self.first, self.last, by, TICKS)


def bar_id(lane: PartitionTimeline, span: TransactionSpan) -> str:
    """The id of a transaction's bar in the SVG."""
    return f"transaction-{lane.partition}-{span.producer_id}-{span.first_offset}"


def summary(lane: PartitionTimeline) -> str:
    """The lane in one line of text."""
    spans = f"{lane.total:,} transaction{'' if lane.total == 1 else 's'}"
    if lane.total:
        parts = [(lane.committed, "committed"), (lane.aborted, "aborted"), (lane.open, "open")]
        spans += ": " + ", ".join(f"{count:,} {name}" for count, name in parts if count)
    plain = sum(found.plain for found in lane.bins)
    return f"{spans} · {plain:,} plain record{'' if plain == 1 else 's'}"


class Lane:
    """One partition: its height, and what is drawn in it from the bottom up."""

    def __init__(self, timeline: PartitionTimeline, window: Window, *, is_only: bool) -> None:
        self.timeline = timeline
        self.window = window
        clearance = max(1, round(window.per_inch * _SEEN))
        rows = timeline.rows(clearance)
        self.bars = list(zip(timeline.transactions, rows, strict=True))
        self.aggregated = timeline.aggregated or max(rows, default=0) >= _ROWS_MAX
        if self.aggregated:
            self.bars = standing_out(timeline, clearance, _STANDING_OUT_MAX)
        used = max((row for _, row in self.bars), default=-1) + 1
        self.row = 0.21 if used <= 6 else 0.16 if used <= 12 else 0.12
        positions = [
            (window.inches(self._place(group.offset)), (cell(group.group_id), group.offset))
            for group in timeline.groups
        ]
        self.groups = clustered(positions, LENGTH, SMALL, _LABEL_LEVELS) if positions else []
        self.marks = placed(
            [
                (window.inches(self._place(offset)), self._mark_text(name, offset))
                for offset, name in self._marks()
            ],
            LENGTH,
            SMALL,
        )
        self.is_only = is_only
        levels = 1 + max((label.level for label in self.groups), default=-1)
        self.ground = 0.06 + (0 if is_only else LINE) + (0.15 + levels * LINE if levels else 0)
        """Where the axis is drawn from; the groups are below it, and the second axis of several lanes."""
        body = _CHART if self.aggregated else _STRIP
        self.base = self.ground + body + 0.06
        """Where the rows of bars begin."""
        self.roof = self.base + max(used, 0 if self.aggregated else 2) * self.row
        levels = 1 + max((label.level for label in self.marks), default=0)
        self.height = self.roof + 0.05 + levels * LINE + 0.24

    def _place(self, offset: int) -> float:
        """Where the offset lies on the axis; what is outside of the window lies beyond its edges."""
        it = self.timeline
        if it.by == "time" and it.start == it.end:
            return self.window.low
        if it.by == "offset" or it.start <= offset <= it.end:
            return it.place(offset)
        return float("-inf") if offset < it.start else float("inf")

    def _marks(self) -> list[tuple[int, str]]:
        """The log's own offsets, those that are equal under one name."""
        offsets = self.timeline.offsets
        found: dict[int, str] = {}
        for name, offset in (
            ("log start", offsets.log_start_offset),
            ("LSO", offsets.last_stable_offset),
            ("log end", offsets.log_end_offset),
        ):
            found[offset] = f"{found[offset]} = {name}" if offset in found else name
        return list(found.items())

    def _mark_text(self, name: str, offset: int) -> str:
        place = self._place(offset)
        if place < self.window.low:
            return f"← {name} {offset:,}"
        return f"{name} {offset:,}" + (" →" if place > self.window.high else "")

    def draw(self, axes: Axes) -> None:
        it = self.timeline
        axes.set_xlim(self.window.low, self.window.high)
        axes.set_ylim(0, self.height)
        axes.set_yticks([])
        axes.set_xticks(self.window.ticks(it.by), labels=[])
        axes.tick_params(color="#9CA3AF")
        axes.set_axisbelow(True)
        for side in ("top", "left", "right"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color("#9CA3AF")
        self._background(axes)
        name = f"partition {it.partition}"
        top = self.height - 0.13
        self._write(axes, 0, top, name, fontsize=10, fontweight="bold", color="#111827")
        self._write(
            axes, 0.085 * len(name) + 0.12, top - 0.005, summary(it), fontsize=WORDS + 0.5,
            color="#4B5563",
        )  # fmt: skip
        if it.start == it.end:
            empty = it.offsets.log_start_offset == it.offsets.log_end_offset
            self._write(
                axes, LENGTH / 2, (self.ground + self.roof) / 2,
                "no records" if empty else "no records in this window", ha="center", color="#9CA3AF",
                fontsize=10,
            )  # fmt: skip
        else:
            self._draw_bins(axes)
            for span, row in self.bars:
                self._draw_bar(axes, span, row)
        self._draw_marks(axes)
        self._draw_groups(axes)
        if not self.is_only:
            self._draw_second(axes)

    def _background(self, axes: Axes) -> None:
        it, window = self.timeline, self.window
        first, last = it.axis
        if it.by == "offset":
            first, last = it.offsets.log_start_offset, it.offsets.log_end_offset
        low, high = max(first, window.low), min(last, window.high)
        if high > low:
            box = (low, self.ground), high - low, self.roof - self.ground
            axes.add_patch(Rectangle(*box, facecolor="#F3F5F8", lw=0))
        axes.plot([window.low, window.high], [self.ground] * 2, color="#D5D9E0", lw=0.6, zorder=1)

    def _draw_bins(self, axes: Axes) -> None:
        """A band for each outcome; below transactions that are drawn one by one, plain records alone."""
        it = self.timeline
        high = _CHART if self.aggregated else _STRIP
        columns = heights(it, high, _SEEN if self.aggregated else 0)
        colours = {**COLOURS, "plain": PLAIN} if self.aggregated else {"plain": PLAIN}
        below = [self.ground] * len(columns)
        for kind in KINDS:
            if kind not in colours:
                continue
            above = [y + one.get(kind, 0) for y, one in zip(below, columns, strict=True)]
            if above != below:
                xs = [x for one in it.bins for x in (one.start, one.end)]
                lows, highs = ([y for y in ys for _ in range(2)] for ys in (below, above))
                axes.fill_between(
                    xs, lows, highs, color=colours[kind], lw=0, zorder=2,
                    gid=f"band-{it.partition}-{kind}",
                )  # fmt: skip
            below = above
        if self.aggregated:
            most = "100 %" if it.by == "offset" else f"{fullest(it):,}"
            for y, text in ((self.ground + high - 0.05, most), (self.ground + 0.05, "0")):
                self._write(axes, -0.06, y, text, ha="right", fontsize=SMALL - 1, color="#6B7280")

    def _draw_bar(self, axes: Axes, span: TransactionSpan, row: int) -> None:
        window, height = self.window, self.row * 0.76
        bottom = self.base + row * self.row
        first, last = self.timeline.extent(span)
        ended = span.marker_offset >= 0
        low, high = max(first, window.low), min(last, window.high)
        bar = Rectangle(
            (low, bottom), max(high - low, window.per_inch * _SEEN / (2 if ended else 0.5)), height,
            facecolor=COLOURS[span.outcome], edgecolor=EDGES[span.outcome], lw=0.7,
            ls="-" if ended else "--", zorder=3 if ended else 7, gid=bar_id(self.timeline, span),
        )  # fmt: skip
        axes.add_patch(bar)
        self._name(axes, span, row, bar)
        if ended and window.low <= last <= window.high:
            self._tick(axes, span, last, (bottom, height))

    def _name(self, axes: Axes, span: TransactionSpan, row: int, bar: Rectangle) -> None:
        """The transactional id: in the bar, else before it if it has room there, else in short."""
        name = cell(span.transactional_id or "")
        points = SMALL if self.row > 0.15 else SMALL - 1.2
        left = self.window.inches(bar.get_x())
        room = bar.get_width() / self.window.per_inch - 0.08
        middle = bar.get_y() + bar.get_height() / 2
        ends = [self.timeline.extent(other)[1] for other, at in self.bars if at == row]
        before = max((end for end in ends if end <= bar.get_x()), default=self.window.low)
        free = left - self.window.inches(before) - 0.2
        if width_of(name, points) > room and width_of(name, points) <= free:
            self._write(
                axes, left - 0.06, middle, name, fontsize=points, color="#374151", ha="right",
                zorder=7,
            )  # fmt: skip
        elif text := fitted(name, room, points):
            written = self._write(
                axes,
                left + 0.045,
                middle,
                text,
                fontsize=points,
                color=_TEXT[span.outcome],
                zorder=5,
            )
            written.set_clip_path(bar)

    def _tick(
        self, axes: Axes, span: TransactionSpan, last: float, lies: tuple[float, float]
    ) -> None:
        """A marker: a stroke higher than the bar, crossed for ABORT."""
        bottom, height = lies
        x = last + (0.5 if self.timeline.by == "offset" else 0)
        colour = MARKER if span.outcome == "committed" else EDGES["aborted"]
        axes.plot(
            [x, x], [bottom - 0.015, bottom + height + 0.025], color=colour, lw=1.5, zorder=4,
            solid_capstyle="butt",
        )  # fmt: skip
        if span.outcome == "aborted":
            axes.plot([x], [bottom + height / 2], marker="x", ms=4, mew=1.2, color=colour, zorder=4)

    def _draw_marks(self, axes: Axes) -> None:
        for name, colour in LINES.items():
            offset = next(at for at, names in self._marks() if name in names.split(" = "))
            place = self._place(offset)
            if self.window.low <= place <= self.window.high:
                axes.plot(
                    [place, place], [self.ground - 0.04, self.roof + 0.05], color=colour, lw=1.5,
                    ls=STYLES[name], zorder=6,
                )  # fmt: skip
        for label in self.marks:
            y = self.roof + 0.05 + (label.level + 0.5) * LINE
            kind = next(name for name in reversed(LINES) if name in label.text)
            kind = "LSO" if "LSO" in label.text and "log end" not in label.text else kind
            self._write(axes, label.left, y, label.text, color=LINES[kind])

    def _draw_groups(self, axes: Axes) -> None:
        for label in self.groups:
            x = self.window.place(label.x)
            axes.plot([x], [self.ground - 0.065], marker="^", ms=7, color=GROUP, zorder=7, mew=0)
            y = self.ground - 0.15 - (label.level + 0.5) * LINE
            if label.level:
                axes.plot([x, x], [self.ground - 0.1, y + 0.06], color=GROUP, lw=0.5, zorder=1)
            written = self._write(axes, label.left, y, label.text, color=GROUP, zorder=7)
            written.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85})

    def draw_axis(self, axes: Axes) -> None:
        """The words below the last lane: the axis that all have in common and, of an only lane, the other
        one: times for offsets, offsets for times."""
        by = self.timeline.by
        places = self.window.ticks(by)
        if by == "offset":
            self._write_row(axes, -0.17, "offset", places, [f"{place:,}" for place in places])
            at = -0.33
        else:
            self._write_times(axes, -0.17, places, list(places))
            at = -0.46
        if self.is_only:
            self._draw_second(axes, at)

    def _draw_second(self, axes: Axes, y: float = 0.1) -> None:
        """The other axis, this partition's own."""
        it = self.timeline
        low, high = it.axis
        # What is not yet written has no time.
        high -= it.by == "offset"
        places = [place for place in self.window.ticks(it.by) if low <= place <= high]
        if it.start == it.end:
            return
        if it.by == "offset":
            self._write_times(axes, y, places, [it.time_at(place) for place in places])
        else:
            offsets = [it.offset_at(place) for place in places]
            self._write_row(axes, y, "offset", places, [f"{offset:,}" for offset in offsets])

    def _write_times(
        self, axes: Axes, y: float, places: Sequence[int], times: Sequence[float]
    ) -> None:
        """The day, where it begins, is below its time, or before it where that is inside of a lane."""
        named = moments(times)
        if y > 0:
            words = [f"{day} {time}".strip() for day, time in named]
        else:
            words = [time for _, time in named]
            self._write_row(axes, y - 0.14, "", places, [day for day, _ in named])
        self._write_row(axes, y, "UTC", places, words)

    def _write_row(
        self, axes: Axes, y: float, name: str, places: Sequence[int], words: Sequence[str]
    ) -> None:
        """Words centred below the ticks, the row's name in the margin."""
        style = {"fontsize": WORDS if y < 0 else SMALL, "color": "#374151" if y < 0 else "#6B7280"}
        for place, word in zip(places, words, strict=True):
            if word:
                self._write(axes, self.window.inches(place), y, word, ha="center", **style)
        self._write(axes, 0.08 - LEFT, y, name, fontsize=SMALL, color="#6B7280")

    def _write(self, axes: Axes, x: float, y: float, text: str, **style: Any) -> Text:
        """Text at inches from the lane's left edge and bottom."""
        style = {"fontsize": SMALL, "va": "center", **style}
        return axes.text(self.window.place(x), y, text, **style)
