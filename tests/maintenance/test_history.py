"""The history ends somewhere: events are folded into the baseline and deleted, and nothing else changes."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import BrokerConfig, ManualClock, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.coordinator.projection import apply
from eosdb.events.kinds import KINDS
from eosdb.maintenance import history
from eosdb.store import baseline, journal
from eosdb.store.schema.newest import BASELINE_TABLE, in_baseline, materialized_tables
from eosdb.store.writing.unit import late
from tests.maintenance import everything
from tests.readers import committed_values, dump_state

TP = TopicPartition("t", 0)
DAY_MS = 24 * 3600 * 1000
START_MS = 1_700_000_000_000


def opened(path: Path, clock: ManualClock, **settings: Any) -> eosdb.Database:
    config = BrokerConfig(
        log_retention_check_interval_ms=1000 * DAY_MS, super_users="User:ANONYMOUS", **settings
    )
    return eosdb.connect(path, clock=clock, durability="off", config=config)


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A file with every kind of event."""
    original, path, clock = tmp_path / "before.db", tmp_path / "all.db", ManualClock(START_MS)
    everything.fill(original, clock)
    with opened(original, clock, history_retention_ms=-1) as db:
        db.backup(path)
    clock.advance(1_000)
    with opened(path, clock, producer_id_expiration_ms=1, history_retention_ms=-1) as db:
        db.admin.alter_topic_config("c", {"retention.ms": 1})
        db.admin.create_partitions("c", 3)
        db.append_once("spark", 1, {TP: [Record(value=b"of a sink")]}, held=["a batch"])
        db.admin.create_topic("gone", 2)
        with db.begin() as tx:
            tx.publish("gone", b"once", idempotency_key="key")
        db.broker.offset_commit("g", {TopicPartition("gone", 1): OffsetAndMetadata(0)})
        db.broker.offset_commit("short", {TP: OffsetAndMetadata(0)})
        db.broker.delete_group("short")
        db.broker.init_producer_id("without records")
        db.admin.delete_topic("gone")
        db.admin.create_view("dropped", "t", {"a": "TEXT"})
        db.admin.drop_view("dropped")
        db.admin.delete_acls(lambda acl: acl.resource_type == "group")
        db.broker.delete_records(TopicPartition("t", 1), 3)
        clock.advance(1_000)
        db.housekeeping()
        clock.advance(8 * DAY_MS)
        assert db.housekeeping().expired_transactional_ids
        assert db.verify().ok
    return path


def rows(connection: sqlite3.Connection, table: str, names: str = "*") -> list[tuple[object, ...]]:
    return sorted(connection.execute(f'SELECT {names} FROM "{table}"'), key=repr)


def kinds(connection: sqlite3.Connection) -> set[str]:
    return {kind for (kind,) in connection.execute("SELECT DISTINCT kind FROM journal")}


@pytest.mark.slow
def test_folding_any_event_touches_tables_of_the_baseline_alone(full: Path) -> None:
    with contextlib.closing(sqlite3.connect(full, isolation_level=None)) as connection:
        events = list(journal.events(connection))
        assert kinds(connection) == set(KINDS)
        touched: set[str] = set()

        def note(action: int, table: str | None, *_: object) -> int:
            if action in (sqlite3.SQLITE_READ, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE,
                          sqlite3.SQLITE_DELETE, sqlite3.SQLITE_CREATE_VIEW,
                          sqlite3.SQLITE_DROP_VIEW):  # fmt: skip
                touched.add(str(table))
            return sqlite3.SQLITE_OK

        connection.set_authorizer(note)
        with late(connection, apply) as unit:
            folding = baseline.BaselineFolding(unit)
            for position, event in events:
                apply(folding, event, position)
        connection.set_authorizer(None)
        assert touched == set(map(in_baseline, materialized_tables()))
        for table in materialized_tables():
            columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
            names = ", ".join(f'"{name}"' for _, name, *_ in columns)
            copied = rows(connection, in_baseline(table), names)
            assert copied == rows(connection, table, names)


@pytest.mark.slow
def test_wherever_the_baseline_is_verify_and_rebuild_begin_there(
    full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "EVENTS_PER_UNIT", 7)
    right = dump_state(full)
    clock = ManualClock(START_MS + 20 * DAY_MS)
    with opened(full, clock, history_retention_ms=-1, history_retention_bytes=-1) as db:
        config = BrokerConfig(history_retention_ms=0)
        steps = 0
        while db._store.write(lambda unit: history.advance(unit, config, clock.time_ms())):
            steps += 1
            if steps % 8 == 0:
                report = db.verify()
                assert report.ok, report.problems
                db.rebuild()
                assert db.verify().ok
        assert steps > 40
        assert not history_is_due(db, config, clock)
        (last,) = next(db.query("SELECT max(position) FROM journal").rows)
        kept = "SELECT position FROM journal WHERE position < ?"
        of_records = "SELECT DISTINCT position FROM records WHERE position < ?"
        assert [*db.query(kept, (last,)).rows] == sorted(db.query(of_records, (last,)).rows)
        assert db.query("SELECT position FROM eosdb_baseline").rows.__next__() == (last - 1,)
    now = dump_state(full)
    for table in materialized_tables():
        assert now[table] == right[table]


