"""Reads a partition's transactions along its offsets, or along the time of their append, and defines the
values that `Database.admin.timeline` returns.

In a partition the transactions of one producer do not overlap, so one scan in offset order finds them all.
It goes from batch to batch (a record refers to its event, which has the batch's length), or from record to
record where compaction has left gaps. It starts at the log start even for a window, because a transaction
may begin anywhere before its marker. It holds only the transactions open at its offset, the
`max_transactions` most important ones, and `max_bins` bins, whose counts are exact.

The time of an append is the timestamp of its event. A record's own timestamp may be anything. Append times
grow along the log, unless a clock is set back.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final, NamedTuple

from eosdb.errors import InvalidRequestError
from eosdb.events.kinds import BatchAppended
from eosdb.log.partition_rows import Partition
from eosdb.model.damage import reads
from eosdb.model.validation import check_int
from eosdb.model.values import PartitionOffsets
from eosdb.store.schema.event_names import member

BY: Final = ("offset", "time")
"""The units of a timeline's axis."""
MAX_TRANSACTIONS: Final = 300
MAX_BINS: Final = 480


@dataclass(frozen=True, slots=True)
class TransactionSpan:
    """One transaction in one partition, from its first record still stored to its marker.

    If retention or compaction has left no record, it begins at the marker. An open transaction begins where
    it holds the last stable offset.
    """

    producer_id: int
    transactional_id: str | None
    """The transactional id; None if unknown, or hidden from the principal."""
    first_offset: int
    marker_offset: int
    """The offset of the marker; -1 for an open transaction."""
    records: int
    """The number of stored records, without the marker."""
    outcome: str
    """The outcome: `committed`, `aborted` or `open`."""
    first_ms: int
    """When the record at `first_offset` was appended (epoch ms), by the clock of the appending process."""
    marker_ms: int
    """When the marker was appended; -1 for an open transaction."""


@dataclass(frozen=True, slots=True)
class TimelineBin:
    """Counts of a part [start, end) of the axis (offsets or epoch ms): data records by outcome, markers."""

    start: int
    end: int
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


class OffsetMoved(NamedTuple):
    """A consumer group's committed offset, which is the next offset that the group reads."""

    group_id: str
    offset: int


@dataclass(frozen=True, slots=True)
class PartitionTimeline:
    """One partition's log in the window of the offsets [start, end), appended in [start_ms, end_ms).

    `committed`, `aborted` and `open` count the transactions that touch the window. `transactions` lists
    them by first offset; if there are too many (`aggregated`), the open ones and those that take the most
    of the axis. The bins always cover the window; all have the same width, except that the last may be
    narrower. Groups are listed by offset.
    """

    topic: str
    partition: int
    offsets: PartitionOffsets
    by: str
    """The unit of the axis: `offset` or `time`."""
    start: int
    end: int
    start_ms: int
    end_ms: int
    """The end in time. The current time if a transaction is open and the window has no `until`."""
    committed: int = 0
    aborted: int = 0
    open: int = 0
    transactions: tuple[TransactionSpan, ...] = ()
    bins: tuple[TimelineBin, ...] = ()
    groups: tuple[OffsetMoved, ...] = ()
    times: Mapping[int, int] = field(default_factory=dict)
    """When the records at the groups' offsets and at the last stable offset were appended (epoch ms)."""

    @property
    def total(self) -> int:
        """The number of transactions that touch the window."""
        return self.committed + self.aborted + self.open

    @property
    def aggregated(self) -> bool:
        """Whether there are too many transactions to list all."""
        return len(self.transactions) < self.total

    @property
    def axis(self) -> tuple[int, int]:
        """The ends of the axis: offsets, or epoch ms."""
        return (self.start, self.end) if self.by == "offset" else (self.start_ms, self.end_ms)

    def extent(self, span: TransactionSpan) -> tuple[int, int]:
        """The transaction's ends on the axis. An open transaction extends to the log end, or to now."""
        is_open = span.marker_offset < 0
        if self.by == "offset":
            return span.first_offset, self.offsets.log_end_offset if is_open else span.marker_offset
        return span.first_ms, max(self.end_ms if is_open else span.marker_ms, span.first_ms)

    def length(self, span: TransactionSpan) -> int:
        """The length of the transaction inside the window."""
        (low, high), (first, last) = self.axis, self.extent(span)
        return min(last, high) - max(first, low)

    def place(self, offset: int) -> int:
        """The place on the axis of a group, of the last stable offset, or of the log end."""
        return offset if self.by == "offset" else self.times.get(offset, self.end_ms)


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
        for names in ("start", "end"), ("since", "until"):
            least = 0
            for name in names:
                if (bound := getattr(self, name)) is not None:
                    least = check_int(name, bound, least)
        check_int("max_transactions", self.max_transactions, 0)
        check_int("max_bins", self.max_bins, 1, 100_000)


