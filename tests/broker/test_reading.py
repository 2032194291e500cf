"""Fetch, offsets by time, and the log start."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

import eosdb
from eosdb import (
    ManualClock,
    OffsetAndTimestamp,
    Record,
    RecordBatch,
    TopicPartition,
)
from eosdb.log import retention
from tests.readers import committed_values
from tests.requests import TP, Send, begin

LEVEL: Final = "read_committed"


def test_fetch_at_and_beyond_the_edges(classic_db: eosdb.Database, send: Send) -> None:
    send(b"0", b"1")
    who = begin(classic_db)
    send(b"2", who=who, sequence=0, transactional_id="a")
    send(b"3")
    for offset in (2, 3, 4):
        fetched = classic_db.broker.fetch(TP, offset, isolation_level=LEVEL)
        assert (list(fetched.records), fetched.next_offset) == ([], offset)
        assert (fetched.last_stable_offset, fetched.high_watermark) == (2, 4)
    for offset in (-1, 5):
        with pytest.raises(eosdb.OffsetOutOfRangeError):
            classic_db.broker.fetch(TP, offset)


def test_the_aborted_list_is_what_touches_the_fetched_range(
    classic_db: eosdb.Database, send: Send
) -> None:
    ends = []
    for i in range(3):
        who = begin(classic_db)
        send(b"%d" % i, who=who, sequence=0, transactional_id="a")
        classic_db.broker.end_txn("a", *who, False)
        ends.append((2 * i, 2 * i + 1))

    def listed(offset: int, **limits: Any) -> list[tuple[int, int]]:
        fetched = classic_db.broker.fetch(TP, offset, isolation_level=LEVEL, **limits)
        return [(a.first_offset, a.last_offset) for a in fetched.aborted_transactions]

    assert listed(0) == ends
    assert listed(1) == ends
    assert listed(2) == ends[1:]
    assert listed(0, max_records=2) == ends[:1]
    assert listed(0, max_records=3) == ends[:2]
    assert classic_db.broker.fetch(TP, 0).aborted_transactions == []
    entries = classic_db.broker.fetch(TP, 0, isolation_level=LEVEL).aborted_transactions
    assert [entry.last_stable_offset for entry in entries] == [2, 4, 6]


def test_an_index_entry_remembers_the_oldest_other_open_transaction(
    classic_db: eosdb.Database, send: Send
) -> None:
    slow, fast = begin(classic_db, "slow"), begin(classic_db, "fast")
    send(b"s", who=slow, sequence=0, transactional_id="slow")
    send(b"f", who=fast, sequence=0, transactional_id="fast")
    classic_db.broker.end_txn("fast", *fast, False)
    classic_db.broker.end_txn("slow", *slow, True)
    (entry,) = classic_db.broker.fetch(TP, 0, isolation_level=LEVEL).aborted_transactions
    assert entry == (fast.producer_id, 1, 2, 0)
    assert committed_values(classic_db, TP) == [b"s"]


def test_at_least_one_record_whatever_its_size(classic_db: eosdb.Database, send: Send) -> None:
    send(b"x" * 1_000, b"y" * 10, b"z" * 10)
    assert [r.value for r in classic_db.broker.fetch(TP, 0, max_bytes=1).records] == [b"x" * 1_000]
    assert len(classic_db.broker.fetch(TP, 1, max_bytes=20).records) == 2
    assert len(classic_db.broker.fetch(TP, 1, max_bytes=19).records) == 1


def test_offsets_by_time(classic_db: eosdb.Database, send: Send, clock: ManualClock) -> None:
    for timestamp in (100, 300, 300, 200):
        send(b"v", timestamp=timestamp)
    assert classic_db.broker.list_offsets(TP, 0) == OffsetAndTimestamp(0, 100)
    assert classic_db.broker.list_offsets(TP, 101) == OffsetAndTimestamp(1, 300)
    assert classic_db.broker.list_offsets(TP, 301) == OffsetAndTimestamp(-1, -1)
    assert classic_db.broker.list_offsets(TP, eosdb.MAX_TIMESTAMP) == OffsetAndTimestamp(1, 300)
    assert classic_db.broker.list_offsets(TP, eosdb.EARLIEST) == OffsetAndTimestamp(0, -1)
    assert classic_db.broker.list_offsets(TP, eosdb.LATEST) == OffsetAndTimestamp(4, -1)
    classic_db.broker.delete_records(TP, 3)
    assert classic_db.broker.list_offsets(TP, 101) == OffsetAndTimestamp(3, 200)
    assert classic_db.broker.list_offsets(TP, eosdb.MAX_TIMESTAMP) == OffsetAndTimestamp(3, 200)
    who = begin(classic_db)
    send(b"v", who=who, sequence=0, transactional_id="a", timestamp=900)
    assert classic_db.broker.list_offsets(TP, 900) == OffsetAndTimestamp(4, 900)
    for asked in (900, eosdb.MAX_TIMESTAMP):
        found = classic_db.broker.list_offsets(TP, asked, isolation_level=LEVEL)
        assert found == OffsetAndTimestamp(-1, -1)
    classic_db.broker.end_txn("a", *who, True)
    newest = classic_db.broker.list_offsets(TP, eosdb.MAX_TIMESTAMP)
    assert newest == OffsetAndTimestamp(5, clock.time_ms()), "control records count"


def test_offsets_by_time_in_a_long_log(classic_db: eosdb.Database) -> None:
    """The time index is sparse; what it says is never beyond the answer."""
    times = [(i * 7_919) % 5_000 + i for i in range(3_000)]
    for i in range(0, len(times), 20):
        records = [Record(value=b"x" * 300, timestamp=t) for t in times[i : i + 20]]
        classic_db.broker.append(TP, RecordBatch(records))
    assert list(classic_db.query("SELECT count(*) > 3 FROM time_index").rows) == [(1,)]
    for wanted in range(0, 9_000, 450):
        expected = next((i for i, t in enumerate(times) if t >= wanted), -1)
        assert classic_db.broker.list_offsets(TP, wanted).offset == expected


def test_log_append_time(classic_db: eosdb.Database, clock: ManualClock) -> None:
    classic_db.admin.create_topic("log", config={"message.timestamp.type": "LogAppendTime"})
    tp = TopicPartition("log", 0)
    result = classic_db.broker.append(tp, RecordBatch([Record(timestamp=5), Record()]))
    assert result.log_append_time == clock.time_ms()
    records = classic_db.broker.fetch(tp, 0).records
    assert [(r.timestamp, r.timestamp_type) for r in records] == [(clock.time_ms(), 1)] * 2
    assert classic_db.broker.append(TP, RecordBatch([Record(timestamp=5)])).log_append_time == -1


def test_records_of_a_large_log_are_deleted_in_units_that_do_not_grow_with_it(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_ROWS_PER_REQUEST", 40)
    db.admin.create_topic("t")
    for _ in range(10):
        db.broker.append(TP, RecordBatch([Record(value=b"v")] * 10))
    assert db.broker.delete_records(TP, 95) == 95
    moves = [event.detail for event in db.admin.journal(kinds=("LogStartOffsetMoved",))]
    assert [json.loads(detail)["log_start_offset"] for detail in moves] == [40, 80, 95]
    assert sum(json.loads(detail)["size"] for detail in moves) == 95
    assert db.query("SELECT count(*) FROM records").rows.__next__() == (5,)
    assert db.verify().ok


def test_a_deletion_that_is_refused_in_the_middle_is_finished_by_another_call(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_ROWS_PER_REQUEST", 4)
    db.admin.create_topic("t")
    db.broker.append(TP, RecordBatch([Record(value=b"v")] * 10))
    move, calls = retention.move_log_start, list[int]()

    def refused(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise eosdb.DatabaseLockedError("not now")
        move(*arguments)

    monkeypatch.setattr(retention, "move_log_start", refused)
    with pytest.raises(eosdb.DatabaseLockedError) as caught:
        db.broker.delete_records(TP, 9)
    assert caught.value.outcome == "unknown"
    assert db.broker.offsets(TP).log_start_offset == 4
    assert db.broker.delete_records(TP, 9) == 9


def test_delete_records(classic_db: eosdb.Database, send: Send) -> None:
    who = begin(classic_db)
    send(b"0", b"1", who=who, sequence=0, transactional_id="a")
    send(b"2", b"3")
    assert classic_db.broker.delete_records(TP, 1) == 1
    assert classic_db.broker.delete_records(TP, 0) == 1
    for beyond in (5, -2):
        with pytest.raises(eosdb.OffsetOutOfRangeError):
            classic_db.broker.delete_records(TP, beyond)
    offsets = classic_db.broker.offsets(TP)
    assert (offsets.first_unstable_offset, offsets.last_stable_offset) == (1, 1)
    assert classic_db.broker.describe_producers(TP)[0].current_txn_start_offset == 0
    assert classic_db.broker.delete_records(TP, -1) == 4
    classic_db.broker.end_txn("a", *who, False)
    (entry,) = classic_db.broker.fetch(TP, 4, isolation_level=LEVEL).aborted_transactions
    assert (entry.first_offset, entry.last_offset) == (0, 4)
    assert classic_db.broker.offsets(TP).last_stable_offset == 5
    assert classic_db.verify().ok
