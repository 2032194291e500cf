"""Where the labels of a drawing go: how much of a text fits, and which level keeps it clear of the others.

Lengths are in any unit; a `Measure` gives the width of a text in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from eosdb.model.words import shortened

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
