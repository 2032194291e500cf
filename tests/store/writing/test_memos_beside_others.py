"""What a unit remembers outlives the appends of other connections, and nothing that they have changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import eosdb
from eosdb.errors import InvalidProducerEpochError, MessageTooLargeError
from eosdb.maintenance import history
from eosdb.model.config import BrokerConfig
from eosdb.store.writing import unit

KEEPS_NOTHING = BrokerConfig(history_retention_ms=0)


@pytest.fixture
def other(db: eosdb.Database, db_path: Path) -> Iterator[eosdb.Database]:
    """A second database object on the file, as another process would have."""
    db.admin.create_topic("t", 2)
    with eosdb.connect(db_path, clock=db.clock, durability="off") as other:
        for each in (db, other):
            each.admin.fence_producer("y")  # Each elects its coordinator.
        yield other


def send(producer: eosdb.Producer, value: bytes = b"v", partition: int = 0) -> int:
    return producer.send("t", value, partition=partition).result().offset


def take_turns(*producers: eosdb.Producer) -> None:
    """Until each database has caught up with the others twice, so that it keeps what it may."""
    for _ in range(2):
        for producer in producers:
            send(producer, partition=1)


def offsets_read(db: eosdb.Database) -> list[int]:
    """What readers of committed records find in partition 0."""
    with db.consumer(isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([eosdb.TopicPartition("t", 0)])
        return [record.offset for record in consumer.poll()]


def said_to_sqlite(db: eosdb.Database, producer: eosdb.Producer) -> list[str]:
    """The first words of each statement of a send to partition 0."""
    writer = db._store._writer
    assert writer is not None
    said: list[str] = []
    writer.connection.set_trace_callback(said.append)
    send(producer)
    writer.connection.set_trace_callback(None)
    return [" ".join(statement.split()[:2]) for statement in said]


def test_a_send_beside_one_of_another_reads_its_event_alone(
    db: eosdb.Database, other: eosdb.Database
) -> None:
    with db.producer() as mine, other.producer() as theirs:
        for _ in range(6):
            send(mine)
            send(theirs, partition=1)
        said = said_to_sqlite(db, mine)
    assert [words for words in said if words.startswith("SELECT")] == ["SELECT position,"]


@pytest.mark.parametrize("events", [1, unit._PASSED_MAX + 1])
def test_two_that_send_to_one_partition_need_one_unit_for_a_record(
    events: int, db: eosdb.Database, other: eosdb.Database
) -> None:
    """With a stale offset or position the row exists already, and the unit runs again."""
    with db.producer() as mine, other.producer() as theirs:
        take_turns(mine, theirs)
        send(mine)
        for _ in range(events):
            send(theirs)
        assert said_to_sqlite(db, mine).count("BEGIN IMMEDIATE") == 1
        assert send(theirs) == events + 2
    assert db.verify().ok


def test_transactions_of_two_in_one_partition_end_each_for_itself(
    db: eosdb.Database, other: eosdb.Database
) -> None:
    with (
        db.producer(transactional_id="mine") as mine,
        other.producer(transactional_id="theirs") as theirs,
    ):
        mine.init_transactions()
        theirs.init_transactions()
        for ends in ("commit", "abort"):
            mine.begin_transaction()
            send(mine)
            theirs.begin_transaction()
            send(theirs)
            send(mine)
            if ends == "commit":
                theirs.commit_transaction()
            else:
                theirs.abort_transaction()
            mine.commit_transaction()
    assert db.verify().ok
    assert offsets_read(db) == [0, 1, 2, 5, 7]


def test_what_is_known_of_a_producer_is_read_anew_when_another_has_ended_its_transaction(
    db: eosdb.Database, other: eosdb.Database
) -> None:
    with (
        db.producer(transactional_id="x") as first,
        db.producer() as mine,
        other.producer() as theirs,
    ):
        take_turns(mine, theirs)
        first.init_transactions()
        first.begin_transaction()
        send(first)
        other.admin.fence_producer("x")
        send(theirs, partition=1)
        with db.producer(transactional_id="x") as second:
            second.init_transactions()
            with second.transaction():
                send(second)
                assert offsets_read(db) == []
    assert offsets_read(db) == [2]
    assert db.verify().ok


def refuse_large_values(other: eosdb.Database, _: Path) -> None:
    other.admin.alter_topic_config("t", {"max.message.bytes": "100"})


def refuse_and_forget(other: eosdb.Database, path: Path) -> None:
    """The event is gone at once, so that those that are left tell of sends alone."""
    refuse_large_values(other, path)
    with other.producer() as producer:
        send(producer, partition=1)
    while other._store.write(lambda unit: history.advance(unit, KEEPS_NOTHING, 2**62)):
        pass


def damage(_: eosdb.Database, path: Path) -> None:
    """As a flipped bit does, without an event."""
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("""UPDATE topics SET config = '{"max.message.bytes": "100"}'""")


@pytest.mark.parametrize("change", [refuse_large_values, refuse_and_forget, damage])
def test_a_changed_setting_counts_at_once(
    change: Callable[[eosdb.Database, Path], None],
    db: eosdb.Database,
    other: eosdb.Database,
    db_path: Path,
) -> None:
    with db.producer() as mine, other.producer() as theirs:
        take_turns(theirs, mine)
        send(mine)
        change(other, db_path)
        if change is not damage:
            send(theirs, partition=1)
        with pytest.raises(MessageTooLargeError):
            send(mine, b"v" * 1000)


def test_what_a_rebuild_has_repaired_counts_at_once(
    db: eosdb.Database, other: eosdb.Database, db_path: Path
) -> None:
    with db.producer() as mine, other.producer() as theirs:
        send(theirs, partition=1)
        send(mine)
        damage(other, db_path)
        for _ in range(2):
            send(mine)
            send(theirs, partition=1)
        with pytest.raises(MessageTooLargeError):
            send(mine, b"v" * 1000)
        send(mine)
        send(theirs, partition=1)
        send(mine)
        other.rebuild()
        send(theirs, partition=1)
        send(mine, b"v" * 1000)


def test_who_has_been_fenced_by_another_database_writes_nothing(
    db: eosdb.Database, other: eosdb.Database
) -> None:
    with (
        db.producer(transactional_id="x") as mine,
        other.producer(transactional_id="x") as theirs,
        other.producer() as plain,
        db.producer() as own,
    ):
        mine.init_transactions()
        take_turns(plain, own)
        with mine.transaction():
            send(mine)
        theirs.init_transactions()
        send(plain, partition=1)
        mine.begin_transaction()
        with pytest.raises(InvalidProducerEpochError):
            send(mine)


def test_the_time_out_of_a_transaction_that_another_has_begun_counts(
    db: eosdb.Database, other: eosdb.Database, clock: eosdb.ManualClock
) -> None:
    with (
        db.producer() as mine,
        other.producer(transactional_id="x", transaction_timeout_ms=1_000) as theirs,
    ):
        theirs.init_transactions()
        send(mine)
        theirs.begin_transaction()
        send(theirs, partition=1)
        send(mine)
        clock.advance(2_000)
        send(mine)
        assert db.admin.open_transactions() == []


def test_a_damaged_event_of_others_costs_what_is_remembered_and_no_write(
    db: eosdb.Database, other: eosdb.Database, db_path: Path
) -> None:
    with db.producer() as mine, other.producer() as theirs:
        with closing(sqlite3.connect(db_path)) as file, file:
            file.execute("DROP TRIGGER eosdb_journal_refuses_update")
        send(theirs)
        send(mine)
        send(theirs)
        send(mine)
        send(theirs)
        with closing(sqlite3.connect(db_path)) as file, file:
            last = "(SELECT max(position) FROM journal)"
            file.execute(f"UPDATE eosdb_journal SET detail = 'no JSON' WHERE position = {last}")
        assert send(mine) == 5


def test_offsets_that_another_has_added_to_a_transaction_are_committed_with_it(
    db: eosdb.Database, other: eosdb.Database
) -> None:
    """One that ends a transaction without offsets remembers that its producer has none."""
    at = eosdb.TopicPartition("t", 0)
    pair = db.broker.init_producer_id("x")
    for offset in range(1, 5):
        db.broker.add_partitions_to_txn("x", *pair, [at])
        pair = db.broker.end_txn("x", *pair, committed=True)
        other.broker.add_offsets_to_txn("x", *pair, "g")
        other.broker.txn_offset_commit("x", "g", *pair, {at: eosdb.OffsetAndMetadata(offset)})
        pair = db.broker.end_txn("x", *pair, committed=True)
        assert db.broker.offset_fetch("g")[at].offset == offset
    assert db.verify().ok


def test_no_producer_id_is_given_out_twice(db_path: Path, clock: eosdb.ManualClock) -> None:
    """Databases that take blocks of ids in turn; a block is used up soon."""
    config = BrokerConfig(producer_id_block_size=2)
    with (
        eosdb.connect(db_path, clock=clock, config=config) as one,
        eosdb.connect(db_path, clock=clock, config=config) as two,
    ):
        ids = [db.broker.init_producer_id().producer_id for _ in range(9) for db in (one, two)]
    assert len(set(ids)) == 18
