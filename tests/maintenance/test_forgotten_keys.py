"""Idempotency keys and sinks are forgotten `idempotency.retention.ms` after their last use."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb import BrokerConfig, ManualClock, Record, TopicPartition
from eosdb.store.writing.unit import STEPS_PER_UNIT

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)
DAY_MS = 24 * 3600 * 1000


def opened(path: Path, clock: ManualClock, retention_ms: int) -> eosdb.Database:
    config = BrokerConfig(
        idempotency_retention_ms=retention_ms,
        log_retention_ms=-1,
        history_retention_ms=-1,
        log_retention_check_interval_ms=100_000 * DAY_MS,
    )
    return eosdb.connect(path, clock=clock, durability="off", config=config)


def publish(db: eosdb.Database, *keys: str) -> list[bool]:
    """Whether each was a repeat."""
    with db.begin() as tx:
        return [tx.publish("t", b"v", idempotency_key=key).duplicate for key in keys]


def test_a_key_is_free_again_when_its_time_is_over(db_path: Path, clock: ManualClock) -> None:
    with opened(db_path, clock, 2 * DAY_MS) as db:
        db.admin.create_topic("t")
        assert publish(db, "old", "other") == [False, False]
        clock.advance(DAY_MS)
        assert publish(db, "young") == [False]
        assert db.housekeeping().expired_idempotency_keys == 0
        clock.advance(DAY_MS)
        assert publish(db, "old") == [True], "as long as housekeeping has not come by"
        assert db.housekeeping().expired_idempotency_keys == 2
        assert publish(db, "old", "young") == [False, True]
        assert db.verify().ok
        db.rebuild()
        assert publish(db, "old", "other", "young") == [True, False, True]


def test_a_sink_is_as_new_when_its_last_batch_is_long_ago(
    db_path: Path, clock: ManualClock
) -> None:
    with opened(db_path, clock, 2 * DAY_MS) as db:
        db.admin.create_topic("t")
        for sink in ("done", "busy"):
            assert not db.append_once(sink, 1, {TP: [Record(value=b"1")]}, held=["one"]).skipped
        clock.advance(DAY_MS)
        db.append_once("busy", 2, {TP: [Record(value=b"2")]})
        clock.advance(DAY_MS)
        assert db.housekeeping().expired_sinks == 1
        assert db.append_once("busy", 2, {TP: [Record(value=b"2")]}).skipped
        assert not db.append_once("done", 1, {TP: [Record(value=b"1")]}, held=["one"]).skipped
        assert db.verify().ok


def test_minus_one_remembers_for_ever(db_path: Path, clock: ManualClock) -> None:
    with opened(db_path, clock, -1) as db:
        db.admin.create_topic("t")
        publish(db, "key")
        db.append_once("sink", 1, {TP: [Record(value=b"1")]})
        clock.advance(10_000 * DAY_MS)
        report = db.housekeeping()
        assert (report.expired_idempotency_keys, report.expired_sinks) == (0, 0)
        assert publish(db, "key") == [True]
        assert db.append_once("sink", 1, {TP: [Record(value=b"1")]}).skipped


def test_many_keys_are_forgotten_in_many_units(db_path: Path, clock: ManualClock) -> None:
    count = 2 * STEPS_PER_UNIT + 1
    with opened(db_path, clock, DAY_MS) as db:
        db.admin.create_topic("t")
        publish(db, *(f"key {i}" for i in range(count)))
        clock.advance(DAY_MS)
        before = int(str(db.info()["journal_position"]))
        assert db.housekeeping().expired_idempotency_keys == count
        sizes = db.query(
            "SELECT json_array_length(detail, '$.idempotency_keys') FROM journal "
            "WHERE kind = 'IdempotencyKeysExpired' AND position > ?",
            (before,),
        ).rows
        assert [size for (size,) in sizes] == [STEPS_PER_UNIT, STEPS_PER_UNIT, 1]
        assert db.verify().ok


def test_nothing_stays_of_a_sink_that_has_finished(db_path: Path, clock: ManualClock) -> None:
    """Its events go with the history, its rows with its number, and its id with the transactions."""
    config = BrokerConfig(
        idempotency_retention_ms=2 * DAY_MS,
        log_retention_ms=2 * DAY_MS,
        history_retention_ms=2 * DAY_MS,
        log_retention_check_interval_ms=100_000 * DAY_MS,
    )
    with eosdb.connect(db_path, clock=clock, durability="off", config=config) as db:
        db.admin.create_topic("t")
        for batch_id in range(50):
            db.append_once("sink", batch_id, {TP: [Record(value=b"v")]}, held=[f"rows {batch_id}"])

        def stays() -> list[int]:
            queries = (
                "SELECT count(*) FROM journal WHERE kind IN ('SinkBatchAppended', 'BatchAppended')",
                "SELECT count(*) FROM eosdb_sinks",
                "SELECT count(*) FROM eosdb_sink_batches",
            )
            return [next(iter(db.query(query).rows))[0] for query in queries]

        db.housekeeping()
        assert stays() == [100, 1, 50]
        clock.advance(3 * DAY_MS)
        db.housekeeping()
        clock.advance(3 * DAY_MS)
        db.housekeeping()
        assert stays() == [0, 0, 0]
        assert db.verify().ok
