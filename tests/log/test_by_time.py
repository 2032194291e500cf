"""The first record at a time as readers ask for it, and Kafka's rule beside it; back-dated records."""

from __future__ import annotations

import logging
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from eosdb.admin.tools import Tools
from eosdb.errors import InvalidRequestError
from eosdb.model.values import IsolationLevel

TP = TopicPartition("t", 0)
NOW = 10**12


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), is_committed=st.booleans())
def test_it_is_the_first_that_the_view_shows(seed: int, *, is_committed: bool) -> None:
    rng = random.Random(seed)
    level: IsolationLevel = "read_committed" if is_committed else "read_uncommitted"
    view = "committed_records" if is_committed else "all_records"
    with eosdb.connect(":memory:", clock=ManualClock(NOW)) as db:
        db.admin.create_topic("t", config={"retention.ms": -1})
        producers = [db.producer(transactional_id=f"p{i}") for i in range(2)]
        for producer in producers:
            producer.init_transactions()
        for _ in range(rng.randrange(25)):
            producer = rng.choice(producers)
            if producer.state != "IN_TRANSACTION":
                producer.begin_transaction()
            elif rng.random() < 0.4:
                rng.choice((producer.commit_transaction, producer.abort_transaction))()
                continue
            for _ in range(rng.randrange(1, 40)):
                time = rng.choice((rng.randrange(50), NOW + rng.randrange(-50, 50)))
                producer.send("t", b"x" * rng.choice((1, 1_000)), timestamp=time)
            producer.flush()
        end = db.broker.offsets(TP).log_end_offset
        db.broker.delete_records(TP, rng.randrange(end + 1))
        for time in (0, rng.randrange(50), NOW + rng.randrange(-50, 50), 2**62):
            found = Tools(db.admin).first_record_at(TP, time, isolation_level=level)
            expected = db.query(
                f'SELECT "offset", timestamp FROM {view} WHERE timestamp >= ? AND '
                f'{"control IS NULL AND" if not is_committed else ""} "offset" >= ? '
                'ORDER BY "offset" LIMIT 1',
                (time, db.broker.offsets(TP).log_start_offset),
            ).rows
            assert list(expected) == ([] if found is None else [tuple(found)])


def test_kafkas_rule_finds_the_marker(db: eosdb.Database) -> None:
    db.admin.create_topic("t", config={"retention.ms": -1})
    with db.producer(transactional_id="p") as producer:
        producer.init_transactions()
        for time in (1_000, 2_000):
            producer.begin_transaction()
            producer.send("t", b"v", timestamp=time)
            producer.commit_transaction()
    assert db.broker.list_offsets(TP, 1_500).offset == 1
    assert Tools(db.admin).first_record_at(TP, 1_500) == (2, 2_000)
    assert Tools(db.admin).first_record_at(TP, 2_001) is None
    with pytest.raises(InvalidRequestError):
        Tools(db.admin).first_record_at(TP, -1)


def test_records_that_are_too_old_when_they_arrive_are_warned_of_once(
    db: eosdb.Database, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    day = 86_400_000
    old = RecordBatch([Record(value=b"v", timestamp=clock.time_ms() - 9 * day)])
    db.admin.create_topic("kept", config={"retention.ms": -1})
    db.admin.create_topic("compacted", config={"cleanup.policy": "compact"})
    db.admin.create_topic("now", config={"message.timestamp.type": "LogAppendTime"})
    db.admin.create_topic("t")
    keyed = RecordBatch([Record(key=b"k", value=b"v", timestamp=old.records[0].timestamp)])
    with caplog.at_level(logging.WARNING, "eosdb"):
        for topic, batch in (("kept", old), ("compacted", keyed), ("now", old)):
            db.broker.append(TopicPartition(topic, 0), batch)
        young = Record(value=b"v", timestamp=clock.time_ms() - 6 * day)
        db.broker.append(TP, RecordBatch([young, *old.records]))
        assert caplog.messages == []
        for _ in range(3):
            db.broker.append(TP, old)
    (message,) = caplog.messages
    assert message.startswith(
        "topic t: records arrive that are 9.0 days old by their timestamps, and retention.ms=604800000 "
        "keeps them for 7.0 days only"
    )
    assert "eosdb topics alter t --config retention.ms=-1" in message
