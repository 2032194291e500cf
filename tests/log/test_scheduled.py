"""Scheduled records: stored at once, read by nobody before they are due, and then once."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import eosdb
from eosdb import BrokerConfig, ManualClock, ProducerRecord, Record, RecordBatch, TopicPartition
from eosdb.errors import (
    InvalidTimestampError,
    MessageTooLargeError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from eosdb.log import scheduled
from eosdb.log.batch import PreparedBatch, prepare
from eosdb.model.topic_config import MOVING_TO

SECOND, DAY = 1_000, 86_400_000
Send = Callable[[eosdb.Database, str, int], object]


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t", partitions=3)


def values(db: eosdb.Database, topic: str = "t") -> list[str]:
    """The values in the topic, in the order in which they have entered it, without a poll."""
    rows = db.query(
        "SELECT CAST(c.value AS TEXT) FROM committed_records c "
        "JOIN partitions p ON p.topic = c.topic AND p.partition = c.partition "
        "JOIN records r ON r.partition_id = p.partition_id AND r.offset = c.offset "
        f"WHERE c.topic = '{topic}' ORDER BY r.position, c.offset"
    )
    return [value for (value,) in rows]


def waiting(db: eosdb.Database, topic: str | None = None) -> list[str]:
    return [(one.value or b"").decode() for one in db.admin.list_scheduled(topic)]


def by_send(db: eosdb.Database, value: str, due: int) -> object:
    return db.producer().send("t", value, key="k", deliver_at=due).result()


def by_send_many(db: eosdb.Database, value: str, due: int) -> object:
    return (
        db.producer().send_many("t", [ProducerRecord(value=value, key="k", deliver_at=due)]).offsets
    )


def by_transaction(db: eosdb.Database, value: str, due: int) -> object:
    with contextlib.closing(db.producer(transactional_id=value)) as producer:
        producer.init_transactions()
        with producer.transaction():
            return producer.send("t", value, key="k", deliver_at=due)


def by_publish(db: eosdb.Database, value: str, due: int) -> object:
    with db.begin() as tx:
        return tx.publish("t", value, key="k", deliver_at=due)


def by_join(db: eosdb.Database, value: str, due: int) -> object:
    with contextlib.closing(sqlite3.connect(db.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        metadata = eosdb.join(connection, clock=db.clock).publish(
            "t", value, key="k", deliver_at=due
        )
        connection.execute("COMMIT")
        return metadata


WAYS = [by_send, by_send_many, by_transaction, by_publish, by_join]


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
    send(db, "late", 1)
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
            producer.send("t", "later", partition=1, deliver_at=db.clock.time_ms() + SECOND)
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
    "when", [datetime(2030, 1, 2), "tomorrow", 1.5, True, -1, 2**63, 1_795_909_233]
)
def test_anything_else_is_refused_and_nothing_is_stored(db: eosdb.Database, when: object) -> None:
    for send in WAYS[1:2] + WAYS[3:]:
        with pytest.raises(InvalidTimestampError, match="deliver_at: got"):
            send(db, "never", when)  # type: ignore[arg-type]
    with pytest.raises(InvalidTimestampError, match="deliver_at: got"):
        db.producer().send("t", deliver_at=when)  # type: ignore[arg-type]
    assert waiting(db) == values(db) == []


def test_headers_and_a_given_timestamp_stay(db: eosdb.Database, clock: ManualClock) -> None:
    sent = {
        "deliver_at": clock.time_ms() + 1,
        "headers": [("__eosdb.scheduled", b"9,9"), ("h", None)],
    }
    db.producer().send("t", "a", key="k", partition=2, timestamp=77, **sent).result()  # type: ignore[arg-type]
    (waits,) = db.admin.list_scheduled("t")
    assert (waits.partition, waits.timestamp) == (2, 77)
    assert list(waits.headers) == sent["headers"]
    clock.advance(1)
    reader = db.consumer(auto_offset_reset="earliest")
    reader.subscribe(["t"])
    (record,) = reader.poll()
    assert (record.partition, record.timestamp) == (2, 77)
    assert list(record.headers) == sent["headers"]


def test_an_aborted_transaction_schedules_nothing_and_an_open_one_not_yet(
    db: eosdb.Database, clock: ManualClock
) -> None:
    producer = db.producer(transactional_id="p")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", "undone", deliver_at=1)
    producer.flush()
    by_send(db, "beside", 1)
    assert (waiting(db), values(db)) == ([], ["beside"])
    producer.abort_transaction()
    with producer.transaction():
        producer.send("t", "done", deliver_at=1)
        producer.send("t", "with it")
    clock.advance(DAY)
    db.housekeeping()
    assert sorted(values(db)) == ["beside", "done", "with it"]
    with pytest.raises(KeyError), db.begin() as tx:
        tx.publish("t", "undone", deliver_at=1)
        raise KeyError
    assert waiting(db) == []
    assert db.verify().ok


def test_a_block_delivers_what_is_due_when_it_commits_and_looks_for_nothing_else(
    db: eosdb.Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    coordinator = db._core.coordinator
    serve = coordinator.serve_readers

    def look() -> bool:
        looks.append(1)
        return serve()

    monkeypatch.setattr(coordinator, "serve_readers", look)
    with db.begin() as tx:
        tx.publish("t", "now")
        tx.publish("t", "tomorrow", deliver_at=clock.time_ms() + DAY)
    assert looks == []
    with db.begin() as tx:
        tx.publish("t", "soon", deliver_at=clock.time_ms() + SECOND)
        clock.advance(SECOND)
    assert (looks, values(db)) == ([1], ["now", "soon"])
    with db.begin() as tx:
        tx.publish("t", "past", deliver_at=0)
        sql = tx.connection.exec_driver_sql
        sql("SAVEPOINT mine")
        tx.publish("t", "undone", deliver_at=0)
        sql("ROLLBACK TO mine")
    assert values(db) == ["now", "soon", "past"]


@pytest.mark.parametrize("error", [eosdb.DatabaseFullError("no room"), KeyboardInterrupt()])
def test_a_block_whose_delivery_fails_has_committed_and_the_next_write_delivers(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A full disk is not the block's; an interrupt is raised behind the commit."""

    def fail(*_: object) -> int:
        raise error

    raises = isinstance(error, KeyboardInterrupt)
    expected = pytest.raises(KeyboardInterrupt) if raises else contextlib.nullcontext()
    with monkeypatch.context() as patch, expected:
        patch.setattr(scheduled, "deliver", fail)
        with db.begin() as tx:
            tx.publish("t", "past", deliver_at=0)
    assert (values(db), waiting(db)) == ([], ["past"])
    by_publish(db, "next", 0)
    assert (values(db), waiting(db)) == (["past", "next"], [])


