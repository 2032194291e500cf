"""The transactions of one partition along its offsets or along time, as the values from which a drawing is
made.

`Database.admin.timeline` returns them. They contain plain numbers and names only.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Final

from eosdb.model.values import PartitionOffsets

BY: Final = ("offset", "time")
"""What the axis of a timeline counts."""


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
    committed: int
    aborted: int
    open: int
    plain: int
    commit_markers: int
    abort_markers: int

    @property
    def stored(self) -> int:
        """All records, markers included."""
        return (
            self.committed + self.aborted + self.open + self.plain
            + self.commit_markers + self.abort_markers
        )  # fmt: skip


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
    start: int
    end: int
    committed: int
    aborted: int
    open: int
    transactions: tuple[TransactionSpan, ...]
    bins: tuple[TimelineBin, ...]
    by: str
    """What the axis counts: `offset` or `time`."""
    start_ms: int
    end_ms: int
    """The current time if a transaction is open and the window has no `until`."""
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
        if self.by == "offset":
            ended = span.marker_offset >= 0
            return span.first_offset, (span.marker_offset if ended else self.offsets.log_end_offset)
        return span.first_ms, max(
            span.marker_ms if span.marker_ms >= 0 else self.end_ms, span.first_ms
        )

    def place(self, offset: int) -> float:
        """The place of an offset on the axis; if the axis is time, the estimate of `time_at`."""
        return offset if self.by == "offset" else self.time_at(offset)

    def time_at(self, offset: int) -> float:
        """Estimate when the offset was appended (epoch ms): interpolated between the first records of the
        bins, whose times are exact."""
        bins = self._stored_bins()
        at = bisect.bisect_right(bins, offset, key=lambda part: part.first_offset)
        if at == 0:
            return self.start_ms
        part = bins[at - 1]
        if offset >= self.end:
            return self.end_ms
        # With an open transaction the end is the current time, not that of the last records.
        after, until = self.end, part.first_ms if self.open else self.end_ms
        if at < len(bins):
            after, until = bins[at].first_offset, bins[at].first_ms
        if self.by == "time":
            until = min(until, part.end)
        done = (offset - part.first_offset) / max(after - part.first_offset, 1)
        return part.first_ms + min(done, 1) * max(until - part.first_ms, 0)

    def _stored_bins(self) -> list[TimelineBin]:
        """The bins that are not empty, by offset."""
        return sorted(
            (part for part in self.bins if part.first_offset >= 0),
            key=lambda part: part.first_offset,
        )

    def rows(self, clearance: float = 1) -> tuple[int, ...]:
        """Return the row of each transaction, so that none overlap (greedy interval colouring).

        `clearance` is the least length a transaction takes on the axis.
        """
        return rows([self.extent(span) for span in self.transactions], clearance)


def rows(extents: list[tuple[int, int]], clearance: float) -> tuple[int, ...]:
    """Return for each interval the lowest row in which it overlaps no earlier one."""
    ends: list[float] = []
    chosen = []
    for first, last in extents:
        row = next((i for i, end in enumerate(ends) if end <= first), len(ends))
        if row == len(ends):
            ends.append(0)
        ends[row] = max(last + 1, first + clearance)
        chosen.append(row)
    return tuple(chosen)
