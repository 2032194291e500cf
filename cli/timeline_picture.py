"""Draws timelines: a lane per partition, offsets from left to right, with Matplotlib and no display.

Inside a lane one unit up is one inch, so that bars and labels keep their size whatever is drawn. This
module is imported only when a picture is requested: Matplotlib is an extra.
"""

from __future__ import annotations

import io
import logging
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator

from .output import cell
from .timeline_labels import clustered, fitted, placed, shortened

if TYPE_CHECKING:
    from eosdb.model.timeline import PartitionTimeline, TimelineBin, TransactionSpan

LANES_MAX = 48
"""Anything higher is too large to look at, and has more pixels than a PNG can be drawn in."""
PNG_DPI = 150

# Okabe and Ito's colours: distinct for colour-blind readers, and by lightness in print.
COLOURS = {"committed": "#56B4E9", "aborted": "#D55E00", "open": "#F0E442"}
_EDGES = {"committed": "#0072B2", "aborted": "#7A3500", "open": "#222222"}
_TEXT = {"committed": "#0B2239", "aborted": "#FFFFFF", "open": "#222222"}
_PLAIN, _MARKER, _GROUP = "#C9CDD4", "#33373D", "#007A5A"
_LINES = {"log start": "#6B7280", "LSO": "#8E3B8E", "log end": "#111827"}
_STYLES = {"log start": "-", "LSO": (0, (4, 2)), "log end": "-"}
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "eosdb",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "axes.unicode_minus": False,
}

_WIDTH, _LEFT, _RIGHT = 15.0, 0.75, 0.45
_LENGTH = _WIDTH - _LEFT - _RIGHT
_HEADER, _GAP = 0.95, 0.18
_WORDS, _SMALL = 8.0, 7.0
_LINE = 0.165
"""The height of a level of labels."""
_ROWS_MAX = 24
_CHART, _MARKERS, _STRIP = 0.95, 0.24, 0.11
_LABEL_LEVELS = 6


@dataclass(frozen=True, slots=True)
class Window:
    """The offsets all lanes share, and where on the axis (inches) one of them lies."""

    low: float
    high: float

    @classmethod
    def around(cls, lanes: Sequence[PartitionTimeline]) -> Window:
        """Encloses all windows, with a margin in which lines at their edges are visible."""
        low = min(lane.start for lane in lanes)
        high = max(max(lane.end for lane in lanes), low + 1)
        margin = (high - low) * 0.012
        return cls(low - margin, high + margin)

    @property
    def per_inch(self) -> float:
        return (self.high - self.low) / _LENGTH

    def inches(self, offset: float) -> float:
        return min(max((offset - self.low) / self.per_inch, 0.0), _LENGTH)

    def offset(self, inches: float) -> float:
        return self.low + inches * self.per_inch


def svg(lanes: Sequence[PartitionTimeline]) -> str:
    """The picture as SVG with text as text; the same lanes give the same bytes."""
    made = io.BytesIO()
    _render(lanes, lambda f: f.savefig(made, format="svg", metadata={"Date": None}))
    return made.getvalue().decode()


def png(lanes: Sequence[PartitionTimeline]) -> bytes:
    made = io.BytesIO()
    _render(lanes, lambda f: f.savefig(made, format="png", dpi=PNG_DPI))
    return made.getvalue()


def bar_id(lane: PartitionTimeline, number: int) -> str:
    """The id of a transaction's bar in the SVG."""
    return f"transaction-{lane.partition}-{number}"


def summary(lane: PartitionTimeline) -> str:
    """The lane in one line of text."""
    spans = f"{lane.total:,} transaction{'' if lane.total == 1 else 's'}"
    if lane.total:
        parts = [(lane.committed, "committed"), (lane.aborted, "aborted"), (lane.open, "open")]
        spans += ": " + ", ".join(f"{count:,} {name}" for count, name in parts if count)
    plain = sum(found.plain for found in lane.bins)
    return f"{spans} · {plain:,} plain record{'' if plain == 1 else 's'}"


def _render(lanes: Sequence[PartitionTimeline], save: Callable[[Figure], object]) -> None:
    # Names may hold characters missing in the font: PNG shows a box for them, SVG the reader's font.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        save(_figure(lanes))


