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

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from eosdb.admin.timeline.bins import OUTCOMES, Bins, Collector, Span, Window, in_order
from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.groups.offsets import OWN
from eosdb.log import partition_rows
from eosdb.log.partition_rows import Partition
from eosdb.model.damage import reads
from eosdb.model.timeline.timeline import GroupPosition, PartitionTimeline, TransactionSpan
from eosdb.model.validation import check_topic_partition
from eosdb.model.values import TopicPartition

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
        # Also one whose records the log start has passed.
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
