"""The scale of a drawing: round ticks, times as words, the heights of the parts of a column, and the
transactions that are drawn above it one by one. Pure, in any unit of length."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from eosdb.model.clock import format_time_ms
from eosdb.model.timeline.timeline import PartitionTimeline, TimelineBin, TransactionSpan, rows

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