def _figure(lanes: Sequence[PartitionTimeline]) -> Figure:
    window = Window.around(lanes)
    drawn = [_Lane(lane, window) for lane in lanes]
    caption = [line for text in _caption(drawn) for line in textwrap.wrap(text, 205)]
    ticks = 0.32
    footer = 0.42 + ticks + 0.16 * len(caption)
    height = _HEADER + sum(lane.height + _GAP for lane in drawn) + footer
    figure = Figure(figsize=(_WIDTH, height), facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(
        _LEFT / _WIDTH, 1 - 0.36 / height, f"Timeline of {shortened(cell(lanes[0].topic), 100)}",
        fontsize=15, fontweight="bold", color="#111827", va="baseline",
    )  # fmt: skip
    top = height - _HEADER
    for i, lane in enumerate(drawn):
        box = (_LEFT / _WIDTH, (top - lane.height) / height, _LENGTH / _WIDTH, lane.height / height)
        axes = figure.add_axes(box)
        lane.draw(axes)
        last = i == len(drawn) - 1
        axes.tick_params(labelbottom=last, length=3 if last else 0)
        if last:
            axes.set_xlabel("offset", fontsize=_WORDS, labelpad=2)
        top -= lane.height + _GAP
    _legend(figure, height)
    for i, line in enumerate(caption):
        y = (footer - ticks - 0.42 - 0.16 * i) / height
        figure.text(_LEFT / _WIDTH, y, line, fontsize=_SMALL + 0.5, color="#4B5563", va="baseline")
    return figure


def _legend(figure: Figure, height: float) -> None:
    handles: list[Patch | Line2D] = [
        Patch(facecolor=COLOURS[name], edgecolor=_EDGES[name], label=f"{name} transaction",
              linestyle="--" if name == "open" else "-")
        for name in COLOURS
    ]  # fmt: skip
    handles += [
        Patch(facecolor=_PLAIN, label="plain records"),
        Line2D([], [], color=_MARKER, marker="|", ls="", ms=9, mew=1.8, label="COMMIT marker"),
        Line2D([], [], color=_EDGES["aborted"], marker="x", ls="", ms=6, mew=1.6, label="ABORT marker"),
        *(
            Line2D([], [], color=colour, lw=1.5, ls=_STYLES[name], label=name)
            for name, colour in _LINES.items()
        ),
        Line2D([], [], color=_GROUP, marker="^", ls="", ms=7, label="consumer group"),
    ]  # fmt: skip
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(_LEFT / _WIDTH, 1 - 0.47 / height),
        ncols=len(handles), fontsize=_WORDS, frameon=False, borderaxespad=0, borderpad=0,
        handlelength=1.6, handletextpad=0.5, columnspacing=1.5,
    )  # fmt: skip


def _caption(drawn: Sequence[_Lane]) -> list[str]:
    """What a reader must know to understand the lanes."""
    texts = []
    if any(not lane.aggregated for lane in drawn):
        texts.append(
            "A bar is a transaction, from its first stored record to its marker, an open one to the log "
            "end; transactions that overlap lie in rows above each other. Grey below them: records "
            "outside of transactions."
        )
    for lane in drawn:
        if lane.aggregated:
            it = lane.timeline
            texts.append(
                f"Partition {it.partition} is aggregated: {it.total:,} transactions are too many (or too "
                f"many overlap) to be drawn one by one. Each of {len(it.bins):,} columns sums up "
                f"{it.bins[0].end - it.bins[0].start:,} offsets; coloured is the share of them that "
                "holds records of each kind, and below the number of markers in each."
            )
    left_out = sum(lane.timeline.groups_left_out for lane in drawn)
    if left_out:
        texts.append(f"{left_out:,} more group positions are not shown.")
    return texts


