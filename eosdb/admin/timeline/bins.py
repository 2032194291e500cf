"""Collects the results of a scan of a partition: counts in bins, transactions while they are few, and
the longest ones. Pure, and of bounded size however long the log is."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from eosdb.errors import InvalidRequestError
from eosdb.model.timeline.timeline import BY, TimelineBin
from eosdb.model.validation import check_int

MAX_TRANSACTIONS: Final = 300
MAX_BINS: Final = 480
MAX_LONGEST: Final = 40
"""How many transactions are listed if there are too many to list all."""
_LONG: Final = 100
"""The fraction of the axis that a long transaction covers at least."""

OUTCOMES: Final = {"COMMIT": "committed", "ABORT": "aborted", None: "open"}
_COLUMNS: Final = ("committed", "aborted", "open", "plain", "COMMIT", "ABORT")
"""The counters of a bin."""


class Window(NamedTuple):
    """The requested window: offsets and times (epoch ms), None for no bound, and limits of the result."""

    by: str = "offset"
    start: int | None = None
    end: int | None = None
    since: int | None = None
    until: int | None = None
    max_transactions: int = MAX_TRANSACTIONS
    max_bins: int = MAX_BINS

    def check(self) -> None:
        """Raises InvalidRequestError for an unknown axis, an invalid range, and for limits below their
        minimum."""
        if self.by not in BY:
            raise InvalidRequestError(f"by: got {self.by!r}, expected one of {', '.join(BY)}")
        for first, last, what in (("start", "end", "an offset"), ("since", "until", "a time")):
            low, high = getattr(self, first), getattr(self, last)
            for name, value in ((first, low), (last, high)):
                if value is not None:
                    check_int(name, value, 0)
            if low is not None and high is not None and high < low:
                raise InvalidRequestError(
                    f"{last}: got {high}, expected {what} of at least {first}, {low}"
                )
        check_int("max_transactions", self.max_transactions, 0)
        check_int("max_bins", self.max_bins, 1, 100_000)


@dataclass(slots=True)
class Span:
    """A transaction as far as the scan has seen it."""

    producer_id: int
    first: int
    first_ms: int
    marker: int = -1
    marker_ms: int = -1
    records: int = 0
    outcome: str = "open"
    by_bin: dict[int, int] = field(default_factory=dict)


def in_order(span: Span) -> tuple[int, int]:
    return span.first, span.marker


class Bins:
    """Counters along an axis of offsets or of time."""

    def __init__(self, axis: tuple[int, int], by: str, most: int) -> None:
        self.start, self.end = axis
        self.by_time = by == "time"
        size = self.end - self.start
        self.width = max(1, -(-size // most))
        count = -(-size // self.width)
        self._counts = [dict.fromkeys(_COLUMNS, 0) for _ in range(count)]
        self._firsts: list[tuple[int, int]] = [(-1, -1)] * count

    def parts(self, offsets: tuple[int, int], time_ms: int) -> list[tuple[int, int]]:
        """Yield the bins that contain these offsets, appended at this time, and the number of offsets in
        each."""
        if self.by_time:
            if offsets[0] >= offsets[1] or not self._counts:
                return []
            # A clock that was set back must not lose a record.
            inside = min(max(time_ms, self.start), self.end - 1)
            touched = [((inside - self.start) // self.width, offsets[1] - offsets[0])]
        else:
            touched = list(self._split(max(offsets[0], self.start), min(offsets[1], self.end)))
        for number, _ in touched:
            if self._firsts[number][0] < 0:
                edge = 0 if self.by_time else self.start + number * self.width
                self._firsts[number] = (max(offsets[0], edge), time_ms)
        return touched

    def _split(self, at: int, stop: int) -> Iterator[tuple[int, int]]:
        while at < stop:
            number = (at - self.start) // self.width
            edge = min(stop, self.start + (number + 1) * self.width)
            yield number, edge - at
            at = edge

    def add(self, column: str, parts: Iterable[tuple[int, int]]) -> None:
        for number, count in parts:
            self._counts[number][column] += count

    def made(self) -> tuple[TimelineBin, ...]:
        edges = range(self.start, self.end, self.width)
        return tuple(
            TimelineBin(edge, min(edge + self.width, self.end), offset, time_ms, *counts.values())
            for edge, counts, (offset, time_ms) in zip(
                edges, self._counts, self._firsts, strict=True
            )
        )


class Collector:
    """The results of a scan: totals and bins always, transactions while they are few, otherwise the
    longest."""

    def __init__(self, offsets: tuple[int, int], window: Window, bins: Bins) -> None:
        self.start, self.end = offsets
        self.totals = dict.fromkeys(OUTCOMES.values(), 0)
        self.spans: list[Span] = []
        self.bins = bins
        self._room = window.max_transactions
        self._long: list[tuple[int, int, Span]] = []
        self._open: list[Span] = []

    def parts(self, at: int, after: int, time_ms: int) -> list[tuple[int, int]]:
        """Yield the bins of the offsets [at, after) that are inside the window."""
        return self.bins.parts((max(at, self.start), min(after, self.end)), time_ms)

    def finish(self, span: Span) -> None:
        """Add a finished transaction."""
        self.bins.add(span.outcome, span.by_bin.items())
        if span.first >= self.end or 0 <= span.marker < self.start:
            return
        self.totals[span.outcome] += 1
        if sum(self.totals.values()) <= self._room:
            self.spans.append(span)
        else:
            self.spans.clear()
        if span.marker < 0:
            self._open.append(span)
        elif self._length(span) * _LONG >= self.bins.end - self.bins.start:
            keep = heapq.heappush if len(self._long) < MAX_LONGEST else heapq.heappushpop
            keep(self._long, (self._length(span), span.marker, span))

    def _length(self, span: Span) -> int:
        if self.bins.by_time:
            return min(span.marker_ms, self.bins.end) - max(span.first_ms, self.bins.start)
        return min(span.marker, self.end) - max(span.first, self.start)

    def longest(self) -> list[Span]:
        """Return the longest transactions, unless all are listed."""
        if len(self.spans) == sum(self.totals.values()):
            return []
        long = [span for *_, span in self._long]
        return self._open[:MAX_LONGEST] + long
