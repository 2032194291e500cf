"""What a producer tells of a record, and keeps of its buffer, once the answer is there."""

from __future__ import annotations

import eosdb
from eosdb import ManualClock, TopicPartition
from eosdb.client.producer.accumulator import RecordAccumulator
from eosdb.errors import InvalidRecordError, NetworkExceptionError
from tests.client.producer.answers import Answers
from tests.client.producer.test_places_and_sequences import TP, batch_of


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
    for batch in (second, first):
        accumulator.put_back(batch)
    assert (accumulator.buffered_bytes, bool(accumulator)) == (5, True)
    accumulator.remove(first)
    assert accumulator.buffered_bytes == 3
    accumulator.remove(first)
    assert accumulator.take_first(TP) is second
    assert (accumulator.buffered_bytes, bool(accumulator)) == (0, False)


def test_a_refusal_behind_a_lost_answer_is_in_doubt_and_the_partition_goes_on(
    db: eosdb.Database,
) -> None:
    """The broker has looked at the sequence, and the next one needs a new epoch."""
    db.admin.create_topic("t")
    error = InvalidRecordError("refused")
    network = Answers(db, ("produce", NetworkExceptionError("lost")), ("produce", error))
    with db.producer(transport=network) as producer:
        assert producer.send("t", b"lost").exception() is error
        assert error.outcome == "unknown"
        producer.send("t", b"next").result()
    told = [(r.value, r.producer_epoch, r.sequence) for r in db.broker.fetch(TP, 0).records]
    assert told == [(b"next", 1, 0)]
