"""Reads one partition's transactions along its offsets, or along the time of their append.

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

import heapq
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from eosdb.admin.timeline.timeline import (
    BY,
    GroupPosition,
    PartitionTimeline,
    TimelineBin,
    TransactionSpan,
)
from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.groups.offsets import OWN
from eosdb.errors import InvalidRequestError
from eosdb.log import partition_rows
from eosdb.log.partition_rows import Partition
from eosdb.model.damage import reads
from eosdb.model.validation import check_int, check_topic_partition
from eosdb.model.values import TopicPartition

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


_WALK: Final = """
WITH RECURSIVE step ("offset", after, producer_id, is_transactional, control, position) AS (
    SELECT -1, ?, -1, 0, NULL, -1
    UNION ALL
    SELECT
        r."offset",
        CASE
            WHEN r.control IS NOT NULL OR r."offset" < ? THEN r."offset" + 1
            ELSE max(
                r."offset" + 1,
                COALESCE(
                    (
                        SELECT json_extract(j.detail, '$.base_offset')
                            + json_extract(j.detail, '$.count')
                        FROM journal j WHERE j.position = r.position
                    ),
                    0
                )
            )
        END,
        r.producer_id, r.is_transactional, r.control, r.position
    FROM step
    CROSS JOIN records r ON r.rowid = (
        SELECT n.rowid FROM records n
        WHERE n.partition_id = ? AND n."offset" >= step.after
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
    WHERE r.partition_id = ? AND r."offset" >= ? ORDER BY r."offset" LIMIT 1
"""
_LAST_APPENDED: Final = """
    SELECT coalesce(j.timestamp, r.timestamp)
    FROM records r LEFT JOIN journal j ON j.position = r.position
    WHERE r.partition_id = ? AND r."offset" < ? ORDER BY r."offset" DESC LIMIT 1
"""
_OPEN: Final = (
    "SELECT producer_id, current_txn_start_offset FROM partition_producers "
    "WHERE partition_id = ? AND current_txn_start_offset >= 0 ORDER BY current_txn_start_offset"
)
_TRANSACTIONAL_ID: Final = "SELECT transactional_id FROM producer_ids WHERE producer_id = ?"


def _read_partition(
    connection: sqlite3.Connection, partition: Partition, window: Window, now_ms: int
) -> PartitionTimeline:
    begin, stop = _offsets(connection, partition, window)
    unfinished: dict[int, int] = dict(
        connection.execute(_OPEN, (partition.partition_id,)).fetchall()
    )
    start_ms, end_ms = _times(
        connection, partition, window, (begin, stop), now_ms if unfinished else -1
    )
    axis = (begin, stop) if window.by == "offset" else (start_ms, end_ms)
    collector = Collector((begin, stop), window, Bins(axis, window.by, window.max_bins))
    _walk(connection, partition, unfinished, collector)
    names: dict[int, str | None] = {}

    def made(s: Span) -> TransactionSpan:
        if s.producer_id not in names:
            row = connection.execute(_TRANSACTIONAL_ID, (s.producer_id,)).fetchone()
            names[s.producer_id] = None if row is None else row[0]
        name = names[s.producer_id]
        first_ms = start_ms if s.first_ms < 0 else s.first_ms
        return TransactionSpan(
            s.producer_id, name, s.first, s.marker, s.records, s.outcome, first_ms, s.marker_ms
        )

    return PartitionTimeline(
        topic=partition.topic,
        partition=partition.partition,
        offsets=partition.offsets(),
        start=begin,
        end=stop,
        committed=collector.totals["committed"],
        aborted=collector.totals["aborted"],
        open=collector.totals["open"],
        transactions=tuple(map(made, sorted(collector.spans, key=in_order))),
        bins=collector.bins.made(),
        by=window.by,
        start_ms=start_ms,
        end_ms=end_ms,
        longest=tuple(map(made, sorted(collector.longest(), key=in_order))),
    )


def _offsets(
    connection: sqlite3.Connection, partition: Partition, window: Window
) -> tuple[int, int]:
    """Return the window in offsets, limited to the log."""
    low, high = partition.log_start_offset, partition.log_end_offset
    begin = low if window.start is None else min(max(window.start, low), high)
    stop = high if window.end is None else max(min(window.end, high), begin)
    if window.since is not None:
        begin = min(max(begin, _first_appended(connection, partition, window.since)), stop)
    if window.until is not None:
        stop = max(min(stop, _first_appended(connection, partition, window.until)), begin)
    return begin, stop


def _first_appended(connection: sqlite3.Connection, partition: Partition, time_ms: int) -> int:
    """Return the first offset appended at this time or later, by bisection; the log end if there is
    none."""
    low, high = partition.log_start_offset, partition.log_end_offset
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(_APPENDED, (partition.partition_id, middle)).fetchone()
        if row is None or row[0] >= high or row[1] >= time_ms:
            high = middle
        else:
            low = row[0] + 1
    return low


def _times(
    connection: sqlite3.Connection,
    partition: Partition,
    window: Window,
    offsets: tuple[int, int],
    now_ms: int,
) -> tuple[int, int]:
    """Return the window in time. `now_ms` is the end of open transactions; -1 if there are none."""
    begin, stop = offsets
    first = connection.execute(_APPENDED, (partition.partition_id, begin)).fetchone()
    last = connection.execute(_LAST_APPENDED, (partition.partition_id, stop)).fetchone()
    start_ms = (
        window.since if window.since is not None else first[1] if first and begin < stop else 0
    )
    if window.until is not None:
        return min(start_ms, window.until), window.until
    end_ms = last[0] + 1 if last and begin < stop else start_ms
    return start_ms, max(start_ms, end_ms, now_ms if window.end is None else -1)


@reads("records")
def _walk(
    connection: sqlite3.Connection,
    partition: Partition,
    unfinished: dict[int, int],
    collector: Collector,
) -> None:
    """Scan the partition. `unfinished` are the first offsets of the open transactions by producer id."""
    low = partition.log_start_offset
    running: dict[int, Span] = {}
    awaited = 0
    """The number of current transactions with a marker later in the log."""
    steps = connection.execute(_WALK, (low, partition.clean_offset, partition.partition_id))
    next(steps)
    for at, after, producer_id, is_transactional, control, time_ms in steps:
        if at >= collector.end and not awaited:
            break
        if control is not None:
            if producer_id in running:
                span = running.pop(producer_id)
                awaited -= 1
            elif at < collector.end:
                span = Span(producer_id, at, time_ms)
            else:
                continue
            span.marker, span.marker_ms = at, time_ms
            span.outcome = OUTCOMES[control]
            collector.bins.add(control, collector.parts(at, after, time_ms))
            collector.finish(span)
        elif not is_transactional:
            collector.bins.add("plain", collector.parts(at, after, time_ms))
        else:
            known = running.get(producer_id)
            if known is None:
                if at >= collector.end:
                    continue
                known = running[producer_id] = Span(producer_id, at, time_ms)
                awaited += not 0 <= unfinished.get(producer_id, -1) <= at
            known.records += after - at
            for number, count in collector.parts(at, after, time_ms):
                known.by_bin[number] = known.by_bin.get(number, 0) + count
    steps.close()
    for producer_id, first in unfinished.items():
        # Also if the log start has passed its records.
        running.setdefault(producer_id, Span(producer_id, first, -1)).first = max(first, low)
    for span in running.values():
        collector.finish(span)


MAX_GROUPS: Final = 200
"""The most group positions shown per partition; those furthest behind come first."""
_POSITIONS: Final = (
    "SELECT group_id, committed_offset FROM group_offsets WHERE topic = ? AND partition = ? "
    "ORDER BY committed_offset, group_id"
)


def read(
    connection: sqlite3.Connection,
    authorizer: Authorizer,
    topic: str,
    partition: int | None,
    window: Window,
    now_ms: int,
) -> Iterator[PartitionTimeline]:
    """Return the timelines of the topic's partitions, or of one. Raises UnknownTopicOrPartitionError and
    TopicAuthorizationFailedError."""
    tp = check_topic_partition(TopicPartition(topic, 0 if partition is None else partition))
    authorizer.check(connection, "describe", "topic", topic)
    first = partition_rows.read(connection, tp)
    for part in [first] if partition is not None else partition_rows.read_topic(connection, topic):
        read = _read_partition(connection, part, window, now_ms)
        shown, longest = (
            tuple(_shown(connection, authorizer, span) for span in spans)
            for spans in (read.transactions, read.longest)
        )
        groups, left_out = _groups(connection, authorizer, part.topic_partition)
        yield replace(
            read, transactions=shown, longest=longest, groups=groups, groups_left_out=left_out
        )


def _shown(
    connection: sqlite3.Connection, authorizer: Authorizer, span: TransactionSpan
) -> TransactionSpan:
    name = span.transactional_id
    if name is None or authorizer.allows(connection, "describe", "transactional_id", name):
        return span
    return replace(span, transactional_id=None)


def _groups(
    connection: sqlite3.Connection, authorizer: Authorizer, tp: TopicPartition
) -> tuple[tuple[GroupPosition, ...], int]:
    """Return the positions of groups, without eosdb's internal ones, and how many are omitted."""
    positions: list[GroupPosition] = []
    left_out = 0
    for group_id, offset in connection.execute(_POSITIONS, tp):
        if group_id.startswith(OWN) or not authorizer.allows(
            connection, "describe", "group", group_id
        ):
            continue
        if len(positions) < MAX_GROUPS:
            positions.append(GroupPosition(group_id, offset))
        else:
            left_out += 1
    return tuple(positions), left_out