def history_is_due(db: eosdb.Database, config: BrokerConfig, clock: ManualClock) -> bool:
    with db._store.read() as connection:
        return history.is_due(connection, config, clock.time_ms())


def positions(db: eosdb.Database) -> list[int]:
    return [position for (position,) in db.query("SELECT position FROM journal").rows]


@pytest.fixture
def small(tmp_path: Path, clock: ManualClock) -> Iterator[eosdb.Database]:
    with opened(tmp_path / "small.db", clock, history_retention_ms=2 * DAY_MS) as db:
        db.admin.create_topic("t", config={"retention.ms": -1})
        yield db


def test_events_go_when_they_are_old_and_those_of_records_with_the_last_record(
    small: eosdb.Database, clock: ManualClock
) -> None:
    for _ in range(2):
        clock.advance(DAY_MS)
        small.broker.append(TP, RecordBatch([Record(value=b"v")] * 3))
    clock.advance(DAY_MS)
    small.broker.offset_commit("g", {TP: OffsetAndMetadata(1)})
    created, first, second, committed = positions(small)
    assert small.housekeeping().trimmed_events == 2
    snapshot = committed + 1
    assert positions(small) == [first, second, committed, snapshot]

    small.broker.delete_records(TP, 2)
    small.housekeeping()
    assert first in positions(small), "a record of it is stored"
    assert created not in positions(small)
    assert small.verify().ok
    small.broker.delete_records(TP, 3)
    small.housekeeping()
    assert first not in positions(small)
    assert second in positions(small), "it is not old, its records are not gone"
    assert small.verify().ok


def test_what_compaction_and_deleted_topics_leave_behind_goes_too(
    small: eosdb.Database, clock: ManualClock
) -> None:
    small.admin.create_topic("c", config={"cleanup.policy": "compact"})
    for i in range(6):
        small.broker.append(
            TopicPartition("c", 0),
            RecordBatch([Record(key=b"k", value=b"%d" % i), Record(key=b"%d" % i, value=b"v")]),
        )
        small.broker.append(TopicPartition("c", 0), RecordBatch([Record(key=b"k", value=b"x")]))
        small.broker.append(TP, RecordBatch([Record(value=b"v")]))
    clock.advance(3 * DAY_MS)
    small.broker.offset_commit("g", {TP: OffsetAndMetadata(1)})
    small.admin.delete_topic("t")
    for _ in range(2):
        small.housekeeping()
        report = small.verify()
        assert report.ok, report.problems
    (rest,) = small.query(
        "SELECT group_concat(kind) FROM journal WHERE position <= (SELECT position FROM eosdb_baseline)"
    ).rows
    assert rest == (",".join(["BatchAppended"] * 7),), "six with a key of its own, and the newest"


def test_whichever_records_compaction_takes_later_an_event_goes_with_its_last_record(
    small: eosdb.Database, clock: ManualClock
) -> None:
    """The history has been cut behind the events before their records are superseded, in every pattern."""
    small.admin.create_topic("c", config={"cleanup.policy": "compact"})
    tp, patterns = TopicPartition("c", 0), range(16)
    keys = [[b"%d-%d" % (pattern, i) for i in range(4)] for pattern in patterns]
    for of_one in keys:
        small.broker.append(tp, RecordBatch([Record(key=key, value=b"old") for key in of_one]))
    clock.advance(3 * DAY_MS)
    small.broker.offset_commit("g", {TP: OffsetAndMetadata(0)})
    small.housekeeping()
    for pattern in patterns:
        taken = [keys[pattern][i] for i in range(4) if pattern & 1 << i]
        if taken:
            small.broker.append(tp, RecordBatch([Record(key=key, value=b"new") for key in taken]))
    assert small.housekeeping().compacted_records == 32
    report = small.verify()
    assert report.ok, report.problems
    (left,) = small.query(
        "SELECT count(*) FROM journal WHERE kind = 'BatchAppended' "
        "AND position <= (SELECT position FROM eosdb_baseline)"
    ).rows
    assert left == (15,), "all but that of the batch whose four records were superseded"