class _Lane:
    """One partition: its height, and what is drawn in it from the bottom up."""

    def __init__(self, timeline: PartitionTimeline, window: Window) -> None:
        self.timeline = timeline
        self.window = window
        self.rows = timeline.rows(max(1, round(window.per_inch * 0.035)))
        used = max(self.rows, default=0) + 1
        self.aggregated = timeline.aggregated or used > _ROWS_MAX
        self.row = 0.21 if used <= 6 else 0.16 if used <= 12 else 0.12
        positions = [
            (window.inches(group.offset), (cell(group.group_id), group.offset))
            for group in timeline.groups
        ]
        self.groups = clustered(positions, _LENGTH, _SMALL, _LABEL_LEVELS) if positions else []
        self.marks = placed(
            [
                (window.inches(offset), self._mark_text(name, offset))
                for offset, name in self._marks()
            ],
            _LENGTH,
            _SMALL,
        )
        levels = 1 + max((label.level for label in self.groups), default=-1)
        self.ground = 0.06 + (0.15 + levels * _LINE if levels else 0)
        """Where offsets are drawn from; the groups are below it."""
        self.roof = self.ground + self._body(used)
        levels = 1 + max((label.level for label in self.marks), default=0)
        self.height = self.roof + 0.05 + levels * _LINE + 0.24

    def _body(self, used: int) -> float:
        if self.aggregated:
            return _MARKERS + 0.06 + _CHART
        return _STRIP + 0.06 + max(used, 2) * self.row

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
        if offset < self.window.low:
            return f"← {name} {offset:,}"
        return f"{name} {offset:,}" + (" →" if offset > self.window.high else "")

    def draw(self, axes: Axes) -> None:
        it = self.timeline
        axes.set_xlim(self.window.low, self.window.high)
        axes.set_ylim(0, self.height)
        axes.set_yticks([])
        axes.xaxis.set_major_locator(MaxNLocator(12, integer=True, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{round(x):,}"))
        axes.tick_params(labelsize=_WORDS, color="#9CA3AF", labelcolor="#374151")
        axes.set_axisbelow(True)
        for side in ("top", "left", "right"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color("#9CA3AF")
        self._background(axes)
        name = f"partition {it.partition}"
        top = self.height - 0.13
        self._write(axes, 0, top, name, fontsize=10, fontweight="bold", color="#111827")
        self._write(
            axes, 0.085 * len(name) + 0.12, top - 0.005, summary(it), fontsize=_WORDS + 0.5,
            color="#4B5563",
        )  # fmt: skip
        if it.start == it.end:
            empty = it.offsets.log_start_offset == it.offsets.log_end_offset
            self._write(
                axes, _LENGTH / 2, (self.ground + self.roof) / 2,
                "no records" if empty else "no records in this window", ha="center", color="#9CA3AF",
                fontsize=10,
            )  # fmt: skip
        elif self.aggregated:
            self._draw_bins(axes)
        else:
            self._draw_transactions(axes)
        self._draw_marks(axes)
        self._draw_groups(axes)

    def _background(self, axes: Axes) -> None:
        it, window = self.timeline, self.window
        low = max(it.offsets.log_start_offset, window.low)
        high = min(it.offsets.log_end_offset, window.high)
        height = self.roof - self.ground
        if high > low:
            axes.add_patch(
                Rectangle((low, self.ground), high - low, height, facecolor="#F3F5F8", lw=0)
            )
        axes.plot([window.low, window.high], [self.ground] * 2, color="#D5D9E0", lw=0.6, zorder=1)

    def _draw_transactions(self, axes: Axes) -> None:
        it = self.timeline
        self._area(axes, [found.plain for found in it.bins], self.ground, _STRIP, _PLAIN)
        base = self.ground + _STRIP + 0.06
        for i, (span, row) in enumerate(zip(it.transactions, self.rows, strict=True)):
            self._bar(axes, span, base + row * self.row, bar_id(it, i))

    def _bar(self, axes: Axes, span: TransactionSpan, bottom: float, gid: str) -> None:
        height = self.row * 0.76
        ended = span.marker_offset >= 0
        stop = span.marker_offset if ended else self.timeline.offsets.log_end_offset
        low, high = max(span.first_offset, self.window.low), min(stop, self.window.high)
        bar = Rectangle(
            (low, bottom), max(high - low, 0), height, facecolor=COLOURS[span.outcome],
            edgecolor=_EDGES[span.outcome], lw=0.7, ls="-" if ended else "--", zorder=3, gid=gid,
        )  # fmt: skip
        axes.add_patch(bar)
        room = (high - low) / self.window.per_inch - 0.08
        points = _SMALL if self.row > 0.15 else _SMALL - 1.2
        text = fitted(cell(span.transactional_id or ""), room, points)
        if text:
            written = self._write(
                axes, self.window.inches(low) + 0.045, bottom + height / 2, text, fontsize=points,
                color=_TEXT[span.outcome], zorder=5,
            )  # fmt: skip
            written.set_clip_path(bar)
        if ended and self.window.low <= span.marker_offset <= self.window.high:
            self._tick(axes, span, bottom, height)

    def _tick(self, axes: Axes, span: TransactionSpan, bottom: float, height: float) -> None:
        """A marker: a stroke higher than the bar, crossed for ABORT."""
        x = span.marker_offset + 0.5
        colour = _MARKER if span.outcome == "committed" else _EDGES["aborted"]
        axes.plot(
            [x, x], [bottom - 0.015, bottom + height + 0.025], color=colour, lw=1.5, zorder=4,
            solid_capstyle="butt",
        )  # fmt: skip
        if span.outcome == "aborted":
            axes.plot([x], [bottom + height / 2], marker="x", ms=4, mew=1.2, color=colour, zorder=4)

    def _draw_bins(self, axes: Axes) -> None:
        bins = self.timeline.bins
        kinds: list[tuple[str, Callable[[TimelineBin], int]]] = [
            (COLOURS["committed"], lambda found: found.committed),
            (COLOURS["aborted"], lambda found: found.aborted),
            (COLOURS["open"], lambda found: found.open),
            (_PLAIN, lambda found: found.plain),
            (_MARKER, lambda found: found.commit_markers + found.abort_markers),
        ]
        base = self.ground + _MARKERS + 0.06
        below = [0] * len(bins)
        for colour, count in kinds:
            counts = [count(found) for found in bins]
            self._area(axes, counts, base, _CHART, colour, below)
            below = [a + b for a, b in zip(below, counts, strict=True)]
        most = max(found.commit_markers + found.abort_markers for found in bins)
        self._scale(axes, base, _CHART, "100 %", "0")
        if most:
            self._scale(axes, self.ground, _MARKERS, f"{most:,}", "")
            commits = [found.commit_markers for found in bins]
            aborts = [found.abort_markers for found in bins]
            self._area(axes, commits, self.ground, _MARKERS, _MARKER, whole=most)
            self._area(axes, aborts, self.ground, _MARKERS, COLOURS["aborted"], commits, most)

    def _area(
        self,
        axes: Axes,
        counts: Sequence[int],
        bottom: float,
        height: float,
        colour: str,
        below: Sequence[int] | None = None,
        whole: int = 0,
    ) -> None:
        """Counts per bin as one area, as high as their share of the bin's offsets, or of `whole`."""
        if not any(counts):
            return
        bins = self.timeline.bins
        xs, lows, highs = list[float](), list[float](), list[float]()
        for found, count, under in zip(bins, counts, below or [0] * len(bins), strict=True):
            unit = height / (whole or found.end - found.start)
            xs += [found.start, found.end]
            lows += [bottom + under * unit] * 2
            highs += [bottom + (under + count) * unit] * 2
        axes.fill_between(xs, lows, highs, color=colour, lw=0, zorder=2)

    def _scale(self, axes: Axes, bottom: float, height: float, most: str, least: str) -> None:
        for y, text in ((bottom + height - 0.05, most), (bottom + 0.05, least)):
            self._write(axes, -0.06, y, text, ha="right", fontsize=_SMALL - 1, color="#6B7280")

    def _draw_marks(self, axes: Axes) -> None:
        for name, colour in _LINES.items():
            offset = next(at for at, names in self._marks() if name in names.split(" = "))
            if self.window.low <= offset <= self.window.high:
                axes.plot(
                    [offset, offset], [self.ground - 0.04, self.roof + 0.05], color=colour, lw=1.5,
                    ls=_STYLES[name], zorder=6,
                )  # fmt: skip
        for label in self.marks:
            y = self.roof + 0.05 + (label.level + 0.5) * _LINE
            kind = next(name for name in reversed(_LINES) if name in label.text)
            kind = "LSO" if "LSO" in label.text and "log end" not in label.text else kind
            self._write(axes, label.left, y, label.text, color=_LINES[kind])

    def _draw_groups(self, axes: Axes) -> None:
        for label in self.groups:
            x = self.window.offset(label.x)
            axes.plot([x], [self.ground - 0.065], marker="^", ms=7, color=_GROUP, zorder=7, mew=0)
            y = self.ground - 0.15 - (label.level + 0.5) * _LINE
            if label.level:
                axes.plot([x, x], [self.ground - 0.1, y + 0.06], color=_GROUP, lw=0.5, zorder=1)
            written = self._write(axes, label.left, y, label.text, color=_GROUP, zorder=7)
            written.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85})

    def _write(self, axes: Axes, x: float, y: float, text: str, **style: Any) -> Text:
        """Text at inches from the lane's left edge and bottom."""
        style = {"fontsize": _SMALL, "va": "center", **style}
        return axes.text(self.window.offset(x), y, text, **style)