@dataclass(slots=True)
class _Running:
    """A transaction whose end the scan has not reached."""

    first: int
    first_ms: int
    records: int = 0
    by_bin: Counter[int] = field(default_factory=Counter)


class _Found:
    """The results of a scan: counts for each part of the axis, totals, and the most important transactions.
    `frame` is the timeline without these results."""

    def __init__(self, frame: PartitionTimeline, limits: Window) -> None:
        self.frame, self._most = frame, limits.max_transactions
        low, high = frame.axis
        self._edges = range(low, high, max(1, -(-(high - low) // limits.max_bins)))
        self._counts = [Counter[str]() for _ in self._edges]
        self._totals: Counter[str] = Counter()
        self._kept: list[tuple[bool, int, int, int, TransactionSpan]] = []
        """A heap. The numbers before a transaction are unique, so no transactions are compared."""

    def parts(self, at: int, after: int, time_ms: int) -> Iterator[tuple[int, int]]:
        """Yield the bins of the offsets [at, after), appended at `time_ms`, and the number in each."""
        frame, edges = self.frame, self._edges
        at, after = max(at, frame.start), min(after, frame.end)
        while at < after and edges:
            place, stop = at, after
            if frame.by == "time":  # If a clock was set back, `time_ms` may be outside of the bins.
                place = min(max(time_ms, edges.start), edges.stop - 1)
            number = (place - edges.start) // edges.step
            if frame.by == "offset":
                stop = min(after, edges[number] + edges.step)
            yield number, stop - at
            at = stop

    def count(self, column: str, parts: Iterable[tuple[int, int]]) -> None:
        for number, count in parts:
            self._counts[number][column] += count

    def finish(
        self, producer_id: int, one: _Running, outcome: str, at: int = -1, time_ms: int = -1
    ) -> None:
        """Add a transaction that has ended with the marker at `at`, or is open."""
        self.count(outcome, one.by_bin.items())
        if one.first >= self.frame.end or 0 <= at < self.frame.start:
            return
        self._totals[outcome] += 1
        span = TransactionSpan(
            producer_id, None, one.first, at, one.records, outcome, one.first_ms, time_ms
        )
        heappush(self._kept, (at < 0, self.frame.length(span), at, producer_id, span))
        if len(self._kept) > self._most:
            heappop(self._kept)

    def made(self, name_of: Callable[[int], str | None]) -> PartitionTimeline:
        edges, totals = self._edges, self._totals
        spans = [replace(s, transactional_id=name_of(s.producer_id)) for *_, s in self._kept]
        bins = (
            TimelineBin(edge, min(edge + edges.step, edges.stop), **counts)
            for edge, counts in zip(edges, self._counts, strict=True)
        )
        return replace(
            self.frame,
            committed=totals["committed"],
            aborted=totals["aborted"],
            open=totals["open"],
            transactions=tuple(sorted(spans, key=attrgetter("first_offset", "marker_offset"))),
            bins=tuple(bins),
        )


_WALK: Final = f"""
WITH RECURSIVE step ("offset", after, producer_id, is_transactional, control, position) AS (
    SELECT -1, ?, -1, 0, NULL, -1
    UNION ALL
    SELECT
        r."offset",
        max(r."offset" + 1, coalesce((
            SELECT {member(BatchAppended, "base_offset")} + {member(BatchAppended, "count")}
            FROM eosdb_journal j WHERE j.position = r.position AND r.control IS NULL AND r."offset" >= ?
        ), 0)),
        r.producer_id, r.is_transactional, r.control, r.position
    FROM step CROSS JOIN records r ON r.rowid = (
        SELECT n.rowid FROM records n WHERE n.partition_id = ? AND n."offset" >= step.after
        ORDER BY n."offset" LIMIT 1
    )
)
SELECT
    "offset", after, producer_id, is_transactional, control,
    (SELECT timestamp FROM eosdb_journal j WHERE j.position = step.position)
FROM step
"""
_APPENDED: Final = """
    SELECT coalesce(j.timestamp, r.timestamp)
    FROM records r LEFT JOIN eosdb_journal j ON j.position = r.position
    WHERE r.partition_id = ? AND r."offset" {} ? ORDER BY r."offset" {} LIMIT 1
"""
_FIRST, _LAST = _APPENDED.format(">=", "ASC"), _APPENDED.format("<", "DESC")
_OPEN: Final = (
    "SELECT producer_id, current_txn_start_offset FROM partition_producers "
    "WHERE partition_id = ? AND current_txn_start_offset >= 0 ORDER BY current_txn_start_offset"
)


@reads("records")
def scan(
    connection: sqlite3.Connection, row: Partition, window: Window, now_ms: int,
    groups: Sequence[OffsetMoved], name_of: Callable[[int], str | None],
) -> PartitionTimeline:  # fmt: skip
    unfinished: dict[int, int] = dict(connection.execute(_OPEN, (row.partition_id,)))
    frame = _frame(connection, row, window, now_ms if unfinished else 0)
    found = _Found(frame, window)
    running: dict[int, _Running] = {}
    steps = connection.execute(_WALK, (row.log_start_offset, row.clean_offset, row.partition_id))
    next(steps)
    for at, after, producer_id, is_transactional, control, time_ms in steps:
        if at >= frame.end:
            # An open transaction has no marker to wait for, so stop if only open transactions remain.
            if all(0 <= unfinished.get(p, -1) <= one.first for p, one in running.items()):
                break
            if producer_id not in running:
                continue
        one = running.get(producer_id) or _Running(at, time_ms)
        parts = found.parts(at, after, time_ms)
        if control is not None:
            running.pop(producer_id, None)
            found.count(f"{control.lower()}_markers", parts)
            outcome = {"COMMIT": "committed", "ABORT": "aborted"}[control]
            found.finish(producer_id, one, outcome, at, time_ms)
        elif not is_transactional:
            found.count("plain", parts)
        else:
            running[producer_id] = one
            one.records += after - at
            for number, count in parts:
                one.by_bin[number] += count
    steps.close()
    for producer_id, first in unfinished.items():
        first = max(first, row.log_start_offset)  # The first records may have been deleted.
        if producer_id not in running:
            first_ms = _appended_ms(connection, row, _FIRST, first, frame.start_ms)
            running[producer_id] = _Running(first, first_ms)
        running[producer_id].first = first
        found.finish(producer_id, running[producer_id], "open")
    offsets = {row.last_stable_offset, *(group.offset for group in groups)}
    appended_ms = partial(_appended_ms, connection, row, _FIRST)
    times = {offset: appended_ms(offset, frame.end_ms) for offset in offsets}
    return replace(found.made(name_of), groups=tuple(groups), times=times)


def _appended_ms(
    connection: sqlite3.Connection, row: Partition, select: str, offset: int, otherwise: int
) -> int:
    found = connection.execute(select, (row.partition_id, offset)).fetchone()
    return int(found[0]) if found else otherwise


def _frame(
    connection: sqlite3.Connection, row: Partition, window: Window, open_until_ms: int
) -> PartitionTimeline:
    """The window, limited to the log. With open transactions it extends to `open_until_ms` at least."""
    appended_ms = partial(_appended_ms, connection, row)
    low, high, until = row.log_start_offset, row.log_end_offset, window.until

    def offset_at(time_ms: int) -> int:
        """The first offset appended at this time or later; the log end if there is none."""
        log = range(low, high)
        return low + bisect_left(log, time_ms, key=lambda at: appended_ms(_FIRST, at, time_ms))

    begin = min(max(low, window.start or 0, offset_at(window.since) if window.since else 0), high)
    stop = min(
        high if window.end is None else window.end, high if until is None else offset_at(until)
    )
    stop = max(begin, min(stop, high))
    is_empty = begin == stop
    start_ms = window.since or (0 if is_empty else appended_ms(_FIRST, begin, 0))
    last_ms = -1 if is_empty else appended_ms(_LAST, stop, -1)
    end_ms = max(start_ms, last_ms + 1, open_until_ms if window.end is None else 0)
    if until is not None:
        start_ms, end_ms = min(start_ms, until), until
    return PartitionTimeline(
        row.topic, row.partition, row.offsets(), window.by, begin, stop, start_ms, end_ms
    )
