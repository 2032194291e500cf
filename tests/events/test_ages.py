"""The newest record's time is stored as its age, and comes back whatever the two clocks say."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from eosdb.events.encoding import Lean, batch, fill_in, read, write
from eosdb.events.kinds import BatchAppended

TP = TopicPartition("t", 0)


@pytest.mark.parametrize("age_ms", [-10_000, -1, 0, 1, 10_000])
def test_a_record_may_be_older_or_newer_than_its_append(
    db: eosdb.Database, clock: ManualClock, age_ms: int
) -> None:
    db.admin.create_topic("t", config={"retention.ms": -1})
    time = clock.time_ms() - age_ms
    db.broker.append(
        TP, RecordBatch([Record(value=b"v", timestamp=time), Record(value=b"v", timestamp=1)])
    )
    newest = db.broker.list_offsets(TP, eosdb.MAX_TIMESTAMP)
    assert (newest.offset, newest.timestamp) == (0, time)
    assert db.verify().ok
    db.rebuild()
    assert db.broker.list_offsets(TP, eosdb.MAX_TIMESTAMP) == newest


@pytest.mark.parametrize("age_ms", [-(2**62), -1, 0, 1, 2**53])
def test_the_row_gives_the_event_back(age_ms: int) -> None:
    now = 10**12
    event = BatchAppended(now, "t", 0, None, 1, 5, 2, -1, -1, -1, False, now - age_ms, 6, 10, 7)
    expected = batch(now, None, 5, None)
    row = read(write(event, expected))
    assert isinstance(row, Lean)
    assert fill_in(row, expected) == event
