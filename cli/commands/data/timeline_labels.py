"""Where the labels of a picture go: how wide a text is, how it is shortened, which level keeps it clear.

Sizes are inches. Widths are estimates, since a viewer shows an SVG in a font of its own.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Position = tuple[str, int]
"""A group's name as shown, and its offset."""

_NAMES_MAX = 3
_NAME_LENGTH = 28


def width_of(text: str, points: float) -> float:
    """About how wide the text is at this font size."""
    return sum(_em(character) for character in text) * points / 72


def _em(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    return 1.0 if unicodedata.east_asian_width(character) in "WF" else 0.62


def shortened(text: str, most: int) -> str:
    """At most `most` characters: the beginning, and the end, which tells apart the names of a series."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 3
    return text[: most - 1 - tail] + "…" + (text[-tail:] if tail else "")


def fitted(text: str, room: float, points: float) -> str:
    """As much of the text as fits into the room; empty if that is too little to be useful."""
    if width_of(text, points) <= room:
        return text
    per_character = width_of(text, points) / len(text)
    most = int(room / per_character) if per_character else 0
    return shortened(text, most) if most >= 5 else ""


@dataclass(frozen=True, slots=True)
class Label:
    """A text at a place on the axis, `left` its left edge, on a level counted from the axis away."""

    text: str
    x: float
    left: float
    level: int


def placed(texts: Iterable[tuple[float, str]], length: float, points: float) -> list[Label]:
    """The texts centred on their places, moved into [0, length] and onto levels so that none meet."""
    ends: list[float] = []
    labels = []
    for x, text in sorted(texts):
        width = width_of(text, points)
        left = max(0.0, min(x - width / 2, length - width))
        level = next((i for i, end in enumerate(ends) if end <= left), len(ends))
        if level == len(ends):
            ends.append(0.0)
        ends[level] = left + width + 0.1
        labels.append(Label(text, x, left, level))
    return labels


def clustered(
    positions: Sequence[tuple[float, Position]], length: float, points: float, levels: int
) -> list[Label]:
    """One label for all groups that are close together: as close as needed to get few levels."""
    reach = 0.08
    while True:
        clusters: list[list[tuple[float, Position]]] = []
        for x, group in sorted(positions, key=lambda item: (item[0], item[1])):
            if clusters and x - clusters[-1][0][0] <= reach:
                clusters[-1].append((x, group))
            else:
                clusters.append([(x, group)])
        texts = [(cluster[0][0], _cluster_text([g for _, g in cluster])) for cluster in clusters]
        labels = placed(texts, length, points)
        if len(clusters) <= 1 or max(label.level for label in labels) < levels:
            return labels
        reach *= 2


def _cluster_text(groups: Sequence[Position]) -> str:
    low, high = min(g[1] for g in groups), max(g[1] for g in groups)
    at = f"{low:,}" if low == high else f"{low:,}–{high:,}"
    names = ", ".join(shortened(g[0], _NAME_LENGTH) for g in groups[:_NAMES_MAX])
    more = f" and {len(groups) - _NAMES_MAX:,} more" if len(groups) > _NAMES_MAX else ""
    return f"{names}{more} @ {at}"
