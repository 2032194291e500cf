"""How far behind a reader is, told in records: markers and aborted data are no lag."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eosdb
from eosdb import Lag, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from tests.random_log import random_log

TP = TopicPartition("t", 0)


def test_lag_is_a_number_that_tells_more() -> None:
    lag = Lag(3, held_back=2, skipped=1)
    assert lag == 3
    assert (lag.readable, lag.held_back, lag.skipped) == (3, 2, 1)
    assert repr(lag) == "Lag(3, held_back=2, skipped=1)"


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t")


def test_markers_and_aborted_data_are_no_lag(db: eosdb.Database) -> None:
    producer = db.producer(transactional_id="x")
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for _ in range(5):
            producer.send("t", "v")
        producer.flush()
        end()
    producer.begin_transaction()
    producer.send("t", "open")
    producer.flush()
    db.broker.append(TP, RecordBatch([Record(value=b"behind it")]))
    lag = db.broker.lag(TP, 0)
    assert (lag, lag.held_back, lag.skipped) == (5, 2, 7)
    everything = db.broker.lag(TP, 0, isolation_level="read_uncommitted")
    assert (everything, everything.held_back, everything.skipped) == (12, 0, 2)
    with db.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        assert consumer.lag() == {TP: 5}
        assert len(consumer.poll()) == 5
        assert consumer.lag() == {TP: 0}
        assert consumer.lag()[TP].held_back == 2
    producer.commit_transaction()
    assert db.broker.lag(TP, 12) == 2


@pytest.mark.parametrize("offset", [0, 3, 100])
def test_below_the_log_and_beyond_it_there_is_nothing(db: eosdb.Database, offset: int) -> None:
    for _ in range(6):
        db.broker.append(TP, RecordBatch([Record(value=b"v")]))
    db.broker.delete_records(TP, 4)
    assert db.broker.lag(TP, offset) == (0 if offset == 100 else 2)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_it_is_what_the_views_count_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    with eosdb.connect(":memory:", clock=eosdb.ManualClock(10**12)) as db:
        db.admin.create_topic("t")
        list(random_log(db, rng, rng.randrange(60)))
        end = db.broker.offsets(TP).log_end_offset
        if rng.random() < 0.3:
            db.broker.delete_records(TP, rng.randrange(end + 1))
        for position in {0, end, *(rng.randrange(end + 1) for _ in range(5))}:
            db.broker.offset_commit("g", {TP: OffsetAndMetadata(position)})
            ((readable, held_back),) = db.query(
                "SELECT readable_lag, held_back FROM consumer_offsets"
            ).rows
            lag = db.broker.lag(TP, position)
            assert (lag, lag.held_back) == (readable, held_back)
            ((rows,),) = db.query(
                'SELECT count(*) FROM all_records WHERE "offset" >= ?', (position,)
            ).rows
            assert readable + held_back + lag.skipped == rows
