"""One partition's transactions along its offsets or along time: the values from which a picture is drawn.

`Database.admin.timeline` makes them. Everything in them is plain numbers and names, so that any drawer
(Matplotlib, a web page) can take them as they are.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Final

from eosdb.model.values import PartitionOffsets

BY: Final = ("offset", "time")
"""What a timeline runs along."""


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
    """When what is at `first_offset` was appended, by the clock of who appended it (epoch ms)."""
    marker_ms: int
    """The same of the marker; -1 for none."""


@dataclass(frozen=True, slots=True)
class TimelineBin:
    """What is stored in one part of the axis: data records by outcome, and markers, each of which ended a
    transaction there."""

    start: int
    end: int
    """[start, end) of the axis: offsets, or epoch ms where the timeline runs along time."""
    first_offset: int
    """Of what lies here; -1 if nothing does."""
    first_ms: int
    """When that was appended (epoch ms); -1 if nothing lies here."""
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
    """A consumer group's position: the offset it committed, the next it will read."""

    group_id: str
    offset: int


@dataclass(frozen=True, slots=True)
class PartitionTimeline:
    """One partition's log in the window of the offsets [start, end), appended in [start_ms, end_ms).

    `committed`, `aborted` and `open` count the transactions that touch the window; `transactions` are
    these, by first offset, or empty if there are too many (`aggregated`); then `longest` has those that
    take the most of the axis, and those that are open. The bins have one width along the axis, though the
    last may be shorter, and cover the window whether aggregated or not.
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
    """Now, where a transaction is open at the end of a window that has no end of its own."""
    longest: tuple[TransactionSpan, ...] = ()
    groups: tuple[GroupPosition, ...] = ()
    groups_left_out: int = 0

    @property
    def total(self) -> int:
        """How many transactions touch the window."""
        return self.committed + self.aborted + self.open

    @property
    def aggregated(self) -> bool:
        """Whether the transactions are only counted, not listed."""
        return len(self.transactions) < self.total

    @property
    def axis(self) -> tuple[int, int]:
        """Where the axis begins and ends: offsets, or epoch ms."""
        return (self.start, self.end) if self.by == "offset" else (self.start_ms, self.end_ms)

    def extent(self, span: TransactionSpan) -> tuple[int, int]:
        """Where the transaction lies on the axis; an open one goes on to the log end, or to now."""
        if self.by == "offset":
            ended = span.marker_offset >= 0
            return span.first_offset, (span.marker_offset if ended else self.offsets.log_end_offset)
        return span.first_ms, max(
            span.marker_ms if span.marker_ms >= 0 else self.end_ms, span.first_ms
        )

    def place(self, offset: int) -> float:
        """Where an offset lies on the axis; on one of time about when it was appended."""
        return offset if self.by == "offset" else self.time_at(offset)

    def time_at(self, offset: int) -> float:
        """About when the offset was appended (epoch ms): known for the first of each bin, and in between in
        proportion."""
        known = self._known()
        at = bisect.bisect_right(known, offset, key=lambda one: one.first_offset)
        if at == 0:
            return self.start_ms
        one = known[at - 1]
        if offset >= self.end:
            return self.end_ms
        # Where something is open the end is now, which tells nothing of the last records.
        after, until = self.end, one.first_ms if self.open else self.end_ms
        if at < len(known):
            after, until = known[at].first_offset, known[at].first_ms
        if self.by == "time":
            until = min(until, one.end)
        done = (offset - one.first_offset) / max(after - one.first_offset, 1)
        return one.first_ms + min(done, 1) * max(until - one.first_ms, 0)

    def offset_at(self, time_ms: float) -> int:
        """About the first offset appended at this time (epoch ms) or later."""
        known = self._known()
        at = bisect.bisect_right(known, time_ms, key=lambda one: one.first_ms)
        after = known[at].first_offset if at < len(known) else self.end
        if at == 0:
            return after
        one = known[at - 1]
        until = known[at].first_ms if at < len(known) else self.end_ms
        if self.by == "time":
            until = min(until, one.end)
        done = (time_ms - one.first_ms) / max(until - one.first_ms, 1)
        return one.first_offset + round(min(done, 1) * (after - one.first_offset))

    def _known(self) -> list[TimelineBin]:
        """The bins that hold something, by offset."""
        return sorted(
            (one for one in self.bins if one.first_offset >= 0), key=lambda one: one.first_offset
        )

    def rows(self, clearance: float = 1) -> tuple[int, ...]:
        """For each transaction the lowest row in which it covers no other (greedy interval colouring).

        An open one goes on to the end; `clearance` is the least room a transaction takes on the axis.
        """
        return rows([self.extent(span) for span in self.transactions], clearance)


def rows(extents: list[tuple[int, int]], clearance: float) -> tuple[int, ...]:
    """For each interval the lowest row in which it covers no earlier one."""
    ends: list[float] = []
    found = []
    for first, last in extents:
        row = next((i for i, end in enumerate(ends) if end <= first), len(ends))
        if row == len(ends):
            ends.append(0)
        ends[row] = max(last + 1, first + clearance)
        found.append(row)
    return tuple(found)
