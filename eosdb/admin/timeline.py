"""One partition's transactions along its offsets: the values from which a picture is drawn.

In one partition the transactions of a producer do not overlap, so one walk in order of offsets finds
them all. It goes from batch to batch (a record names its event, and the event says how long the batch
is), so records are not read one by one; where compaction has left gaps it goes from record to record.
It begins at the log start even when only a window is wanted: a transaction may begin anywhere before
its marker.

Memory is flat: kept are the transactions open at the current point of the walk, a bounded number of
finished ones, and a bounded number of bins, whose counts are exact.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.groups.offsets import OWN
from eosdb.errors import InvalidRequestError
from eosdb.log import partition_rows
from eosdb.log.partition_rows import Partition
from eosdb.model.values import PartitionOffsets, TopicPartition
from eosdb.validation import check_int, check_topic_partition

MAX_TRANSACTIONS: Final = 300
MAX_BINS: Final = 480

_WALK: Final = """
WITH RECURSIVE step ("offset", after, producer_id, is_transactional, control) AS (
    SELECT -1, :start, -1, 0, NULL
    UNION ALL
    SELECT
        r."offset",
        CASE
            WHEN r.control IS NOT NULL OR r."offset" < :clean THEN r."offset" + 1
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
        r.producer_id, r.is_transactional, r.control
    FROM step
    CROSS JOIN records r ON r.rowid = (
        SELECT n.rowid FROM records n
        WHERE n.partition_id = :partition_id AND n."offset" >= step.after
        ORDER BY n."offset" LIMIT 1
    )
)
SELECT "offset", after, producer_id, is_transactional, control FROM step
"""
_OPEN: Final = (
    "SELECT producer_id, current_txn_start_offset FROM partition_producers "
    "WHERE partition_id = ? AND current_txn_start_offset >= 0 ORDER BY current_txn_start_offset"
)
_TRANSACTIONAL_ID: Final = "SELECT transactional_id FROM producer_ids WHERE producer_id = ?"
_OUTCOMES: Final = {"COMMIT": "committed", "ABORT": "aborted", None: "open"}
_COLUMNS: Final = ("committed", "aborted", "open", "plain", "COMMIT", "ABORT")
"""What a bin counts."""


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


@dataclass(frozen=True, slots=True)
class TimelineBin:
    """What is stored in [start, end): data records by outcome, and markers."""

    start: int
    end: int
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
    """One partition's log in the window [start, end).

    `committed`, `aborted` and `open` count the transactions that touch the window; `transactions` are
    these, by first offset, or empty if there are too many (`aggregated`). The bins have one width, though
    the last may be shorter, and cover the window whether aggregated or not.
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

    def rows(self, clearance: int = 1) -> tuple[int, ...]:
        """For each transaction the lowest row in which it covers no other (greedy interval colouring).

        An open one goes on to the log end; `clearance` is the least room a transaction takes.
        """
        ends: list[int] = []
        rows = []
        for span in self.transactions:
            last = self.offsets.log_end_offset if span.marker_offset < 0 else span.marker_offset + 1
            row = next((i for i, end in enumerate(ends) if end <= span.first_offset), len(ends))
            if row == len(ends):
                ends.append(0)
            ends[row] = max(last, span.first_offset + clearance)
            rows.append(row)
        return tuple(rows)


def _read_partition(
    connection: sqlite3.Connection,
    partition: Partition,
    start: int | None,
    end: int | None,
    max_transactions: int,
    max_bins: int,
) -> PartitionTimeline:
    """The partition's timeline in [start, end), None: from the log start, to the log end."""
    low, high = partition.log_start_offset, partition.log_end_offset
    begin = low if start is None else min(max(start, low), high)
    stop = high if end is None else max(min(end, high), begin)
    found = _Collector(begin, stop, max_transactions, max_bins)
    _walk(connection, partition, found)
    names: dict[int, str | None] = {}
    for span in found.spans:
        if span.producer_id not in names:
            row = connection.execute(_TRANSACTIONAL_ID, (span.producer_id,)).fetchone()
            names[span.producer_id] = None if row is None else row[0]
    spans = (
        TransactionSpan(
            s.producer_id, names[s.producer_id], s.first, s.marker, s.records, s.outcome
        )
        for s in found.spans
    )
    return PartitionTimeline(
        partition.topic,
        partition.partition,
        partition.offsets(),
        begin,
        stop,
        found.totals["committed"],
        found.totals["aborted"],
        found.totals["open"],
        tuple(sorted(spans, key=lambda span: (span.first_offset, span.marker_offset))),
        found.bins.made(),
    )


@dataclass(slots=True)
class _Span:
    """A transaction as far as the walk has seen it."""

    producer_id: int
    first: int
    marker: int = -1
    records: int = 0
    outcome: str = "open"
    by_bin: dict[int, int] = field(default_factory=dict)


