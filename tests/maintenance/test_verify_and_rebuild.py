"""`verify` finds what is wrong with a file, and `rebuild` mends what can be mended."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, TopicPartition
from tests.maintenance import everything
from tests.readers import dump_state

pytestmark = [pytest.mark.slow, pytest.mark.both_roads]

TP = TopicPartition("t", 0)


@pytest.fixture
def path(db_path: Path, clock: ManualClock) -> Path:
    """A file with a bit of everything in it."""
    with eosdb.connect(db_path, clock=clock) as db:
        db.admin.create_topic("t", partitions=2)
        db.admin.create_topic("c", config={"cleanup.policy": "compact"})
        producer = db.producer(transactional_id="a")
        producer.init_transactions()
        for i in range(4):
            producer.begin_transaction()
            producer.send("t", f"{i}", partition=0, headers=[("n", b"%d" % i)])
            producer.send("c", f"{i}", key="k")
            producer.send_offsets_to_transaction({TP: OffsetAndMetadata(i)}, "g")
            producer.flush()
            producer.commit_transaction() if i % 2 else producer.abort_transaction()
        plain = db.producer()
        for i in range(5):
            plain.send("t", f"p{i}", partition=1)
        db.broker.delete_records(TopicPartition("t", 1), 2)
        db.housekeeping()
        db.admin.create_acls([eosdb.Acl("User:*", "all", "topic", "*")])
        assert db.verify().ok
    return db_path


def tamper(path: Path, *statements: str) -> None:
    with everything.changing(path) as connection:
        for statement in statements:
            connection.execute(statement)


def test_wrong_tables_are_found_and_rebuilt(path: Path) -> None:
    """Whichever row is wrong is found: `tests/maintenance/test_every_table.py`."""
    right = dump_state(path)
    tamper(
        path,
        "UPDATE partitions SET last_stable_offset = 0",
        "DELETE FROM partition_producers",
        "INSERT INTO group_offsets VALUES ('x', 't', 0, 5, -1, '', 0, 0, 0)",
        "UPDATE transactional_ids SET state = 'Ongoing'",
        "DELETE FROM snapshots",
    )
    with eosdb.connect(path) as db:
        (of_offsets,) = (one for one in db.verify().problems if one.startswith("group_offsets"))
        assert "the events give none" in of_offsets
        db.rebuild()
        assert db.verify().ok
    after = dump_state(path)
    assert {name: after[name] for name in right} == right


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DELETE FROM records WHERE value = X'30' AND partition_id = 1", "0 rows are stored"),
        ("UPDATE records SET value = X'32' WHERE value = X'31'", "does not fit its checksum"),
        ("UPDATE records SET sequence = 77 WHERE value = X'31'", "sequence is 77"),
        ("UPDATE records SET control = 'ABORT' WHERE control = 'COMMIT'", "control"),
        ("UPDATE records SET position = 1 WHERE value = X'31'", "position is 1 at"),
        (
            "INSERT INTO records SELECT partition_id, 99, timestamp, timestamp_type, key, value, "
            "headers, -1, -1, -1, 0, 0, NULL, position, checksum FROM records LIMIT 1",
            "the events account for",
        ),
        ("DELETE FROM eosdb_journal WHERE position = 5", "position 6 follows 4"),
        ("UPDATE eosdb_journal SET detail = '{}' WHERE position = 1", "not an event"),
        ("UPDATE eosdb_journal SET kind = 'Nonsense' WHERE position = 1", "not an event"),
    ],
)
def test_wrong_events_and_records_are_found(path: Path, statement: str, says: str) -> None:
    tamper(path, statement)
    with eosdb.connect(path, read_only=True) as db:
        try:
            problems = db.verify().problems
        except eosdb.CorruptDatabaseError as error:
            problems = (str(error),)
    assert any(says in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("BatchAppended", "detail = json_replace(detail, '$[9]', json('99999999999999999999'))"),
        ("TransactionStateChanged", "transactional_id = NULL"),
        ("MarkerWritten", "detail = '[]'"),
        ("BatchAppended", "detail = json_replace(detail, '$[0]', 77)"),
        ("MarkerWritten", "detail = '{}'"),
        ("MarkerWritten", "detail = json_replace(detail, '$[0]', 77)"),
        ("TransactionStateChanged", "detail = json_replace(detail, '$[5]', 77)"),
    ],
)
def test_an_event_that_cannot_be_folded_is_named(path: Path, kind: str, change: str) -> None:
    """Although its row is written late, behind many other events."""
    with sqlite3.connect(path) as file:
        (last,) = file.execute(
            "SELECT max(position) FROM journal WHERE kind = ? AND position < "
            "(SELECT max(position) - 3 FROM journal)",
            (kind,),
        ).fetchone()
    file.close()
    tamper(path, f"UPDATE eosdb_journal SET {change} WHERE position = {last}")
    with eosdb.connect(path, read_only=True) as db:
        try:
            (problem, *_) = db.verify().problems
        except eosdb.CorruptDatabaseError as error:
            assert f"position {last}:" in str(error)
        else:
            assert f"the event after position {last - 1} cannot be folded" in problem
    with eosdb.connect(path) as db, pytest.raises(eosdb.CorruptDatabaseError):
        db.rebuild()


def test_an_interrupted_verify_ends_at_once(path: Path) -> None:
    """The thread that checks the file's structure ends with it."""
    threads = threading.active_count()

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with eosdb.connect(path) as db:
        with pytest.raises(KeyboardInterrupt):
            db.verify(on_progress=interrupt)
        assert threading.active_count() == threads
        assert db.verify().ok


def test_a_missing_table_is_made_again(path: Path) -> None:
    right = dump_state(path)
    tamper(path, "DROP TABLE time_index", "DROP TABLE group_offsets")
    with eosdb.connect(path) as db:
        db._store.write(lambda unit: None)
        db.rebuild()
        assert db.verify().ok
    assert dump_state(path) == right


def test_replay_does_not_need_records_that_retention_took(
    db: eosdb.Database, clock: ManualClock
) -> None:
    db.admin.create_topic("t", config={"retention.ms": 1_000})
    producer = db.producer(transactional_id="a")
    producer.init_transactions()
    for _ in range(20):
        with producer.transaction():
            producer.send("t", b"v")
        clock.advance(200)
    db.housekeeping()
    assert db.broker.offsets(TP).log_start_offset > 0
    before = db.broker.describe_producers(TP)
    db.rebuild()
    assert db.broker.describe_producers(TP) == before
    assert db.verify().ok


def test_reports_count_the_events(path: Path) -> None:
    with eosdb.connect(path) as db:
        events = db.info()["journal_position"]
        assert db.verify().events == events
        assert db.rebuild().events == events


def test_the_newest_two_snapshots_are_kept(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    producer = db.producer()
    for i in range(4):
        producer.send("t", b"v")
        (info,) = db.take_snapshot()
        assert (info.offset, info.producers) == (i + 1, 1)
    assert db.take_snapshot()[0].offset == 4
    rows = list(db.query("SELECT snapshot_offset, last_sequence, offset_delta FROM producer_snapshots").rows)  # fmt: skip  # noqa: E501
    assert rows == [(3, 2, 0), (4, 3, 0)]
