"""Scheduled records: stored at once, read by nobody before they are due, and then once."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import eosdb
from eosdb import ManualClock, ProducerRecord, Record, RecordBatch, TopicPartition
from eosdb.errors import (
    InvalidTimestampError,
    UnknownTopicOrPartitionError,
)
from eosdb.log import scheduled
from tests.classic import transactional
from tests.log.scheduling import DAY, PAST, SECOND, WAYS, Send, by_publish, by_send, values, waiting


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t", partitions=3)


@pytest.mark.parametrize("send", WAYS)
def test_it_is_stored_at_once_and_read_when_it_is_due(
    db: eosdb.Database, clock: ManualClock, send: Send
) -> None:
    now = clock.time_ms()
    send(db, "later", now + SECOND)
    reader = db.consumer(auto_offset_reset="earliest")
    reader.subscribe(["t"])
    assert waiting(db) == ["later"]
    assert reader.poll() == []
    clock.advance(SECOND - 1)
    db.housekeeping()
    assert reader.poll() == []
    clock.advance(1)
    (record,) = reader.poll()
    assert (record.key, record.value, record.headers) == (b"k", b"later", ())
    assert record.timestamp == now + SECOND
    assert (waiting(db), reader.poll()) == ([], [])
    assert db.verify().ok


@pytest.mark.parametrize("send", WAYS[:-1])
def test_one_that_is_due_already_enters_at_once(db: eosdb.Database, send: Send) -> None:
    send(db, "late", PAST)
    assert values(db) == ["late"]


@pytest.mark.parametrize("send", WAYS)
def test_it_goes_where_its_key_would_have_gone(
    db: eosdb.Database, clock: ManualClock, send: Send
) -> None:
    send(db, "later", clock.time_ms() + SECOND)
    db.admin.create_partitions("t", 100)
    clock.advance(SECOND)
    db.housekeeping()
    with eosdb.connect(Path(db.path).with_name("other.db")) as other:
        other.admin.create_topic("t", partitions=3)
        expected = other.producer().send("t", key="k").result().partition
    (row,) = db.query("SELECT partition FROM committed_records")
    assert tuple(row) == (expected,)


def test_a_record_without_a_key_after_it_is_not_scheduled(db: eosdb.Database) -> None:
    with contextlib.closing(db.producer(transactional_id="p")) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", "later", partition=0, deliver_at=db.clock.time_ms() + SECOND)
            future = producer.send("t", "now")
    assert future.result().partition >= 0
    assert (waiting(db), values(db)) == (["later"], ["now"])


def test_due_ones_enter_in_the_order_of_their_times_and_equals_as_sent(
    db: eosdb.Database, clock: ManualClock
) -> None:
    now, producer = clock.time_ms(), db.producer()
    for value, due in [("c", 3), ("a", 1), ("b1", 2), ("b2", 2), ("late", 9), ("b3", 2)]:
        producer.send("t", value, partition=0, deliver_at=now + due * SECOND).result()
    clock.advance(5 * SECOND)
    db.housekeeping()
    assert values(db) == ["a", "b1", "b2", "b3", "c"]
    assert waiting(db) == ["late"]


def test_the_earliest_of_those_that_were_stored_together_is_delivered_in_time(
    db: eosdb.Database, clock: ManualClock
) -> None:
    now, producer = clock.time_ms(), db.producer()
    producer.send("t", "last", partition=0, deliver_at=now + 90 * SECOND).result()
    together = [(due, now + due * SECOND) for due in (50, 10, 70)]
    records = [ProducerRecord(value=f"{due}", partition=0, deliver_at=at) for due, at in together]
    producer.send_many("t", records)
    clock.advance(10 * SECOND)
    producer.send("t", "a write delivers", partition=1).result()
    assert values(db) == ["10", "a write delivers"]


def test_more_than_a_unit_takes_enter_in_order(db: eosdb.Database, clock: ManualClock) -> None:
    now = clock.time_ms()
    records = [
        ProducerRecord(value=f"{number}", partition=0, deliver_at=now + 1 + number % 7)
        for number in range(1_200)
    ]
    db.producer().send_many("t", records)
    large = [ProducerRecord(value="x" * 300_000, partition=1, deliver_at=now + 1) for _ in range(8)]
    db.producer().send_many("t", large)
    clock.advance(8)
    db.housekeeping()
    expected = sorted(range(1_200), key=lambda number: number % 7)
    assert [int(value) for value in values(db) if len(value) < 9] == expected
    assert db.verify().ok


@pytest.mark.parametrize(
    "when",
    [
        datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
        datetime(2030, 1, 2, 5, 4, 5, 678_000, tzinfo=timezone(timedelta(hours=2))),
        1_893_553_445_678,
    ],
)
def test_a_time_is_ms_or_an_aware_datetime(db: eosdb.Database, when: int | datetime) -> None:
    assert db.producer().send("t", deliver_at=when).result().timestamp == 1_893_553_445_678
    (record,) = db.admin.list_scheduled()
    assert record.deliver_at == 1_893_553_445_678


@pytest.mark.parametrize(
    "when", [datetime(2030, 1, 2), "tomorrow", 1.5, True, -1, 2**63, 0, 60_000, 1_795_909_233]
)
def test_anything_else_is_refused_and_nothing_is_stored(db: eosdb.Database, when: object) -> None:
    for send in WAYS[1:2] + WAYS[3:]:
        with pytest.raises(InvalidTimestampError, match="deliver_at: got"):
            send(db, "never", when)  # type: ignore[arg-type]
    with pytest.raises(InvalidTimestampError, match="deliver_at: got"):
        db.producer().send("t", deliver_at=when)  # type: ignore[arg-type]
    assert waiting(db) == values(db) == []


def test_a_fenced_producer_schedules_nothing(db: eosdb.Database) -> None:
    zombie, heir = (db.producer(transactional_id="p") for _ in range(2))
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.send("t", "of a zombie", deliver_at=PAST)
    zombie.flush()
    heir.init_transactions()
    with pytest.raises(eosdb.EosdbError):
        zombie.commit_transaction()
    with heir.transaction():
        heir.send("t", "of its heir", deliver_at=PAST)
    assert (waiting(db), values(db)) == ([], ["of its heir"])


def test_version_1_of_transactions_schedules_alike(tmp_path: Path, clock: ManualClock) -> None:
    with eosdb.connect(tmp_path / "classic.db", clock=clock) as db:
        db.admin.create_topic("t")
        producer = transactional(db, "p", version=1)
        for value in ("a", "b"):
            with producer.transaction():
                producer.send("t", value, deliver_at=PAST)
        db.housekeeping()
        assert values(db) == ["a", "b"]
        assert db.verify().ok


def test_a_topic_with_log_append_time_keeps_due_times(
    db: eosdb.Database, clock: ManualClock
) -> None:
    db.admin.alter_topic_config("t", {"message.timestamp.type": "LogAppendTime"})
    by_send(db, "a", clock.time_ms() + DAY)
    db.housekeeping()
    assert (waiting(db), values(db)) == (["a"], [])
    clock.advance(DAY)
    db.housekeeping()
    (row,) = db.query("SELECT timestamp, timestamp_type FROM committed_records")
    assert tuple(row) == (clock.time_ms(), 1)


@pytest.mark.parametrize("topic_partition", [("gone", None), ("t", 3), ("t", -1)])
def test_a_place_that_does_not_exist_is_refused(
    db: eosdb.Database, topic_partition: tuple[str, int | None]
) -> None:
    topic, partition = topic_partition
    with pytest.raises(UnknownTopicOrPartitionError):
        db.producer().send(topic, "a", partition=partition, deliver_at=PAST)
    with pytest.raises(UnknownTopicOrPartitionError):
        db.producer().send_many(
            topic, [ProducerRecord(value="a", partition=partition, deliver_at=PAST)]
        )
    with pytest.raises(UnknownTopicOrPartitionError), db.begin() as tx:
        tx.publish(topic, "a", partition=partition, deliver_at=PAST)
    assert waiting(db) == []


def test_who_only_polls_delivers_and_who_may_only_read_does_not(
    db_path: Path, clock: ManualClock
) -> None:
    with eosdb.connect(db_path, clock=clock) as db:
        db.admin.create_topic("t", exist_ok=True)
        by_send(db, "a", clock.time_ms() + 100)
        clock.advance(100)
        with eosdb.connect(db_path, clock=clock, read_only=True) as only_reader:
            reader = only_reader.consumer(auto_offset_reset="earliest")
            reader.subscribe(["t"])
            assert reader.poll() == []
            assert waiting(only_reader) == ["a"]
        by_send(db, "b", clock.time_ms() + 100)
        reader = db.consumer(auto_offset_reset="earliest")
        reader.subscribe(["t"])
        before = clock.time_ms()
        assert [record.value for record in reader.poll(timeout_ms=5_000)] == [b"a"]
        assert [record.value for record in reader.poll(timeout_ms=5_000)] == [b"b"]
        assert clock.time_ms() == before + 100, "a poll wakes up for a record that gets due"


def test_headers_stay_and_a_timestamp_beside_the_due_time_is_refused(
    db: eosdb.Database, clock: ManualClock
) -> None:
    """The record gets the time at which it enters."""
    headers = [("__eosdb.scheduled", b"9,9"), ("h", None)]
    due = clock.time_ms() + 1
    sent = db.producer().send("t", "a", partition=2, headers=headers, deliver_at=due).result()
    assert (sent.partition, sent.offset, sent.timestamp) == (-3, 0, due)
    (waits,) = db.admin.list_scheduled("t")
    assert (waits.partition, list(waits.headers)) == (2, headers)
    both = ProducerRecord(value="b", timestamp=77, deliver_at=due)
    with pytest.raises(InvalidTimestampError, match="got 77 with deliver_at"):
        db.producer().send("t", "b", timestamp=77, deliver_at=due)
    with pytest.raises(InvalidTimestampError, match="got 77 with deliver_at"):
        db.producer().send_many("t", [both])
    with pytest.raises(InvalidTimestampError, match="got 77 with deliver_at"), db.begin() as tx:
        tx.publish("t", "b", timestamp=77, deliver_at=due)
    clock.advance(10)
    reader = db.consumer(auto_offset_reset="earliest")
    reader.subscribe(["t"])
    (record,) = reader.poll()
    assert (record.partition, record.timestamp) == (2, due + 9)
    assert list(record.headers) == headers


def test_an_aborted_transaction_schedules_nothing_and_an_open_one_not_yet(
    db: eosdb.Database, clock: ManualClock
) -> None:
    """An open transaction holds back nothing that waits beside it."""
    due = clock.time_ms() + SECOND
    producer = db.producer(transactional_id="p")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", "undone", key="k", deliver_at=due)
    producer.flush()
    by_send(db, "beside", due)
    assert waiting(db) == ["beside"]
    clock.advance(SECOND)
    db.housekeeping()
    assert (waiting(db), values(db)) == ([], ["beside"])
    producer.abort_transaction()
    with producer.transaction():
        producer.send("t", "done", key="k", deliver_at=clock.time_ms() + SECOND)
        producer.send("t", "with it")
        clock.advance(SECOND)
    by_send(db, "a write delivers", PAST)
    assert sorted(values(db)) == ["a write delivers", "beside", "done", "with it"]
    with pytest.raises(KeyError), db.begin() as tx:
        tx.publish("t", "undone", deliver_at=clock.time_ms() + SECOND)
        raise KeyError
    assert waiting(db) == []
    assert db.verify().ok


@pytest.mark.parametrize("error", [eosdb.DatabaseFullError("no room"), KeyboardInterrupt()])
def test_a_write_whose_delivery_fails_is_not_done_and_the_next_one_delivers(
    db: eosdb.Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> int:
        raise error

    with db.begin() as tx:
        tx.publish("t", "due at the commit", deliver_at=clock.time_ms() + SECOND)
        clock.advance(SECOND)
    with monkeypatch.context() as patch, pytest.raises(type(error)):
        patch.setattr(scheduled, "deliver", fail)
        by_publish(db, "not done", PAST)
    assert (values(db), waiting(db)) == ([], ["due at the commit"])
    by_publish(db, "next", PAST)
    assert (values(db), waiting(db)) == (["due at the commit", "next"], [])


@pytest.mark.parametrize("partition", [-1, -3, -4, 0])
def test_only_a_batch_of_scheduled_records_may_go_to_a_waiting_partition_and_nowhere_else(
    db: eosdb.Database, partition: int
) -> None:
    """A plain append to partition -1 would appear in partition 0."""
    tp = TopicPartition("t", partition)
    is_there = -3 <= partition < 0
    batch = RecordBatch([Record(None, b"a", (), 2**50)], is_scheduled=not is_there)
    result = db.broker.produce({tp: batch})[tp]
    assert isinstance(result.error, eosdb.UnknownTopicOrPartitionError)
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        db.broker.append(tp, batch)
    assert waiting(db) == values(db) == []
    result = db.broker.produce({tp: batch._replace(is_scheduled=is_there)})[tp]
    assert (result.error is None) == (partition >= -3)
