"""Every query on a hot path is a search by index: no scan, no sort, however large the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb.coordinator import group_offsets, transactions
from eosdb.log import append, fetch, partitions, producers, transaction_index
from eosdb.store import unit

IN_VIEW = 'topic = \'t\' AND partition = 0 AND "offset" >= 100 AND "offset" < 200'
HOT = {
    "the partition by name": partitions._BY_NAME,
    "the partition by id": partitions._BY_ID,
    "saving a partition": partitions._UPDATE,
    "a producer's state": producers._BY_PRODUCER,
    "saving a producer's state": producers._UPDATE,
    "the first open transaction": (
        "SELECT min(current_txn_start_offset) FROM partition_producers "
        "WHERE partition_id = ? AND current_txn_start_offset >= 0"
    ),
    "the producer that expires next": producers.OLDEST_IDLE,
    "a transactional id": transactions._BY_ID,
    "the next time-out": transactions.NEXT_TIMEOUT,
    "a transaction that timed out": transactions._TIMED_OUT,
    "the id that expires next": transactions.OLDEST_IDLE,
    "decided transactions": (
        "SELECT transactional_id FROM transactional_ids "
        "WHERE state IN ('PrepareCommit', 'PrepareAbort')"
    ),
    "the offset that expires next": group_offsets.OLDEST,
    "pending offsets of a producer": ("DELETE FROM pending_group_offsets WHERE producer_id = ?"),
    "records from an offset on": fetch._RECORDS,
    "the time index": fetch._TIME_INDEX,
    "records from a time on": fetch._BY_TIME,
    "aborted transactions": transaction_index._FROM,
    "the newest event": "SELECT COALESCE(MAX(position), 0) FROM journal",
    "an event": unit._INSERT_EVENT,
    "records": append._insert_sql(4, True, False, True),
    "the newest stored sequence": (
        "SELECT sequence_round, sequence FROM records WHERE partition_id = ? AND producer_id = ? "
        "AND producer_epoch = ? AND sequence >= 0 "
        "ORDER BY sequence_round DESC, sequence DESC LIMIT 1"
    ),
    "committed records by topic, partition and offset": (
        f"SELECT * FROM committed_records WHERE {IN_VIEW}"
    ),
    "all records by topic, partition and offset": f"SELECT * FROM all_records WHERE {IN_VIEW}",
    "the history of a transactional id": (
        "SELECT * FROM transaction_history WHERE transactional_id = 'a' ORDER BY position"
    ),
}


@pytest.fixture
def plans(db: eosdb.Database, db_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(db_path, cached_statements=0)
    yield connection
    connection.close()


@pytest.mark.parametrize("name", HOT)
def test_a_hot_query_searches(plans: sqlite3.Connection, name: str) -> None:
    sql = HOT[name]
    parameters = (0,) * sql.count("?") if "?1" not in sql else (0,) * 18
    steps = [row[3] for row in plans.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]
    allowed = (
        # In the order of a (partial) index, and LIMIT 1 ends them at the first row.
        "SCAN g USING COVERING INDEX group_offsets_age",
        "SCAN partition_producers USING INDEX partition_producers_idle",
        "SCAN transactional_ids USING INDEX transactional_ids_ongoing",
        "SCAN transactional_ids USING COVERING INDEX transactional_ids_idle",
        "SCAN transactional_ids USING INDEX transactional_ids_idle",
        "SCAN transactional_ids USING COVERING INDEX transactional_ids_decided",
        "SCAN transactional_ids USING INDEX transactional_ids_decided",
        "SCAN 4 CONSTANT ROWS",
    )
    bad = [
        step
        for step in steps
        if ("SCAN" in step or "TEMP B-TREE" in step) and not step.startswith(allowed)
    ]
    assert not bad, steps


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
