"""A partition's transactions along its offsets: exactly those of the log, however they lie."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from eosdb.admin.timeline.layout import rows
from eosdb.admin.timeline.reading import PartitionTimeline, TransactionSpan
from eosdb.errors import InvalidRequestError
from tests.client.producer.answers import transactional
from tests.random_log import random_log

TP = TopicPartition("t", 0)


def history(db: eosdb.Database, seed: int) -> None:
    """Transactions that overlap, of several producers, between plain records, some of them deleted."""
    rng = random.Random(seed)
    db.admin.create_topic("t")
    list(random_log(db, rng, rng.randrange(80), producers=4))
    if rng.random() < 0.3:
        db.broker.delete_records(TP, rng.randrange(db.broker.offsets(TP).log_end_offset + 1))


def brute_force(db: eosdb.Database) -> set[tuple[str, int, int, int]]:
    """Outcome, first stored offset, marker and records of each transaction, record by record."""
    running: dict[int, list[int]] = defaultdict(list)
    found = set()
    rows = db.query(
        'SELECT "offset", producer_id, is_transactional, control FROM all_records '
        "WHERE topic = 't' AND partition = 0 ORDER BY 1"
    ).rows
    for offset, producer_id, is_transactional, control in rows:
        if control is not None:
            data = running.pop(producer_id, [])
            outcome = "committed" if control == "COMMIT" else "aborted"
            found.add((outcome, data[0] if data else offset, offset, len(data)))
        elif is_transactional:
            running[producer_id].append(offset)
    low = db.broker.offsets(TP).log_start_offset
    for opened in db.admin.open_transactions(TP):
        data = running.get(opened.producer_id, [])
        found.add(("open", max(opened.start_offset, low), -1, len(data)))
    return found


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_spans_and_counts_are_those_of_the_log(seed: int) -> None:
    with eosdb.connect(":memory:", clock=ManualClock(10**12)) as db:
        history(db, seed)
        (lane,) = db.admin.timeline("t", max_bins=7)
        spans = {(s.outcome, s.first_offset, s.marker_offset, s.records) for s in lane.transactions}
        # Of a log that has been deleted whole there is nothing to show, not even what is open.
        assert spans == {span for span in brute_force(db) if span[1] < lane.end}
        assert not lane.aggregated
        check_bins(db, lane)
        rows_do_not_overlap(lane)
        (counted,) = db.admin.timeline("t", max_transactions=0, max_bins=7)
        assert counted.bins == lane.bins
        assert (counted.total, counted.transactions) == (lane.total, ())
        a_part_has_what_touches_it(db, lane, random.Random(seed))


def a_part_has_what_touches_it(
    db: eosdb.Database, lane: PartitionTimeline, rng: random.Random
) -> None:
    """Of an open transaction the records behind the part are not counted."""
    low, high = sorted(rng.choices(range(lane.end + 1), k=2))
    (part,) = db.admin.timeline("t", start=low, end=high)
    touching = ordered(
        span
        for span in lane.transactions
        if span.first_offset < part.end and not 0 <= span.marker_offset < part.start
    )
    found = [
        replace(span, records=other.records) if span.outcome == "open" else span
        for span, other in zip(ordered(part.transactions), touching, strict=True)
    ]
    assert found == touching


def ordered(spans: Iterable[TransactionSpan]) -> list[TransactionSpan]:
    """Deleted beginnings leave open transactions that begin at one offset, in any order."""
    return sorted(spans, key=lambda span: (span.first_offset, span.producer_id))


def check_bins(db: eosdb.Database, lane: PartitionTimeline) -> None:
    for one in lane.bins:
        ((committed, aborted, opened, plain, markers),) = db.query(
            "SELECT coalesce(sum(control IS NULL AND is_transactional AND status = 'committed'), 0), "
            "coalesce(sum(control IS NULL AND status = 'aborted'), 0), "
            "coalesce(sum(control IS NULL AND status = 'open'), 0), "
            "coalesce(sum(NOT is_transactional), 0), count(control) FROM all_records "
            'WHERE topic = \'t\' AND "offset" >= ? AND "offset" < ?',
            (one.start, one.end),
        ).rows
        found = (one.committed, one.aborted, one.open, one.plain)
        assert found == (committed, aborted, opened, plain)
        assert one.commit_markers + one.abort_markers == markers
        assert one.stored == sum(found) + markers
    edges = [(one.start, one.end) for one in lane.bins]
    assert all(a[1] == b[0] for a, b in pairwise(edges))
    if edges:
        assert (edges[0][0], edges[-1][1]) == (lane.start, lane.end)


def rows_do_not_overlap(lane: PartitionTimeline) -> None:
    by_row: dict[int, int] = {}
    placed = rows((first, last + 1) for first, last in map(lane.extent, lane.transactions))
    for span, row in zip(lane.transactions, placed, strict=True):
        assert span.first_offset >= by_row.get(row, -1)
        end = lane.offsets.log_end_offset if span.marker_offset < 0 else span.marker_offset + 1
        by_row[row] = end


def test_a_window_shows_what_touches_it(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    producer = transactional(db, "x")
    for _ in range(4):  # Offsets 0-2, 3-5, 6-8, 9-11, each with its marker last.
        with producer.transaction():
            producer.send("t", b"v")
            producer.send("t", b"v")
    (lane,) = db.admin.timeline("t", 0, start=4, end=7)
    assert [(s.first_offset, s.marker_offset) for s in lane.transactions] == [(3, 5), (6, 8)]
    assert (lane.start, lane.end, sum(b.stored for b in lane.bins)) == (4, 7, 3)
    (beyond,) = db.admin.timeline("t", 0, start=100)
    assert (beyond.start, beyond.end, beyond.bins) == (12, 12, ())


def test_along_time_each_record_lies_where_it_was_appended(
    db: eosdb.Database, clock: ManualClock
) -> None:
    """Four transactions, ten seconds apart; their records' own timestamps are of another century."""
    began = clock.time_ms()
    four_transactions(db, clock)
    for number in range(5):
        db.broker.offset_commit(f"group {number}", {TP: eosdb.OffsetAndMetadata(number * 3)})
    (lane,) = db.admin.timeline("t", by="time", max_bins=40)
    assert (lane.axis, lane.end) == ((began, began + 39_001), 12)
    ended = [
        ((b.start - began) // 10_000, b.commit_markers, b.abort_markers)
        for b in lane.bins
        if b.commit_markers + b.abort_markers
    ]
    assert ended == [(0, 1, 0), (1, 0, 1), (2, 1, 0), (3, 1, 0)]
    assert sum(b.committed for b in lane.bins) == 6
    assert sum(b.aborted for b in lane.bins) == 2
    assert [(s.first_ms - began, s.marker_ms - began) for s in lane.transactions] == [
        (0, 9_000), (10_000, 19_000), (20_000, 29_000), (30_000, 39_000)
    ]  # fmt: skip
    places = [lane.place(group.offset) - began for group in lane.groups]
    assert places == [0, 10_000, 20_000, 30_000, 39_001]
    assert db.admin.timeline("t")[0].place(3) == 3


def four_transactions(db: eosdb.Database, clock: ManualClock) -> None:
    """Each with two records at once, and its end after nine seconds; one is aborted."""
    db.admin.create_topic("t")
    producer = transactional(db, "x")
    for number in range(4):
        producer.begin_transaction()
        for _ in range(2):
            producer.send("t", b"v", timestamp=5)
        producer.flush()
        clock.advance(9_000)
        producer.abort_transaction() if number == 1 else producer.commit_transaction()
        clock.advance(1_000)


@pytest.mark.parametrize("by", ["offset", "time"])
def test_a_window_of_time_holds_what_was_appended_in_it(
    db: eosdb.Database, clock: ManualClock, by: str
) -> None:
    began = clock.time_ms()
    four_transactions(db, clock)
    (lane,) = db.admin.timeline("t", by=by, since=began + 10_000, until=began + 29_000)
    assert (lane.start, lane.end) == (3, 8)
    assert [s.first_offset for s in lane.transactions] == [3, 6]
    assert sum(b.stored for b in lane.bins) == 5
    assert (lane.start_ms, lane.end_ms) == (began + 10_000, began + 29_000)
    (none,) = db.admin.timeline("t", by=by, since=began + 90_000)
    assert (none.total, sum(b.stored for b in none.bins)) == (0, 0)


def test_what_is_open_goes_on_to_now(db: eosdb.Database, clock: ManualClock) -> None:
    four_transactions(db, clock)
    producer = transactional(db, "stuck")
    producer.begin_transaction()
    producer.send("t", b"v")
    producer.flush()
    clock.advance(30_000)
    (lane,) = db.admin.timeline("t", by="time")
    assert lane.end_ms == clock.time_ms()
    assert lane.extent(lane.transactions[-1]) == (clock.time_ms() - 30_000, clock.time_ms())


@pytest.mark.slow
@pytest.mark.parametrize("by", ["offset", "time"])
def test_of_too_many_the_longest_and_the_open_ones_are_listed(
    db: eosdb.Database, clock: ManualClock, by: str
) -> None:
    db.admin.create_topic("t")
    names = ("short", "long", "stuck")
    short, long, stuck = (db.producer(transactional_id=name) for name in names)
    for producer in (short, long, stuck):
        producer.init_transactions()
    for number in range(300):
        for starts, producer in ((100, long), (200, stuck)):
            if number == starts:
                producer.begin_transaction()
                producer.send("t", b"v")
                producer.flush()
        with short.transaction():
            short.send("t", b"v")
        clock.advance(10)
        if number == 150:
            long.commit_transaction()
    (lane,) = db.admin.timeline("t", by=by, max_transactions=100)
    assert (lane.aggregated, lane.total, len(lane.transactions)) == (True, 302, 100)
    (most,) = db.admin.timeline("t", by=by, max_transactions=2)
    assert [s.transactional_id for s in most.transactions] == ["long", "stuck"]
    assert set(most.transactions) < set(lane.transactions)


def test_groups_stand_where_they_have_committed(db: eosdb.Database) -> None:
    db.admin.create_topic("t", partitions=2)
    db.broker.append(TP, RecordBatch([Record(value=b"v")] * 5))
    for group, offset in (("b", 3), ("a", 3), ("c", 0), ("__eosdb.own", 1)):
        db.broker.offset_commit(group, {TP: eosdb.OffsetAndMetadata(offset)})
    lane, other = db.admin.timeline("t")
    assert [(g.group_id, g.offset) for g in lane.groups] == [("c", 0), ("a", 3), ("b", 3)]
    assert other.groups == ()


def test_a_compacted_log_has_gaps_and_no_surprises(db: eosdb.Database, clock: ManualClock) -> None:
    db.admin.create_topic("t", config={"cleanup.policy": "compact"})
    producer = transactional(db, "x")
    for i in range(6):
        with producer.transaction():
            for key in ("a", "b", f"only {i}"):
                producer.send("t", b"v", key=key)
    clock.advance(10)
    db.housekeeping()
    (lane,) = db.admin.timeline("t", max_bins=5)
    ((stored,),) = db.query("SELECT count(*) FROM all_records").rows
    assert sum(one.stored for one in lane.bins) == stored
    assert sum(span.records for span in lane.transactions) + 6 == stored
    assert lane.committed == 6


@pytest.mark.parametrize(
    "arguments",
    [
        {"start": -1},
        {"start": 5, "end": 4},
        {"max_bins": 0},
        {"max_transactions": -1},
        {"since": -1},
        {"since": 5, "until": 4},
        {"by": "size"},
    ],
)
def test_windows_that_are_none_are_refused(db: eosdb.Database, arguments: dict[str, Any]) -> None:
    db.admin.create_topic("t")
    with pytest.raises(InvalidRequestError):
        db.admin.timeline("t", **arguments)
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        db.admin.timeline("t", 5)
