"""A round of housekeeping that finds nothing due records nothing, whatever the file looks like: otherwise a
file that nobody writes to would grow for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from tests.maintenance import everything

AROUND = 7
"""The offsets of a log with a record, an aborted transaction of two, its marker, a record, and the same
without the first."""


def with_aborted_transactions(db: eosdb.Database, tp: TopicPartition, **config: object) -> None:
    db.admin.create_topic(tp.topic, config=config)
    producer = db.producer(transactional_id="p")
    producer.init_transactions()
    for _ in range(2):
        db.broker.append(tp, RecordBatch([Record(b"k", b"v")]))
        producer.begin_transaction()
        producer.send_many(tp.topic, [(b"k", b"v")] * 2)
        producer.flush()
        producer.abort_transaction()


def recorded(db: eosdb.Database) -> list[str]:
    """The kinds of the events of a round."""
    raw = everything.raw(Path(db.path))
    (before,) = raw.execute("SELECT max(position) FROM journal").fetchone()
    db.housekeeping()
    after = raw.execute("SELECT kind FROM journal WHERE position > ?", (before,)).fetchall()
    raw.close()
    return [kind for (kind,) in after]


@pytest.mark.slow
@pytest.mark.parametrize("start", range(AROUND + 1))
def test_wherever_the_log_begins_its_index_is_cut_once(db: eosdb.Database, start: int) -> None:
    tp = TopicPartition("t", 0)
    with_aborted_transactions(db, tp, **{"retention.ms": -1})
    db.take_snapshot()
    db.broker.delete_records(tp, start)
    is_below = start > 3
    """The first marker is at offset 3."""
    assert recorded(db).count("LogStartOffsetMoved") == is_below
    assert recorded(db) == []
    assert db.verify().ok


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
@pytest.mark.parametrize("later_ms", [0, 999, 1_000, 1_001, 100_000])
def test_the_second_of_two_rounds_at_once_has_nothing_to_do(
    db: eosdb.Database, clock: ManualClock, policy: str, later_ms: int
) -> None:
    config = {
        "cleanup.policy": policy, "retention.ms": 1_000, "delete.retention.ms": 1_000,
        "retention.bytes": 100,
    }  # fmt: skip
    with_aborted_transactions(db, TopicPartition("t", 0), **config)
    recorded(db)
    clock.advance(later_ms)
    recorded(db)
    assert recorded(db) == []


@pytest.mark.slow
def test_a_file_with_everything_comes_to_rest(db_path: Path, clock: ManualClock) -> None:
    everything.fill(db_path, clock)
    with eosdb.connect(db_path, clock=clock, durability="off") as db:
        recorded(db)
        assert recorded(db) == []