def test_a_fenced_producer_schedules_nothing(db: eosdb.Database) -> None:
    zombie, heir = (db.producer(transactional_id="p") for _ in range(2))
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.send("t", "of a zombie", deliver_at=1)
    zombie.flush()
    heir.init_transactions()
    with pytest.raises(eosdb.EosdbError):
        zombie.commit_transaction()
    with heir.transaction():
        heir.send("t", "of its heir", deliver_at=1)
    assert (waiting(db), values(db)) == ([], ["of its heir"])


def test_version_1_of_transactions_schedules_alike(tmp_path: Path, clock: ManualClock) -> None:
    config = BrokerConfig(transaction_version=1)
    with eosdb.connect(tmp_path / "classic.db", clock=clock, config=config) as db:
        db.admin.create_topic("t")
        producer = db.producer(transactional_id="p")
        producer.init_transactions()
        for value in ("a", "b"):
            with producer.transaction():
                producer.send("t", value, deliver_at=1)
        db.housekeeping()
        assert values(db) == ["a", "b"]
        assert db.verify().ok


def test_an_idempotency_key_is_used_when_the_record_is_scheduled(
    db: eosdb.Database, clock: ManualClock
) -> None:
    due = clock.time_ms() + DAY
    for value in ("first", "second"):
        with db.begin() as tx:
            metadata = tx.publish("t", value, deliver_at=due, idempotency_key="daily-2030-01-01")
    assert (metadata.partition, metadata.duplicate) == (-1, True)
    clock.advance(DAY)
    db.housekeeping()
    assert values(db) == ["first"]


