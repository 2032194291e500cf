"""Reads one partition's transactions along its offsets, or along the time of their append: the values of
which a picture is made, and which `Database.admin.timeline` returns.

In a partition the transactions of one producer do not overlap, so one scan in offset order finds them
all. It goes from batch to batch (a record refers to its event, which has the batch's length) instead of
reading each record; where compaction has left gaps it goes from record to record. It starts at the log
start even if only a window is requested: a transaction may begin anywhere before its marker. Memory is
bounded: it holds the transactions open at the current offset, a limited number of finished ones, and a
limited number of bins, whose counts are exact.

The time of an append is that of its event, not the record's own timestamp, which its producer may set to
anything. Times are taken to grow along the log, as they do unless a clock is set back.
"""

from __future__ import annotations

import bisect
import heapq
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import attrgetter
from typing import Final, NamedTuple

from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.groups.offsets import OWN
from eosdb.errors import InvalidRequestError
from eosdb.log import partition_rows
from eosdb.log.partition_rows import Partition
from eosdb.model.damage import reads
from eosdb.model.validation import check_int, check_topic_partition
from eosdb.model.values import PartitionOffsets, TopicPartition

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


MAX_TRANSACTIONS: Final = 300
MAX_BINS: Final = 480
MAX_LONGEST: Final = 40
"""How many transactions are listed if there are too many to list all."""
MAX_GROUPS: Final = 200
"""The most group positions shown per partition; those furthest behind come first."""
_OUTCOMES: Final = {"COMMIT": "committed", "ABORT": "aborted", None: "open"}


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
class _Running:
    """A transaction as far as the scan has seen it."""

    first: int
    first_ms: int
    records: int = 0
    by_bin: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))


