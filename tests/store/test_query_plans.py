"""Every query on a hot path is a search by index: no scan, no sort, however large the file.

Two nets: every statement that the requests really send to SQLite is caught on the way and explained; and
the constants and views are explained by name, those among them that the caught work may not need.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import eosdb
from eosdb import OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.admin import outcome
from eosdb.coordinator import due_work
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.log import once, partition_rows, producer_rows, record_rows, transaction_index
from eosdb.log.reading import block, by_time
from eosdb.native import accelerator
from eosdb.store.file.presence import PresentConnection
from eosdb.store.writing import unit
from tests.cases import each
from tests.native.roads import ROADS, road

IN_VIEW = 'topic = \'t\' AND partition = 0 AND "offset" >= 100 AND "offset" < 200'
HOT = {
    "the partition by name": partition_rows.BY_NAME,
    "the partition by id": partition_rows.PARTITIONS.at_key,
    "saving a partition": partition_rows.PARTITIONS.update,
    "a producer's state": producer_rows.PRODUCERS.at_key,
    "saving a producer's state": producer_rows.PRODUCERS.update,
    "the producer that expires next": producer_rows.OLDEST_IDLE,
    "a transactional id": transaction_rows.TRANSACTIONAL_IDS.at_key,
    "the next time-out": transaction_rows.NEXT_TIMEOUT,
    "a transaction that timed out": transaction_rows._TIMED_OUT,
    "the transaction that ends last": due_work._TRANSACTION,
    "the rebalance that ends last": due_work._REBALANCE,
    "the session that ends last": due_work._SESSION,
    "the id that expires next": transaction_rows.OLDEST_IDLE,
    "the offset that expires next": group_offsets.OLDEST,
    "the newest transitions of an id": outcome._NEWEST_FIRST,
    "a transition from a position on": outcome._FROM,
    "the newest transition": outcome._NEWEST,
    "the idempotency key that expires next": once.OLDEST_KEY,
    "a group": group_rows.GROUPS.at_key,
    "the session that ends next": group_rows.NEXT_SESSION_END,
    "the rebalance that is over next": group_rows.NEXT_DEADLINE,
    "renewing a session": group_rows._RENEW,
    "records from an offset on": block._STORED[True],
    "data from an offset on": block._SHOWN[True],
    "the time index": by_time._TIME_INDEX,
    "times from an offset on": by_time._TIMES,
    "aborted transactions": transaction_index._FROM,
    "an event": unit._EVENT.statement(1),
    "records": record_rows._insert_sql(4),
    "committed records by topic, partition and offset": (
        f"SELECT * FROM committed_records WHERE {IN_VIEW}"
    ),
    "all records by topic, partition and offset": f"SELECT * FROM all_records WHERE {IN_VIEW}",
    "the history of a transactional id": (
        "SELECT * FROM transaction_history WHERE transactional_id = 'a' ORDER BY position"
    ),
    "a batch as the journal has it": "SELECT * FROM record_batches WHERE position = 5",
}


@pytest.fixture
def plans(db: eosdb.Database, db_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(db_path, cached_statements=0)
    yield connection
    connection.close()


ALLOWED = (
    "SCAN p VIRTUAL TABLE",  # The partitions of one transaction, in one value.
    # In the order of a (partial) index, and LIMIT 1 ends them at the first row.
    "SCAN g USING COVERING INDEX group_offsets_age",
    "SCAN eosdb_scheduled USING INDEX eosdb_scheduled_due",
    "SCAN partition_producers USING INDEX partition_producers_idle",
    "SCAN transactional_ids USING INDEX transactional_ids_ongoing",
    "SCAN transactional_ids USING COVERING INDEX transactional_ids_idle",
    "SCAN transactional_ids USING INDEX transactional_ids_idle",
    "SCAN group_sessions USING COVERING INDEX group_sessions_expires",
    "SCAN groups USING COVERING INDEX groups_deadline",
    "SCAN eosdb_file",  # It has one row.
    "SCAN joined",
    # Once per process, at the election: the groups that have members.
    "SCAN groups USING INDEX groups_with_members",
    # A partial index of what is decided and not completed: as good as empty.
    "SCAN transactional_ids USING COVERING INDEX transactional_ids_decided",
    "SCAN transactional_ids USING INDEX transactional_ids_decided",
    # The rows of one INSERT, and the rules that somebody has written by hand.
    *(f"SCAN {rows} CONSTANT ROWS" for rows in range(2, 65)),
    "SCAN given",
    "SCAN eosdb_batch VIRTUAL TABLE",
    "SCAN acls",
    "SCAN eosdb_idempotency_keys USING COVERING INDEX eosdb_idempotency_keys_used",
    # The one row that says where the baseline is.
    "SCAN CONSTANT ROW",
    "SCAN eosdb_baseline",
)


def bad_steps(connection: sqlite3.Connection, sql: str, parameters: Any) -> list[str]:
    steps = [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]
    slow = [step for step in steps if "SCAN" in step or "TEMP B-TREE" in step]
    return [step for step in slow if not step.startswith(ALLOWED)]


@pytest.mark.slow
@each("name", HOT)
def test_a_hot_query_searches(plans: sqlite3.Connection, name: str) -> None:
    sql = HOT[name]
    assert not bad_steps(plans, sql, (0,) * sql.count("?"))


NARROW = {
    "SELECT producer_id, current_txn_start": "partition_producers_open (partition_id=? AND current",
    "SELECT sequence_round, sequence FROM": "(partition_id=? AND producer_id=? AND producer_epoch=?",
    'SELECT "offset", position, sequence_r': "AND (sequence_round,sequence)>",
    block._STORED[True]: "(partition_id=? AND offset>? AND offset<?)",
    block._SHOWN[True]: "(partition_id=? AND offset>? AND offset<?)",
    block._WHOLE_SHOWN: "(partition_id=? AND offset>? AND offset<?)",
    by_time._TIME_INDEX: "(partition_id=? AND timestamp<?)",
    by_time._TIMES: "(partition_id=? AND offset>? AND offset<?)",
    "SELECT partition_id, producer_id, fir": "(partition_id=? AND last_offset>?)",
    "SELECT topic, partition FROM pending_": "pending_group_offsets_group",
}
"""Searches that must use more of an index than its first column, however long the partition is."""


class Catching:
    """Keeps every statement with the first parameters it came with."""

    statements: ClassVar[dict[str, Any]] = {}

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        Catching.statements.setdefault(sql, parameters)
        return super().execute(sql, parameters)  # type: ignore[misc]

    def executemany(self, sql: str, parameters: Any) -> Any:
        rows = list(parameters)
        Catching.statements.setdefault(sql, rows[0])
        return super().executemany(sql, rows)  # type: ignore[misc]


class CatchingCursor(Catching, sqlite3.Cursor):
    pass


class Caught(Catching, PresentConnection):
    def cursor(self, *_: object) -> Any:
        return super().cursor(CatchingCursor)


def test_whatever_the_requests_send_to_sqlite_searches(
    db_path: Path, clock: eosdb.ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sqlite3.connect

    def connect(*arguments: Any, **keywords: Any) -> Any:
        return real(*arguments, **{**keywords, "factory": Caught})

    monkeypatch.setattr(sqlite3, "connect", connect)
    tps = [TopicPartition("t", i) for i in range(3)]
    with eosdb.connect(db_path, clock=clock) as db:
        db.admin.create_topic("t", partitions=3)
    monkeypatch.setattr(Catching, "statements", {})
    with road("1"), eosdb.connect(db_path, clock=clock) as db:
        Catching.statements.clear()
        appends(db, tps[0])
        transactions_of_both_ends(db, tps)
        reads(db, tps[0], clock.time_ms() - 50)
        caught = dict(Catching.statements)
    monkeypatch.undo()
    words = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
    queries = {sql: p for sql, p in caught.items() if sql.split()[0] in words}
    assert len(queries) > 30
    tables = ("records", "eosdb_journal", "partition_producers", "transaction_index", "time_index")
    for table in tables:
        assert any(f"FROM {table}" in sql for sql in queries), table
    with road("1"):
        connection = accelerator.opened(lambda: real(db_path))
    found = {sql: bad_steps(connection, sql, parameters) for sql, parameters in queries.items()}
    for beginning, way in NARROW.items():
        (sql,) = (sql for sql in queries if sql.startswith(beginning))
        explained = connection.execute(f"EXPLAIN QUERY PLAN {sql}", queries[sql])
        assert any(way in row[3] for row in explained), sql
    connection.close()
    assert {sql: steps for sql, steps in found.items() if steps} == {}


def appends(db: eosdb.Database, tp: TopicPartition) -> None:
    """In order, again long after, out of order, and without a producer."""
    who = db.broker.init_producer_id()
    batches = [RecordBatch([Record(key=b"k", headers=[("h", b"")])], *who, i) for i in range(8)]
    for batch in batches:
        db.broker.append(tp, batch)
    assert db.broker.append(tp, batches[0]).duplicate
    with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
        db.broker.append(tp, RecordBatch([Record()], *who, 100))
    for setting in ROADS:
        with road(setting):
            db.broker.append(tp, RecordBatch([Record(value=b"v")] * 9))


def transactions_of_both_ends(db: eosdb.Database, tps: list[TopicPartition]) -> None:
    me = db.broker.init_producer_id("a")
    for committed in (True, False):
        db.broker.add_partitions_to_txn("a", *me, tps)
        for tp in tps:
            batch = RecordBatch([Record(value=b"v")], *me, 0, True)
            db.broker.append(tp, batch, transactional_id="a")
        db.broker.add_offsets_to_txn("a", *me, "g")
        db.broker.txn_offset_commit("a", "g", *me, {tps[0]: OffsetAndMetadata(1)})
        with pytest.raises(eosdb.UnstableOffsetCommitError):
            db.broker.offset_fetch("g", [tps[0]], require_stable=True)
        me = db.broker.end_txn("a", *me, committed)


def reads(db: eosdb.Database, tp: TopicPartition, some_time: int) -> None:
    for level in ("read_committed", "read_uncommitted"):
        db.broker.fetch(tp, 0, isolation_level=level)
        for setting in ROADS:
            with road(setting):
                db.broker.fetch_data(tp, 0, isolation_level=level)
        for time in (eosdb.EARLIEST, eosdb.LATEST, eosdb.MAX_TIMESTAMP, some_time):
            db.broker.list_offsets(tp, time, isolation_level=level)
    db.broker.offset_commit("h", {tp: OffsetAndMetadata(3)})
    assert db.broker.offset_fetch("h", [tp])
    db.broker.describe_transactions(["a"])
    db.broker.describe_producers(tp)
    db.broker.find_coordinator("a")
    db.broker.partitions_for("t")


def test_the_range_of_offsets_reaches_the_index(plans: sqlite3.Connection) -> None:
    steps = [
        row[3]
        for row in plans.execute(
            f"EXPLAIN QUERY PLAN SELECT * FROM committed_records WHERE {IN_VIEW}"
        )
    ]
    assert any("records_offset (partition_id=? AND offset>? AND offset<?)" in s for s in steps), (
        steps
    )


def test_a_query_that_scans_would_be_noticed(plans: sqlite3.Connection) -> None:
    steps = [
        row[3] for row in plans.execute("EXPLAIN QUERY PLAN SELECT * FROM records ORDER BY value")
    ]
    assert steps == ["SCAN records", "USE TEMP B-TREE FOR ORDER BY"]
