"""The transactions of one partition along its offsets or along time: the values of which a picture is made.

`Database.admin.timeline` returns them. They contain plain numbers and names only.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from eosdb.model.values import PartitionOffsets

BY: Final = ("offset", "time")
"""What the axis of a timeline counts."""
_LONG: Final = 100
"""A transaction stands out if it takes at least this part of the axis."""


@dataclass(frozen=True, slots=True)
class TransactionSpan:
    """One transaction in one partition: [first_offset, marker_offset].

    `first_offset` is that of its first record still stored, or the marker's own if retention or
    compaction has left none; `records` counts the stored ones, without the marker. An open transaction
    has no marker: `marker_offset` -1; it begins where it holds the last stable offset. `transactional_id`
    is None if unknown, or hidden from the principal.
    """

    producer_id: int
    transactional_id: str | None
    first_offset: int
    marker_offset: int
    records: int
    outcome: str
    """`committed`, `aborted` or `open`."""
    first_ms: int
    """When the record at `first_offset` was appended (epoch ms), by the clock of the appending process."""
    marker_ms: int
    """When the marker was appended; -1 for an open transaction."""


@dataclass(frozen=True, slots=True)
class TimelineBin:
    """Counts of what is stored in one part of the axis: data records by outcome, and markers."""

    start: int
    end: int
    """[start, end) of the axis, in offsets, or in epoch ms if the axis is time."""
    first_offset: int
    """The first offset stored here; -1 for none."""
    first_ms: int
    """When the record at `first_offset` was appended (epoch ms); -1 for none."""
    committed: int = 0
    aborted: int = 0
    open: int = 0
    plain: int = 0
    commit_markers: int = 0
    abort_markers: int = 0

    @property
    def markers(self) -> int:
        return self.commit_markers + self.abort_markers

    @property
    def stored(self) -> int:
        """All records, markers included."""
        return self.committed + self.aborted + self.open + self.plain + self.markers


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """A consumer group's committed offset, which is the next it will read."""

    group_id: str
    offset: int


@dataclass(frozen=True, slots=True)
class PartitionTimeline:
    """One partition's log in the window of the offsets [start, end), appended in [start_ms, end_ms).

    `committed`, `aborted` and `open` count the transactions that touch the window. `transactions` lists
    them by first offset. If there are too many (`aggregated`) it is empty, and `longest` lists the open
    transactions and those that take the most of the axis. The bins always cover the window; all have the
    same width, except that the last may be narrower.
    """

    topic: str
    partition: int
    offsets: PartitionOffsets
    by: str
    """What the axis counts: `offset` or `time`."""
    start: int
    end: int
    start_ms: int
    end_ms: int
    """The current time if a transaction is open and the window has no `until`."""
    committed: int = 0
    aborted: int = 0
    open: int = 0
    transactions: tuple[TransactionSpan, ...] = ()
    bins: tuple[TimelineBin, ...] = ()
    longest: tuple[TransactionSpan, ...] = ()
    groups: tuple[GroupPosition, ...] = ()
    groups_left_out: int = 0

    @property
    def total(self) -> int:
        """The number of transactions that touch the window."""
        return self.committed + self.aborted + self.open

    @property
    def aggregated(self) -> bool:
        """Whether the transactions are only counted, not listed."""
        return len(self.transactions) < self.total

    @property
    def axis(self) -> tuple[int, int]:
        """The ends of the axis: offsets, or epoch ms."""
        return (self.start, self.end) if self.by == "offset" else (self.start_ms, self.end_ms)

    def extent(self, span: TransactionSpan) -> tuple[int, int]:
        """The ends of the transaction on the axis; an open one extends to the log end, or to now."""
        is_open = span.marker_offset < 0
        if self.by == "offset":
            return span.first_offset, self.offsets.log_end_offset if is_open else span.marker_offset
        return span.first_ms, max(self.end_ms if is_open else span.marker_ms, span.first_ms)

    def length(self, span: TransactionSpan) -> int:
        """The part of the transaction that is inside the window."""
        (low, high), (first, last) = self.axis, self.extent(span)
        return min(last, high) - max(first, low)

    def stands_out(self, span: TransactionSpan) -> bool:
        """Whether it is drawn even among too many: it is open, or takes a good part of the axis."""
        low, high = self.axis
        return span.outcome == "open" or self.length(span) * _LONG >= high - low

    def place(self, offset: int) -> float:
        """The place of an offset on the axis; infinite if it is outside of a window of time.

        A time is interpolated between the first records of the bins, whose times are exact."""
        if self.by == "offset":
            return offset
        if not self.start <= offset <= self.end:
            return inf if offset > self.end else -inf
        bins = [part for part in self.bins if part.first_offset >= 0]
        bins.sort(key=lambda part: part.first_offset)
        at = bisect.bisect_right(bins, offset, key=lambda part: part.first_offset)
        if offset == self.end or not at:
            return self.end_ms if at else self.start_ms
        part = bins[at - 1]
        # With an open transaction the end is the current time, not that of the last records.
        after, until = self.end, part.first_ms if self.open else self.end_ms
        if at < len(bins):
            after, until = bins[at].first_offset, bins[at].first_ms
        done = (offset - part.first_offset) / max(after - part.first_offset, 1)
        return part.first_ms + min(done, 1) * max(min(until, part.end) - part.first_ms, 0)

    def rows(
        self, clearance: float = 1, spans: Sequence[TransactionSpan] | None = None
    ) -> list[int]:
        """Return the row of each transaction, or of those given, so that none overlap. `clearance` is the
        least length a transaction takes on the axis."""
        extents = map(self.extent, self.transactions if spans is None else spans)
        return rows((first, max(last + 1, first + clearance)) for first, last in extents)


def rows(intervals: Iterable[tuple[float, float]]) -> list[int]:
    """Return for each interval the lowest row in which it overlaps no earlier one."""
    ends: list[float] = []
    chosen = []
    for first, end in intervals:
        row = next((i for i, before in enumerate(ends) if before <= first), len(ends))
        ends[row : row + 1] = [end]
        chosen.append(row)
    return chosen