class _Bins:
    """Counters along [start, end)."""

    def __init__(self, start: int, end: int, most: int) -> None:
        self.start, self.end = start, end
        size = end - start
        self.width = max(1, -(-size // most))
        self._counts = [dict.fromkeys(_COLUMNS, 0) for _ in range(-(-size // self.width))]

    def parts(self, start: int, end: int) -> Iterable[tuple[int, int]]:
        """The bins that [start, end) touches, and how many of its offsets lie in each."""
        at, stop = max(start, self.start), min(end, self.end)
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
            TimelineBin(edge, min(edge + self.width, self.end), *counts.values())
            for edge, counts in zip(edges, self._counts, strict=True)
        )


class _Collector:
    """What the walk has found: totals and bins always, spans while they are few."""

    def __init__(self, start: int, end: int, max_transactions: int, max_bins: int) -> None:
        self.start, self.end = start, end
        self.totals = dict.fromkeys(_OUTCOMES.values(), 0)
        self.spans: list[_Span] = []
        self.bins = _Bins(start, end, max_bins)
        self._room = max_transactions

    def finish(self, span: _Span) -> None:
        """Add a transaction whose outcome is known."""
        self.bins.add(span.outcome, span.by_bin.items())
        if span.first >= self.end or 0 <= span.marker < self.start:
            return
        self.totals[span.outcome] += 1
        if sum(self.totals.values()) <= self._room:
            self.spans.append(span)
        else:
            self.spans.clear()


def _walk(connection: sqlite3.Connection, partition: Partition, found: _Collector) -> None:
    partition_id, low = partition.partition_id, partition.log_start_offset
    unfinished: dict[int, int] = dict(connection.execute(_OPEN, (partition_id,)).fetchall())
    running: dict[int, _Span] = {}
    awaited = 0
    """How many of the running ones have a marker later in the log."""
    steps = connection.execute(
        _WALK,
        {"partition_id": partition_id, "start": low, "clean": partition.clean_offset},
    )
    next(steps)
    for at, after, producer_id, is_transactional, control in steps:
        if at >= found.end and not awaited:
            break
        if control is not None:
            if producer_id in running:
                span = running.pop(producer_id)
                awaited -= 1
            elif at < found.end:
                span = _Span(producer_id, at)
            else:
                continue
            span.marker = at
            span.outcome = _OUTCOMES[control]
            found.bins.add(control, found.bins.parts(at, after))
            found.finish(span)
        elif not is_transactional:
            found.bins.add("plain", found.bins.parts(at, after))
        else:
            known = running.get(producer_id)
            if known is None:
                if at >= found.end:
                    continue
                known = running[producer_id] = _Span(producer_id, at)
                awaited += not 0 <= unfinished.get(producer_id, -1) <= at
            known.records += after - at
            for number, count in found.bins.parts(at, after):
                known.by_bin[number] = known.by_bin.get(number, 0) + count
    steps.close()
    for producer_id, first in unfinished.items():
        # Also one whose records the log start has passed.
        running.setdefault(producer_id, _Span(producer_id, first)).first = max(first, low)
    for span in running.values():
        found.finish(span)


MAX_GROUPS: Final = 200
"""How many group positions a partition shows; those furthest behind come first."""
_POSITIONS: Final = (
    "SELECT group_id, committed_offset FROM group_offsets WHERE topic = ? AND partition = ? "
    "ORDER BY committed_offset, group_id"
)


def check_window(start: int | None, end: int | None, max_transactions: int, max_bins: int) -> None:
    """Raises InvalidRequestError for an invalid range of offsets, and for limits below their minimum."""
    for name, offset in (("start", start), ("end", end)):
        if offset is not None:
            check_int(name, offset, 0)
    if start is not None and end is not None and end < start:
        raise InvalidRequestError(f"end: got {end}, expected an offset of at least start, {start}")
    check_int("max_transactions", max_transactions, 0)
    check_int("max_bins", max_bins, 1, 100_000)


def read(
    connection: sqlite3.Connection,
    authorizer: Authorizer,
    topic: str,
    partition: int | None,
    start: int | None,
    end: int | None,
    max_transactions: int,
    max_bins: int,
) -> Iterator[PartitionTimeline]:
    """The timelines of the topic's partitions, or of one.

    Raises UnknownTopicOrPartitionError and TopicAuthorizationFailedError.
    """
    tp = check_topic_partition(TopicPartition(topic, 0 if partition is None else partition))
    authorizer.check(connection, "describe", "topic", topic)
    first = partition_rows.read(connection, tp)
    for found in [first] if partition is not None else partition_rows.read_topic(connection, topic):
        read = _read_partition(connection, found, start, end, max_transactions, max_bins)
        shown = tuple(_shown(connection, authorizer, span) for span in read.transactions)
        groups, left_out = _groups(connection, authorizer, found.topic_partition)
        yield replace(read, transactions=shown, groups=groups, groups_left_out=left_out)


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
    """The groups' positions, without eosdb's internal groups, and how many more there are."""
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
