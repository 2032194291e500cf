"""What a producer tells of a record, and keeps of its buffer, once the answer is there."""

from __future__ import annotations

import eosdb
from eosdb import ManualClock, TopicPartition
from eosdb.client.producer.accumulator import RecordAccumulator
from eosdb.errors import InvalidRecordError
from eosdb.model.values import ProducerIdAndEpoch
from tests.client.producer.test_places_and_sequences import TP, batch_of

ME = ProducerIdAndEpoch(7, 0)


def test_the_time_is_the_one_that_is_stored(db: eosdb.Database, clock: ManualClock) -> None:
    db.admin.create_topic("own", config={"retention.ms": -1})
    db.admin.create_topic("appended", config={"message.timestamp.type": "LogAppendTime"})
    with db.producer() as producer:
        sent = {topic: producer.send(topic, b"v", timestamp=5) for topic in ("own", "appended")}
        producer.flush()
    told = {topic: future.result().timestamp for topic, future in sent.items()}
    assert told == {"own": 5, "appended": clock.time_ms()}
    for topic, time in told.items():
        assert db.broker.fetch(TopicPartition(topic, 0), 0).records[0].timestamp == time


def test_the_buffer_counts_what_waits() -> None:
    accumulator = RecordAccumulator(1_000, 1_000)
    first, second = batch_of(2), batch_of(3)
    for batch in (first, second):
        accumulator.put_back(batch)
    assert (accumulator.buffered_bytes, bool(accumulator)) == (5, True)
    accumulator.remove(first)
    assert accumulator.buffered_bytes == 3
    accumulator.remove(first)
    assert accumulator.take_first(TP) is second
    assert (accumulator.buffered_bytes, bool(accumulator)) == (0, False)


def test_a_refusal_ends_the_doubt_about_an_earlier_attempt(db: eosdb.Database) -> None:
    """The broker has looked at the sequence: whatever became of the attempt, it is not stored, and the
    partition may go on under a new epoch."""
    with db.producer() as producer:
        sender = producer._sender
        progress, batch = producer._manager.progress(TP), batch_of()
        progress.assign(batch, ME)
        batch.attempts, batch.in_doubt = 2, True
        error = InvalidRecordError("refused")
        sender._completion.complete(batch, ME, True, error, 0)
        assert batch.error is error
        assert error.outcome == "unknown"
        assert not progress.in_doubt