def test_what_protects_it_from_a_repeat_is_known_as_long_as_it_waits(
    db: eosdb.Database, clock: ManualClock
) -> None:
    """Its idempotency key, and its producer's sequences; both last as long after its time as usual."""
    far = clock.time_ms() + 30 * DAY
    me = db.broker.init_producer_id()
    batch = RecordBatch([Record(None, b"by send", [HEADER], far)], *me, base_sequence=0)

    def schedule() -> tuple[bool, bool]:
        with db.begin() as tx:
            given = tx.publish("t", "by publish", deliver_at=far, idempotency_key="once")
        to = TopicPartition("t", -1)
        return given.duplicate, db.broker.produce({to: batch})[to].duplicate

    assert schedule() == (False, False)
    for days in (20, 10, 0):
        clock.advance(days * DAY)
        db.housekeeping()
        assert schedule() == (True, True)
    assert (sorted(values(db)), waiting(db)) == (["by publish", "by send"], [])
    clock.advance(8 * DAY)
    db.housekeeping()
    assert schedule() == (False, False)
    assert db.verify().ok


def test_cancelled_ones_never_enter(db: eosdb.Database, clock: ManualClock) -> None:
    for value in ("a", "b", "c"):
        by_send(db, value, clock.time_ms() + DAY)
    ids = [one.id for one in db.admin.list_scheduled()]
    assert db.admin.cancel_scheduled([*ids[:2], ids[0], "999.0"]) == 2
    assert db.admin.cancel_scheduled(ids[:2]) == 0
    clock.advance(DAY)
    db.housekeeping()
    assert values(db) == ["c"]
    assert db.admin.cancel_scheduled(ids) == 0
    assert db.verify().ok


@pytest.mark.parametrize("ids", ["7.1", ["7"], ["a.1"], [7], ["1.-1"], [f"1.{2**63}"]])
def test_what_is_no_id_is_refused(db: eosdb.Database, ids: object) -> None:
    with pytest.raises(eosdb.errors.InvalidRequestError, match="ids: got"):
        db.admin.cancel_scheduled(ids)  # type: ignore[arg-type]


