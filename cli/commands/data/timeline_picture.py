"""Draws timelines: a lane per partition, offsets or time from left to right, with Matplotlib and no
display. It is imported only when a picture is requested: Matplotlib is an extra.
"""

from __future__ import annotations

import io
import logging
import textwrap
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from eosdb.cli.output import cell

from .timeline_labels import shortened
from .timeline_lane import (
    COLOURS,
    EDGES,
    GROUP,
    LEFT,
    LENGTH,
    LINES,
    MARKER,
    PLAIN,
    SMALL,
    STYLES,
    WIDTH,
    WORDS,
    Lane,
    Window,
)

if TYPE_CHECKING:
    from eosdb.model.timeline.timeline import PartitionTimeline

LANES_MAX = 48
"""Anything higher is too large to look at, and has more pixels than a PNG can be drawn in."""
PNG_DPI = 150

_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "eosdb",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "axes.unicode_minus": False,
}

_HEADER, _GAP = 0.82, 0.18


def svg(lanes: Sequence[PartitionTimeline]) -> str:
    """The picture as SVG with text as text; the same lanes give the same bytes."""
    made = io.BytesIO()
    _render(lanes, lambda f: f.savefig(made, format="svg", metadata={"Date": None}))
    return made.getvalue().decode()


def png(lanes: Sequence[PartitionTimeline]) -> bytes:
    made = io.BytesIO()
    _render(lanes, lambda f: f.savefig(made, format="png", dpi=PNG_DPI))
    return made.getvalue()


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
    drawn = [Lane(lane, window, is_only=len(lanes) == 1) for lane in lanes]
    caption = [line for text in _caption(drawn) for line in textwrap.wrap(text, 205)]
    ticks = 0.62
    footer = ticks + 0.2 + 0.16 * len(caption)
    height = _HEADER + sum(lane.height + _GAP for lane in drawn) + footer
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(
        LEFT / WIDTH, 1 - 0.36 / height, f"Timeline of {shortened(cell(lanes[0].topic), 100)}",
        fontsize=15, fontweight="bold", color="#111827", va="baseline",
    )  # fmt: skip
    top = height - _HEADER
    for i, lane in enumerate(drawn):
        box = (LEFT / WIDTH, (top - lane.height) / height, LENGTH / WIDTH, lane.height / height)
        axes = figure.add_axes(box)
        lane.draw(axes)
        is_last = i == len(drawn) - 1
        axes.tick_params(length=3 if is_last else 0)
        if is_last:
            lane.draw_axis(axes)
        top -= lane.height + _GAP
    _legend(figure, height, has_bars=any(lane.bars for lane in drawn))
    for i, line in enumerate(caption):
        y = (footer - ticks - 0.16 * i) / height
        figure.text(LEFT / WIDTH, y, line, fontsize=SMALL + 0.5, color="#4B5563", va="baseline")
    return figure


def _legend(figure: Figure, height: float, *, has_bars: bool) -> None:
    handles: list[Patch | Line2D] = [
        Patch(facecolor=COLOURS[name], edgecolor=EDGES[name], label=name,
              linestyle="--" if name == "open" else "-")
        for name in COLOURS
    ]  # fmt: skip
    handles.append(Patch(facecolor=PLAIN, label="outside of transactions"))
    if has_bars:
        aborted = EDGES["aborted"]
        handles += [
            Line2D([], [], color=MARKER, marker="|", ls="", ms=9, mew=1.8, label="COMMIT marker"),
            Line2D([], [], color=aborted, marker="x", ls="", ms=6, mew=1.6, label="ABORT marker"),
        ]
    handles += [
        *(
            Line2D([], [], color=colour, lw=1.5, ls=STYLES[name], label=name)
            for name, colour in LINES.items()
        ),
        Line2D([], [], color=GROUP, marker="^", ls="", ms=7, label="consumer group"),
    ]
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(LEFT / WIDTH, 1 - 0.47 / height),
        ncols=len(handles), fontsize=WORDS, frameon=False, borderaxespad=0, borderpad=0,
        handlelength=1.6, handletextpad=0.5, columnspacing=1.5,
    )  # fmt: skip


def _caption(drawn: Sequence[Lane]) -> list[str]:
    """What a reader must know to understand the lanes."""
    texts = []
    by_time = drawn[0].timeline.by == "time"
    if any(lane.bars and not lane.aggregated for lane in drawn):
        end = "now, or the window's end" if by_time else "the log end"
        texts.append(
            "A bar is a transaction, from its first stored record to its marker, an open one to "
            f"{end}; transactions that overlap lie in rows above each other. Grey below them: records "
            "outside of transactions."
        )
    for lane in drawn:
        if lane.aggregated:
            texts.append(_aggregated(lane))
    left_out = sum(lane.timeline.groups_left_out for lane in drawn)
    if left_out:
        texts.append(f"{left_out:,} more group positions are not shown.")
    texts.append(
        "Times are those at which records were appended; between two known ones "
        + ("an offset is estimated." if by_time else "a time is estimated.")
    )
    return texts


def _aggregated(lane: Lane) -> str:
    it = lane.timeline
    width = it.bins[0].end - it.bins[0].start
    if it.by == "time":
        columns = (
            f"{width / 1000:,.3f}".rstrip("0").rstrip(".") + " s: as high as its records are many"
        )
    else:
        columns = f"{width:,} offset{'' if width == 1 else 's'}"
    text = (
        f"Partition {it.partition} is aggregated: {it.total:,} transactions are too many (or too many "
        f"overlap) to be drawn one by one. Each of {len(it.bins):,} columns sums up {columns}; its colours "
        "are the shares of what became of the records, markers counted with their transaction. What "
        "aborted or is open is never thinner than can be seen."
    )
    if lane.bars:
        text += (
            f" Above them one by one: {len(lane.bars):,} that {'is' if len(lane.bars) == 1 else 'are'} "
            "long or open."
        )
    return text
