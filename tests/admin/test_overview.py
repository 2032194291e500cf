"""A file in figures at one instant: dead letters, groups, open transactions, at a flat cost."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb import Acl, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.admin.overview import COUNTED_MAX
from eosdb.client.processor.failure import Failure
from eosdb.model.clock import ManualClock
from eosdb.model.overview import DeadLetterFigures, between
from eosdb.model.records.failure_headers import NEVER
from tests.client.processor.work import bury

IN = TopicPartition("in", 0)


@pytest.fixture
def failing(db: eosdb.Database) -> eosdb.Database:
    """Five records in `in`; a dead letter topic of two partitions."""
    db.admin.create_topic("in")
    db.admin.create_topic("dlq", partitions=2)
    db.broker.append(IN, RecordBatch([Record(key=b"%d" % i, value=b"v") for i in range(5)]))
    return db


def dead_letters(db: eosdb.Database) -> dict[str, int]:
    return {found.topic: found.waiting for found in db.admin.overview().dead_letters}


def test_dead_letters_are_counted_without_the_markers_between_them(
    failing: eosdb.Database, clock: eosdb.ManualClock
) -> None:
    assert dead_letters(failing) == {}
    bury(failing)
    (found,) = failing.admin.overview().dead_letters
    assert found == DeadLetterFigures(
        topic="dlq", waiting=5, newest_timestamp=found.newest_timestamp
    )
    assert 0 < found.newest_timestamp <= clock.time_ms()


def test_letters_that_were_replayed_wait_no_longer(failing: eosdb.Database) -> None:
    bury(failing)
    letters = failing.dead_letters("dlq")
    one = next(iter(letters.letters())).record
    letters.replay([(one.partition, one.offset)])
    assert dead_letters(failing) == {"dlq": 4}
    letters.replay()
    assert dead_letters(failing) == {"dlq": 0}


def test_records_that_wait_for_their_next_attempt_are_no_dead_letters(
    db: eosdb.Database,
) -> None:
    db.admin.create_topic("__eosdb.postponed.g")
    db.broker.append(TopicPartition("__eosdb.postponed.g", 0), RecordBatch([failed(due_ms=5)]))
    assert dead_letters(db) == {}
    db.broker.append(TopicPartition("__eosdb.postponed.g", 0), RecordBatch([failed()]))
    assert dead_letters(db) == {"__eosdb.postponed.g": 2}


def test_many_letters_are_estimated_from_the_first(db: eosdb.Database) -> None:
    db.admin.create_topic("dlq")
    tp = TopicPartition("dlq", 0)
    for _ in range(3):
        db.broker.append(tp, RecordBatch([failed()] * COUNTED_MAX))
    assert dead_letters(db) == {"dlq": 3 * COUNTED_MAX}


def failed(due_ms: int = NEVER) -> Record:
    failure = Failure("g", "in", 0, 7, 1, "ValueError", "no", "", 0, due_ms)
    return Record(value=b"v", headers=failure.mark([("own", b"1")]))


def test_headers_that_only_look_like_it_make_no_dead_letter(db: eosdb.Database) -> None:
    db.admin.create_topic("in")
    own = (("note", b'["__eosdb.errors.due_ms","LTE="]'), ('["__eosdb.errors.due_ms', b"-1"))
    db.broker.append(IN, RecordBatch([Record(value=b"v", headers=own)]))
    assert dead_letters(db) == {}


def test_groups_have_their_state_members_and_distance(db: eosdb.Database) -> None:
    db.admin.create_topic("in")
    db.broker.append(IN, RecordBatch([Record(value=b"v")] * 5))
    with db.consumer("joined") as consumer, db.consumer("alone") as alone:
        consumer.subscribe("in")
        consumer.poll()
        alone.assign([IN])
        alone.commit({IN: OffsetAndMetadata(3)})
        groups = {group.group_id: group for group in db.admin.overview().groups}
    assert (groups["joined"].state, groups["joined"].members) == ("Stable", 1)
    assert (groups["alone"].state, groups["alone"].members, groups["alone"].behind) == (
        "Empty",
        0,
        2,
    )


def test_replays_are_no_group_of_the_user(failing: eosdb.Database) -> None:
    bury(failing)
    failing.dead_letters("dlq").replay()
    assert [group.group_id for group in failing.admin.overview().groups] == ["g"]


def test_what_the_principal_may_not_describe_is_left_out(
    failing: eosdb.Database, db_path: Path
) -> None:
    bury(failing)
    failing.admin.create_topic("open")
    failing.admin.create_acls([Acl("User:guest", "describe", "topic", "open", "literal", "allow")])
    with eosdb.connect(db_path, principal="User:guest", read_only=True) as guest:
        seen = guest.admin.overview()
    assert [found.topic for found in seen.partitions] == ["open"]
    assert (seen.groups, seen.transactions, seen.dead_letters) == ((), (), ())


def test_scheduled_records_are_counted_by_topic_and_told_when_they_are_late(
    db: eosdb.Database, db_path: Path, clock: eosdb.ManualClock
) -> None:
    """But not those of an open transaction, nor of a topic that the principal may not describe."""
    now = clock.time_ms()
    for topic in ("in", "secret"):
        db.admin.create_topic(topic)
        for due in (now + 5, now + 9, now + 60_000):
            db.producer().send(topic, b"v", deliver_at=due).result()
    producer = db.producer(transactional_id="open")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("in", b"v", deliver_at=now + 1).result()
    assert db.admin.overview().scheduled == (("in", 3, 0, now + 5), ("secret", 3, 0, now + 5))
    clock.advance(20_000)
    db.housekeeping()
    left = (("in", 1, 0, now + 60_000), ("secret", 1, 0, now + 60_000))
    assert (db.admin.overview().scheduled, db.why()) == (left, [])
    db.admin.create_acls([Acl("User:guest", "describe", "topic", "in", "literal", "allow")])
    clock.advance(60_000)
    with eosdb.connect(db_path, principal="User:guest", read_only=True, clock=clock) as guest:
        assert guest.admin.overview().scheduled == (("in", 1, 1, now + 60_000),)
        assert [(each.topic, each.command.split()[1]) for each in guest.why()] == [
            ("in", "housekeeping")
        ]


def test_the_cost_does_not_grow_with_what_is_in_the_file(db: eosdb.Database) -> None:
    """Statements are counted: one for each kind of thing, not one for each thing."""
    statements = count_statements(db)
    for name in ("a", "b"):
        db.admin.create_topic(name, partitions=20)
        for number in range(20):
            tp = TopicPartition(name, number)
            db.broker.append(tp, RecordBatch([Record(value=b"v")] * 50))
            with db.consumer(f"{name}{number}") as consumer:
                consumer.assign([tp])
                consumer.commit({tp: OffsetAndMetadata(1)})
    assert count_statements(db) == statements


def count_statements(db: eosdb.Database) -> int:
    run: list[str] = []
    with db._store.read() as connection:
        connection.set_trace_callback(run.append)
    try:
        db.admin.overview()
    finally:
        with db._store.read() as connection:
            connection.set_trace_callback(None)
    return len(run)


def test_rates_are_what_was_added_since(db: eosdb.Database, clock: eosdb.ManualClock) -> None:
    db.admin.create_topic("in", partitions=2)
    before = db.admin.overview()
    db.broker.append(IN, RecordBatch([Record(value=b"v")] * 50))
    clock.advance(5_000)
    rates = between(before, db.admin.overview())
    assert rates is not None
    assert rates.offsets == {IN: 10.0}
    assert rates.events > 0
    assert between(before, before) is None


def test_rates_tell_how_fast_each_group_moves_on() -> None:
    clock, tp = ManualClock(1), TopicPartition("t", 0)
    with eosdb.connect(":memory:", clock=clock) as db:
        db.admin.create_topic("t")
        with db.producer() as producer:
            for _ in range(4):
                producer.send("t", b"x")
        with db.consumer("g", auto_offset_reset="earliest") as consumer:
            consumer.assign([tp])
            consumer.poll(0, max_records=1)
            consumer.commit()
            before = db.admin.overview()
            consumer.poll(0)
            consumer.commit()
            clock.advance(2_000)
            rates = between(before, db.admin.overview())
    assert rates is not None
    assert rates.groups == {"g": 1.5}