@pytest.mark.slow
def test_a_journal_that_is_too_large_is_cut_to_size(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_MEASURED_PER_UNIT", 400)
    monkeypatch.setattr(history, "_UNMEASURED_MAX", 100)
    limit = 400_000
    with opened(tmp_path / "a.db", clock, history_retention_bytes=limit) as db:
        db.admin.create_topic("t")
        for i in range(3):
            for n in range(500):
                db.broker.offset_commit("g", {TP: OffsetAndMetadata(n, "m" * 500)})
            db.housekeeping()
            kept = "SELECT sum(length(detail)) FROM eosdb_journal"
            ((size,),) = db.query(kept).rows
            assert size <= limit
            assert size > limit * 0.8 or i == 0, "what fits is kept"
            assert db.verify().ok
        assert db.housekeeping().trimmed_events == 0


def test_minus_one_keeps_everything(tmp_path: Path, clock: ManualClock) -> None:
    keep = {"history_retention_ms": -1, "history_retention_bytes": -1}
    with opened(tmp_path / "a.db", clock, **keep) as db:
        db.admin.create_topic("t")
        db.broker.append(TP, RecordBatch([Record(value=b"v")]))
        clock.advance(1000 * DAY_MS)
        assert db.housekeeping().trimmed_events == 0
        assert positions(db)[0] == 1


def test_the_journal_lets_go_only_what_the_baseline_has(
    small: eosdb.Database, clock: ManualClock
) -> None:
    for i in range(6):
        small.broker.offset_commit("g", {TP: OffsetAndMetadata(i)})
        clock.advance(DAY_MS)
    small.housekeeping()
    ((at, *_),) = small.query("SELECT * FROM eosdb_baseline").rows
    with contextlib.closing(sqlite3.connect(small.path, isolation_level=None)) as raw:
        for statement, says in {
            f"DELETE FROM eosdb_journal WHERE position = {at + 1}": "append only",
            "UPDATE eosdb_journal SET kind = 'x'": "append only",
            f"UPDATE {BASELINE_TABLE} SET position = position - 1": "moves forward",
            f"DELETE FROM {BASELINE_TABLE}": "moves forward",
        }.items():
            with pytest.raises(sqlite3.IntegrityError, match=says):
                raw.execute(statement)


@pytest.mark.slow
def test_transactions_go_on_over_a_history_that_ends(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was open before the baseline is committed behind it, and another aborted."""
    monkeypatch.setattr(history, "EVENTS_PER_UNIT", 3)
    with opened(tmp_path / "a.db", clock, history_retention_ms=0) as db:
        db.admin.create_topic("t")
        for i in range(8):
            producer = db.producer(transactional_id="a")
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"%d" % i)
            producer.send_offsets_to_transaction({TP: OffsetAndMetadata(i)}, "g")
            producer.flush()
            db.housekeeping()
            assert db.verify().ok
            producer.commit_transaction() if i % 2 else producer.abort_transaction()
            db.housekeeping()
            assert db.verify().ok
        assert committed_values(db, TP) == [b"1", b"3", b"5", b"7"]
        assert db.broker.offset_fetch("g")[TP].offset == 7
        db.rebuild()
        assert committed_values(db, TP) == [b"1", b"3", b"5", b"7"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("INSERT INTO eosdb_journal VALUES (1, 'CoordinatorElected', 1, NULL, NULL, NULL, "
         "'[1]', 0)", "describes no records; expected it to be deleted"),
        ("INSERT INTO eosdb_journal SELECT 1, kind, timestamp, topic, partition, transactional_id, "
         "json_replace(detail, '$[1]', 0), 0 FROM eosdb_journal "
         "WHERE kind = 'BatchAppended'", "no record of it is stored; expected it to be deleted"),
        ("DELETE FROM eosdb_journal WHERE kind = 'BatchAppended'", "the events account for 0"),
        ("DELETE FROM eosdb_baseline_topics", "the baseline and the events"),
        (f"UPDATE {BASELINE_TABLE} SET position = position - 1", "does not fit its checksum"),
        (f"UPDATE {BASELINE_TABLE} SET position = position + 1", "does not fit its checksum"),
        (f"DELETE FROM {BASELINE_TABLE}", "found 0 rows, expected 1"),
    ],
)  # fmt: skip
def test_verify_says_what_is_wrong_with_baseline_and_journal(
    small: eosdb.Database, clock: ManualClock, statement: str, says: str
) -> None:
    small.broker.append(TP, RecordBatch([Record(value=b"v")]))
    clock.advance(3 * DAY_MS)
    small.broker.offset_commit("g", {TP: OffsetAndMetadata(1)})
    small.broker.delete_records(TP, 1)
    small.housekeeping()
    assert small.verify().ok
    small.broker.append(TP, RecordBatch([Record(value=b"v")]))
    clock.advance(3 * DAY_MS)
    small.broker.offset_commit("g", {TP: OffsetAndMetadata(1)})
    small.housekeeping()
    assert small.verify().ok
    with everything.changing(Path(small.path)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute(statement.format())
    problems = small.verify().problems
    assert any(says in problem for problem in problems), problems