def test_a_deleted_topic_takes_its_scheduled_records_along(
    db: eosdb.Database, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    by_send(db, "of the old topic", clock.time_ms() + 1)
    old = db.admin.list_scheduled()
    db.admin.delete_topic("t")
    assert "1 scheduled records that were not due yet" in caplog.text
    db.admin.create_topic("t")
    by_send(db, "of the new topic", clock.time_ms() + 1)
    assert db.admin.cancel_scheduled([one.id for one in old]) == 0
    clock.advance(1)
    db.housekeeping()
    assert values(db) == ["of the new topic"]
    assert db.verify().ok


def test_a_topic_with_scheduled_records_is_not_closed(db: eosdb.Database) -> None:
    by_send(db, "later", 2**50)
    with pytest.raises(PolicyViolationError, match="has 1 scheduled records"):
        db.admin.alter_topic_config("t", {MOVING_TO: "127.0.0.1:9092"})
    db.admin.cancel_scheduled([one.id for one in db.admin.list_scheduled()])
    db.admin.alter_topic_config("t", {MOVING_TO: "127.0.0.1:9092"})
    with pytest.raises(PolicyViolationError, match="is being moved"):
        by_send(db, "later", 2**50)


def test_settings_are_asked_when_it_is_sent(db: eosdb.Database, clock: ManualClock) -> None:
    by_send(db, "x" * 2_000, clock.time_ms() + 1)
    db.producer().send("t", "no key", deliver_at=clock.time_ms() + 1).result()
    strict = {"max.message.bytes": 100, "cleanup.policy": "compact"}
    db.admin.alter_topic_config("t", strict)
    with pytest.raises(MessageTooLargeError):
        by_send(db, "x" * 2_000, clock.time_ms() + 1)
    clock.advance(1)
    db.housekeeping()
    assert sorted(map(len, values(db))) == [6, 2_000]


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
        db.producer().send(topic, "a", partition=partition, deliver_at=1)
    with pytest.raises(UnknownTopicOrPartitionError):
        db.producer().send_many(
            topic, [ProducerRecord(value="a", partition=partition, deliver_at=1)]
        )
    with pytest.raises(UnknownTopicOrPartitionError), db.begin() as tx:
        tx.publish(topic, "a", partition=partition, deliver_at=1)
    assert waiting(db) == []


def test_retention_compaction_and_housekeeping_keep_what_waits(
    db: eosdb.Database, clock: ManualClock
) -> None:
    db.admin.create_topic("short", config={"retention.ms": DAY})
    far = clock.time_ms() + 30 * DAY
    producer = db.producer()
    for value, due in [("far", far), ("near", clock.time_ms() + DAY), ("cancelled", far)]:
        producer.send("short", value, key="k", deliver_at=due).result()
    db.admin.cancel_scheduled([db.admin.list_scheduled()[-1].id])
    for _ in range(10):
        clock.advance(DAY)
        db.housekeeping()
        assert db.verify().ok
    assert (waiting(db), values(db, "short")) == (["far"], [])
    ((bodies,),) = db.query("SELECT count(*) FROM records")
    assert bodies == 1, "the others have gone from the file"
    clock.advance(20 * DAY)
    db.housekeeping()
    assert values(db, "short") == ["far"]


def test_they_outlive_a_week_a_rebuild_a_backup_and_a_restore(
    db_path: Path, tmp_path: Path, clock: ManualClock
) -> None:
    with eosdb.connect(db_path, clock=clock) as db:
        db.admin.create_topic("t", exist_ok=True)
        for value in ("a", "b"):
            by_send(db, value, clock.time_ms() + SECOND)
        ((position,),) = db.query("SELECT max(position) FROM journal")
    clock.advance(7 * DAY)
    with eosdb.connect(db_path, clock=clock) as db:
        db.rebuild()
        db.backup(tmp_path / "backup.db")
        db.housekeeping()
        assert values(db) == ["a", "b"]
        clock.advance(1)
        db.housekeeping()
        db.restore_to(tmp_path / "restored.db", position=position)
    for copy in ("backup.db", "restored.db"):
        with eosdb.connect(tmp_path / copy, clock=clock) as db:
            reader = db.consumer(auto_offset_reset="earliest")
            reader.subscribe(["t"])
            assert [record.value for record in reader.poll()] == [b"a", b"b"]
            assert reader.poll() == []
            assert db.verify().ok


def test_a_clock_that_goes_back_delivers_nothing_twice(
    db: eosdb.Database, clock: ManualClock
) -> None:
    due = clock.time_ms() + DAY
    by_send(db, "a", due)
    clock.advance(2 * DAY)
    db.housekeeping()
    behind = ManualClock(start_ms=due - DAY)
    with eosdb.connect(db.path, clock=behind) as again:
        by_send(again, "b", due)
        again.housekeeping()
        assert (values(again), waiting(again)) == (["a"], ["b"])
        behind.advance(DAY)
        again.housekeeping()
        assert values(again) == ["a", "b"]


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


def test_no_reader_sees_where_they_wait(db: eosdb.Database, clock: ManualClock) -> None:
    by_send(db, "secret", clock.time_ms() + DAY)
    there = TopicPartition("t", -1)
    with pytest.raises(UnknownTopicOrPartitionError):
        db.broker.fetch(there, 0)
    reader = db.consumer()
    with pytest.raises(UnknownTopicOrPartitionError):
        reader.assign([there])
        reader.seek_to_beginning()
    assert {tp.partition for tp in db.admin.partition_offsets()} == {0, 1, 2}
    assert {tp.partition for tp in db.admin.consistent_cut()} == {0, 1, 2}
    assert len(db.admin.describe_topic("t").partitions) == db.broker.partitions_for("t") == 3
    assert db.info()["partitions"] == 3
    for view in ("committed_records", "all_records", "partition_offsets", "producer_states"):
        assert not [row for row in db.query(f"SELECT * FROM {view}") if row["partition"] == -1]
    (row,) = db.query("SELECT topic, CAST(value AS TEXT), deliver_at FROM scheduled_records")
    assert tuple(row) == ("t", "secret", clock.time_ms() + DAY)


def test_a_damaged_one_is_told_and_stops_nothing(
    db: eosdb.Database, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for value in ("a", "b"):
        by_send(db, value, clock.time_ms() + 1)
    with contextlib.closing(sqlite3.connect(db.path)) as connection:
        connection.execute("DROP TRIGGER records_refuse_update")
        connection.execute("UPDATE records SET value = x'00' WHERE value = CAST('a' AS BLOB)")
        connection.commit()
    clock.advance(1)
    db.housekeeping()
    assert (values(db), waiting(db)) == (["b"], [])
    assert "the scheduled records at offsets [0] of partition -1 are damaged" in caplog.text


def test_rights_on_the_topic_are_those_on_its_scheduled_records(db_path: Path) -> None:
    config = BrokerConfig(super_users="User:admin")
    with eosdb.connect(db_path, principal="User:admin", config=config) as admin:
        admin.admin.create_topic("t", exist_ok=True)
        by_send(admin, "a", 2**50)
        (one,) = admin.admin.list_scheduled()
        admin.admin.create_acls([eosdb.Acl("User:writer", "write", "topic", "t")])
        with eosdb.connect(db_path, principal="User:writer", config=config) as writer:
            by_publish(writer, "b", 2**50)
            assert writer.admin.list_scheduled() == []
            with pytest.raises(eosdb.errors.TopicAuthorizationFailedError):
                writer.admin.list_scheduled("t")
            with pytest.raises(eosdb.errors.TopicAuthorizationFailedError):
                writer.admin.cancel_scheduled([one.id])
        with (
            eosdb.connect(db_path, principal="User:nobody", config=config) as nobody,
            pytest.raises(eosdb.errors.TopicAuthorizationFailedError),
        ):
            by_publish(nobody, "c", 2**50)
        assert waiting(admin) == ["a", "b"]


HEADER = ("__eosdb.scheduled", b"0")
FORGED = {
    # the header's value, and where the record enters
    b"1": 1, b"2,5": 2, b"": 0, b"x": 0, b"-1": 0, b"9" * 5_000: 0, b"1," + b"9" * 5_000: 0,
    b"1,9999999999999999999": 1, b"\xff": 0, "١".encode(): 0, b"7": 2,
}  # fmt: skip


def test_no_header_stops_the_writers(db: eosdb.Database, clock: ManualClock) -> None:
    for place in FORGED:
        record = Record(None, place, [("__eosdb.scheduled", place)], clock.time_ms() + 1)
        db.broker.produce({TopicPartition("t", -1): RecordBatch([record])})
    clock.advance(1)
    by_send(db, "later", clock.time_ms() - 1)
    rows = db.query("SELECT value, partition FROM committed_records WHERE value <> 'later'").all()
    assert {value: partition for value, partition in rows if value in FORGED} == FORGED


def test_one_that_its_topic_refuses_is_told_and_stops_nothing(
    db: eosdb.Database, clock: ManualClock, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for value in ("a", "b", "c"):
        by_send(db, value, clock.time_ms() + 1)

    def refusing(batch: RecordBatch, now_ms: int) -> PreparedBatch:
        if any(record.value == b"b" for record in batch.records):
            raise eosdb.errors.InvalidRecordError("never")
        return prepare(batch, now_ms)

    monkeypatch.setattr(scheduled, "prepare", refusing)
    clock.advance(1)
    db.housekeeping()
    assert (values(db), waiting(db)) == (["a", "c"], [])
    assert "at offsets [1] of partition -1" in caplog.text


@pytest.mark.parametrize("headers", [[(), ()], [(HEADER,), ()], [(("h", b"1"),), (HEADER,)]])
def test_a_record_without_the_header_finds_no_partition_minus_1(
    db: eosdb.Database, headers: list[tuple[tuple[str, bytes], ...]]
) -> None:
    """Before, a plain append to partition -1 was stored, and appeared in partition 0."""
    batch = RecordBatch([Record(None, b"a", each) for each in headers])
    for partition in (-1, -2):
        with pytest.raises(eosdb.UnknownTopicOrPartitionError):
            db.broker.append(TopicPartition("t", partition), batch)
    result = db.broker.produce({TopicPartition("t", -1): batch})[TopicPartition("t", -1)]
    assert isinstance(result.error, eosdb.UnknownTopicOrPartitionError)
    assert waiting(db) == values(db) == []
