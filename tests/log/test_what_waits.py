"""What waits for its time is neither forgotten nor shown, and outlives whatever happens to its file."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

import eosdb
from eosdb import BrokerConfig, ManualClock, Record, RecordBatch, TopicPartition
from eosdb.errors import (
    MessageTooLargeError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from eosdb.model.topic_config import MOVING_TO
from tests.log.scheduling import DAY, SECOND, by_publish, by_send, values, waiting


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t", partitions=3)


def test_an_idempotency_key_is_used_when_the_record_is_scheduled(
    db: eosdb.Database, clock: ManualClock
) -> None:
    due = clock.time_ms() + DAY
    for value in ("first", "second"):
        with db.begin() as tx:
            metadata = tx.publish("t", value, deliver_at=due, idempotency_key="daily-2030-01-01")
    assert (metadata.partition < 0, metadata.duplicate) == (True, True)
    clock.advance(DAY)
    db.housekeeping()
    assert values(db) == ["first"]


def test_what_protects_it_from_a_repeat_is_known_as_long_as_it_waits(
    db: eosdb.Database, clock: ManualClock
) -> None:
    """Its idempotency key, and its producer's sequences; both last as long after its time as usual."""
    far = clock.time_ms() + 30 * DAY
    me = db.broker.init_producer_id()
    batch = RecordBatch([Record(None, b"by send", (), far)], *me, 0, is_scheduled=True)

    def schedule() -> tuple[bool, bool]:
        with db.begin() as tx:
            given = tx.publish("t", "by publish", deliver_at=far, idempotency_key="once")
        to = TopicPartition("t", -2)
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
        assert not [row for row in db.query(f"SELECT * FROM {view}") if row["partition"] < 0]
    (one,) = db.admin.list_scheduled()
    (row,) = db.query(
        "SELECT topic, partition, CAST(value AS TEXT), deliver_at FROM scheduled_records"
    )
    assert tuple(row) == ("t", one.partition, "secret", clock.time_ms() + DAY)


def test_a_damaged_one_is_told_and_stops_nothing(
    db: eosdb.Database, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    waits = [
        db.producer().send("t", value, partition=2, deliver_at=clock.time_ms() + 1)
        for value in "ab"
    ]
    assert [each.result().partition for each in waits] == [-3, -3]
    with contextlib.closing(sqlite3.connect(db.path)) as connection:
        connection.execute("DROP TRIGGER records_refuse_update")
        connection.execute("UPDATE records SET value = x'00' WHERE value = CAST('a' AS BLOB)")
        connection.commit()
    clock.advance(1)
    db.housekeeping()
    assert (values(db), waiting(db)) == (["b"], [])
    assert "the scheduled records at offsets [0] of partition -3 are damaged" in caplog.text


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