class _Found:
    """The results of a scan: totals and bins always, transactions while they are few, otherwise the
    longest. `window` is the timeline without these results."""

    def __init__(self, window: PartitionTimeline, limits: Window) -> None:
        self._window = window
        low, high = window.axis
        self._edges = range(low, high, max(1, -(-(high - low) // limits.max_bins)))
        self._bins = [Counter(first_offset=-1, first_ms=-1) for _ in self._edges]
        self._room = limits.max_transactions
        self._totals: Counter[str] = Counter()
        self._all: list[TransactionSpan] = []
        self._open: list[TransactionSpan] = []
        self._long: list[tuple[int, int, TransactionSpan]] = []

    def parts(self, at: int, after: int, time_ms: int) -> Iterator[tuple[int, int]]:
        """Yield the bins with offsets of [at, after), appended at this time, and the number in each."""
        window, edges = self._window, self._edges
        at, after = max(at, window.start), min(after, window.end)
        while at < after and edges:
            place, stop = at, after
            if window.by == "time":  # A clock that was set back must not lose a record.
                place = min(max(time_ms, edges.start), edges.stop - 1)
            number = (place - edges.start) // edges.step
            if window.by == "offset":
                stop = min(after, edges[number] + edges.step)
            counts = self._bins[number]
            if counts["first_offset"] < 0:
                counts["first_offset"], counts["first_ms"] = at, time_ms
            yield number, stop - at
            at = stop

    def count(self, column: str, at: int, after: int, time_ms: int) -> None:
        for number, count in self.parts(at, after, time_ms):
            self._bins[number][column] += count

    def finish(
        self, producer_id: int, one: _Running, control: str | None, at: int = -1, time_ms: int = -1
    ) -> None:
        """Add a transaction that ends with this marker, or is open."""
        outcome = _OUTCOMES[control]
        for number, count in one.by_bin.items():
            self._bins[number][outcome] += count
        if one.first >= self._window.end or 0 <= at < self._window.start:
            return
        span = TransactionSpan(
            producer_id, None, one.first, at, one.records, outcome, one.first_ms, time_ms
        )
        self._totals[outcome] += 1
        if sum(self._totals.values()) <= self._room:
            self._all.append(span)
        else:
            self._all.clear()
        if control is None:
            self._open.append(span)
        elif self._window.stands_out(span):
            keep = heapq.heappush if len(self._long) < MAX_LONGEST else heapq.heappushpop
            keep(self._long, (self._window.length(span), at, span))

    def made(self) -> PartitionTimeline:
        step, end = self._edges.step, self._edges.stop
        in_order = attrgetter("first_offset", "marker_offset")
        longest = self._open[:MAX_LONGEST] + [span for *_, span in self._long]
        is_listed = len(self._all) == sum(self._totals.values())
        return replace(
            self._window,
            committed=self._totals["committed"],
            aborted=self._totals["aborted"],
            open=self._totals["open"],
            transactions=tuple(sorted(self._all, key=in_order)),
            bins=tuple(
                TimelineBin(edge, min(edge + step, end), **counts)
                for edge, counts in zip(self._edges, self._bins, strict=True)
            ),
            longest=() if is_listed else tuple(sorted(longest, key=in_order)),
        )


_WALK: Final = """
WITH RECURSIVE step ("offset", after, producer_id, is_transactional, control, position) AS (
    SELECT -1, ?, -1, 0, NULL, -1
    UNION ALL
    SELECT
        r."offset",
        CASE
            WHEN r.control IS NOT NULL OR r."offset" < ? THEN r."offset" + 1
            ELSE max(r."offset" + 1, COALESCE((
                SELECT json_extract(j.detail, '$.base_offset') + json_extract(j.detail, '$.count')
                FROM journal j WHERE j.position = r.position
            ), 0))
        END,
        r.producer_id, r.is_transactional, r.control, r.position
    FROM step CROSS JOIN records r ON r.rowid = (
        SELECT n.rowid FROM records n WHERE n.partition_id = ? AND n."offset" >= step.after
        ORDER BY n."offset" LIMIT 1
    )
)
SELECT
    "offset", after, producer_id, is_transactional, control,
    (SELECT timestamp FROM journal j WHERE j.position = step.position)
FROM step
"""
_APPENDED: Final = """
    SELECT r."offset", coalesce(j.timestamp, r.timestamp)
    FROM records r LEFT JOIN journal j ON j.position = r.position
    WHERE r.partition_id = ? AND r."offset" {} ? ORDER BY r."offset" {} LIMIT 1
"""
_FIRST, _LAST = _APPENDED.format(">=", "ASC"), _APPENDED.format("<", "DESC")
_OPEN: Final = (
    "SELECT producer_id, current_txn_start_offset FROM partition_producers "
    "WHERE partition_id = ? AND current_txn_start_offset >= 0 ORDER BY current_txn_start_offset"
)
_TRANSACTIONAL_ID: Final = "SELECT transactional_id FROM producer_ids WHERE producer_id = ?"
_POSITIONS: Final = (
    "SELECT group_id, committed_offset FROM group_offsets WHERE topic = ? AND partition = ? "
    "ORDER BY committed_offset, group_id"
)


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads timelines on one snapshot, for one principal."""

    connection: sqlite3.Connection
    authorizer: Authorizer
    window: Window
    now_ms: int
    names: dict[int, str | None] = field(default_factory=dict)
    """The transactional ids that the principal may see, by producer id."""

    def read(self, topic: str, partition: int | None) -> Iterator[PartitionTimeline]:
        """Return the timelines of the topic's partitions, or of one. Raises
        UnknownTopicOrPartitionError and TopicAuthorizationFailedError."""
        tp = check_topic_partition(TopicPartition(topic, 0 if partition is None else partition))
        self.authorizer.check(self.connection, "describe", "topic", topic)
        rows = [partition_rows.read(self.connection, tp)]
        if partition is None:
            rows = list(partition_rows.read_topic(self.connection, topic))
        for row in rows:
            it = self._read(row)
            groups = self._groups(row.topic_partition)
            yield replace(
                it,
                transactions=tuple(map(self._named, it.transactions)),
                longest=tuple(map(self._named, it.longest)),
                groups=groups[:MAX_GROUPS],
                groups_left_out=len(groups[MAX_GROUPS:]),
            )

    @reads("records")
    def _read(self, row: Partition) -> PartitionTimeline:
        """Scan the partition."""
        unfinished: dict[int, int] = dict(self.connection.execute(_OPEN, (row.partition_id,)))
        window = self._limited(row, has_open=bool(unfinished))
        found = _Found(window, self.window)
        low = row.log_start_offset
        running: dict[int, _Running] = {}
        awaited = 0
        """The number of current transactions with a marker later in the log."""
        steps = self.connection.execute(_WALK, (low, row.clean_offset, row.partition_id))
        next(steps)
        for at, after, producer_id, is_transactional, control, time_ms in steps:
            is_beyond = at >= window.end
            if is_beyond and not awaited:
                break
            if control is None and not is_transactional:
                found.count("plain", at, after, time_ms)
                continue
            one = running.get(producer_id)
            if one is None:
                if is_beyond:
                    continue
                one = running[producer_id] = _Running(at, time_ms)
                is_last = control is None and 0 <= unfinished.get(producer_id, -1) <= at
                awaited += not is_last
            if control is None:
                one.records += after - at
                for number, count in found.parts(at, after, time_ms):
                    one.by_bin[number] += count
            else:
                del running[producer_id]
                awaited -= 1
                found.count(f"{control.lower()}_markers", at, after, time_ms)
                found.finish(producer_id, one, control, at, time_ms)
        steps.close()
        for producer_id, first in unfinished.items():
            # The log start may have passed its first records.
            running.setdefault(producer_id, _Running(first, window.start_ms)).first = max(
                first, low
            )
        for producer_id, one in running.items():
            found.finish(producer_id, one, None)
        return found.made()

    def _limited(self, row: Partition, has_open: bool) -> PartitionTimeline:
        """The window, limited to the log. An open transaction extends it to now."""
        window, low, high = self.window, row.log_start_offset, row.log_end_offset
        begin = low if window.start is None else min(max(window.start, low), high)
        stop = high if window.end is None else max(min(window.end, high), begin)
        if window.since is not None:
            begin = min(max(begin, self._appended_at(row, window.since)), stop)
        if window.until is not None:
            stop = max(min(stop, self._appended_at(row, window.until)), begin)
        first, last = self._nearest(_FIRST, row, begin), self._nearest(_LAST, row, stop)
        if begin == stop:
            first = last = None
        start_ms = window.since if window.since is not None else first[1] if first else 0
        end_ms = max(start_ms, last[1] + 1 if last else 0)
        if window.until is not None:
            start_ms, end_ms = min(start_ms, window.until), window.until
        elif has_open and window.end is None:
            end_ms = max(end_ms, self.now_ms)
        return PartitionTimeline(
            row.topic, row.partition, row.offsets(), window.by, begin, stop, start_ms, end_ms
        )

    def _nearest(self, select: str, row: Partition, offset: int) -> tuple[int, int] | None:
        """The offset of the record that is nearest to this one, and when it was appended."""
        found: tuple[int, int] | None
        found = self.connection.execute(select, (row.partition_id, offset)).fetchone()
        return found

    def _appended_at(self, row: Partition, time_ms: int) -> int:
        """Return the first offset appended at this time or later, by bisection; the log end if there is
        none."""
        low, high = row.log_start_offset, row.log_end_offset
        while low < high:
            middle = (low + high) // 2
            found = self._nearest(_FIRST, row, middle)
            if found is None or found[0] >= high or found[1] >= time_ms:
                high = middle
            else:
                low = found[0] + 1
        return low

    def _named(self, span: TransactionSpan) -> TransactionSpan:
        """The transaction with its transactional id, if the principal may see it."""
        key = span.producer_id
        if key not in self.names:
            row = self.connection.execute(_TRANSACTIONAL_ID, (key,)).fetchone()
            name = row and row[0]
            is_shown = name is not None and self.authorizer.allows(
                self.connection, "describe", "transactional_id", name
            )
            self.names[key] = name if is_shown else None
        return replace(span, transactional_id=self.names[key])

    def _groups(self, tp: TopicPartition) -> tuple[GroupPosition, ...]:
        """The positions of the groups that the principal may see, without eosdb's internal ones."""
        return tuple(
            GroupPosition(group_id, offset)
            for group_id, offset in self.connection.execute(_POSITIONS, tp)
            if not group_id.startswith(OWN)
            and self.authorizer.allows(self.connection, "describe", "group", group_id)
        )
