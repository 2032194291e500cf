"""What every drawer of a timeline needs and none should decide for itself: round ticks, times as words,
how high the parts of a column are, which transactions stand out above it. Pure, in any unit of length."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from eosdb.model.clock import format_time_ms
from eosdb.model.timeline.timeline import PartitionTimeline, TimelineBin, TransactionSpan, rows

KINDS: Final = ("aborted", "open", "committed", "plain")
"""The parts of a column from the bottom up: what is rare lies where heights are compared best."""
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
    """For each time (epoch ms, ascending) its day, where that begins, and its time of day (UTC), where it
    differs from the one before; "" if not. Milliseconds are told of where the times are close."""
    whole = [round(time) for time in times]
    close = len(whole) < 2 or whole[-1] - whole[0] < _S * len(whole)
    timespec = "milliseconds" if close and any(time % _S for time in whole) else "seconds"
    found = []
    before = ("", "")
    for time in whole:
        day, _, clock = format_time_ms(time, timespec).rstrip("Z").partition("T")
        is_new = (day, clock) != before
        found.append((day if day != before[0] else "", clock if is_new else ""))
        before = day, clock
    return found


def heights(timeline: PartitionTimeline, height: float, least: float) -> list[dict[str, float]]:
    """For each bin how high each of KINDS is in it, a marker counted with the outcome it gave.

    Along offsets that is the share of the bin's offsets; along time the number of records, the fullest bin
    being as high as `height`. What is rare but matters, aborted and open, has at least `least`.
    """
    counts = [_counts(one) for one in timeline.bins]
    most = max((sum(found.values()) for found in counts), default=0)
    made = []
    for one, found in zip(timeline.bins, counts, strict=True):
        unit = height / max(one.end - one.start if timeline.by == "offset" else most, 1)
        parts = {
            kind: max(count * unit, least if kind in _RARE else least / 3)
            for kind, count in found.items()
            if count
        }
        surplus = sum(parts.values()) - height
        if surplus > 0:
            highest = max(parts, key=lambda kind: parts[kind])
            parts[highest] -= surplus
        made.append(parts)
    return made


def _counts(one: TimelineBin) -> dict[str, int]:
    return {
        "aborted": one.aborted + one.abort_markers,
        "open": one.open,
        "committed": one.committed + one.commit_markers,
        "plain": one.plain,
    }


def fullest(timeline: PartitionTimeline) -> int:
    """How many records the fullest bin holds, markers included."""
    return max((one.stored for one in timeline.bins), default=0)


def standing_out(
    timeline: PartitionTimeline, clearance: float, most_rows: int
) -> list[tuple[TransactionSpan, int]]:
    """Of too many transactions those to draw one by one nevertheless, and each one's row: the open and
    the long ones, as many as find room in `most_rows` rows."""
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
        found = rows([timeline.extent(span) for span in kept], clearance)
        if max(found, default=0) < most_rows:
            break
        kept.remove(dropped)
    return list(zip(kept, rows([timeline.extent(span) for span in kept], clearance), strict=True))
