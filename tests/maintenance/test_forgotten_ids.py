"""To which transactional id a producer id belonged is stored as long as a record of it is."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb import BrokerConfig, ManualClock
from eosdb.coordinator.transactions import decisions, producer_ids, state
from eosdb.maintenance import housekeeping as rounds

pytestmark = pytest.mark.slow

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(name="db")
def _db(db_path: Path, clock: ManualClock) -> eosdb.Database:
    config = BrokerConfig(log_retention_check_interval_ms=1_000)
    return eosdb.connect(db_path, clock=clock, durability="off", config=config)


def work(db: eosdb.Database, name: str, topic: str | None) -> None:
    """What a program does that is started once."""
    with db.producer(transactional_id=name) as producer:
        producer.init_transactions()
        if topic is not None:
            with producer.transaction():
                producer.send(topic, b"v")


def stored(db: eosdb.Database, prefix: str = "") -> list[str]:
    rows = db.query(f"SELECT transactional_id FROM {prefix}producer_ids ORDER BY producer_id")
    return [name for (name,) in rows.all()]


def named(db: eosdb.Database) -> list[str]:
    """The transactional ids of what can be read."""
    rows = db.query("SELECT DISTINCT transactional_id FROM committed_records ORDER BY 1")
    return [name for (name,) in rows.all()]


def test_a_producer_id_is_forgotten_behind_its_transactional_id_and_its_records(
    db: eosdb.Database, clock: ManualClock
) -> None:
    with db:
        db.admin.create_topic("short")
        db.admin.create_topic("long", config={"retention.ms": -1})
        for name, topic in (("idle", None), ("gone", "short"), ("kept", "long")):
            work(db, name, topic)
        clock.advance(6 * DAY_MS)
        work(db, "young", "short")
        db.housekeeping()
        assert stored(db) == ["idle", "gone", "kept", "young"], "they are transactional ids still"
        clock.advance(DAY_MS + 1)
        db.housekeeping()
        assert stored(db) == ["kept", "young"]
        assert named(db) == ["kept", "young"]
        clock.advance(8 * DAY_MS)
        db.housekeeping()
        assert named(db) == stored(db) == ["kept"]
        clock.advance(8 * DAY_MS)
        work(db, "another", None)
        db.housekeeping()
        assert stored(db, "eosdb_baseline_") == ["kept"], "the baseline follows a week later"
        assert db.verify().ok
        db.rebuild()
        assert stored(db) == ["kept", "another"]


def test_a_transactional_id_that_goes_on_leaves_its_earlier_producer_ids(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (state, decisions):
        monkeypatch.setattr(module, "LAST_CLIENT_EPOCH", 3)
    with db:
        db.admin.create_topic("t")
        for _ in range(5):
            now = db.broker.init_producer_id("a")
        assert stored(db) == ["a", "a"]
        db.housekeeping()
        assert stored(db) == ["a", "a"], "a repeated request may name the id before"
        work(db, "a", "t")
        db.housekeeping()
        rows = db.query("SELECT producer_id FROM producer_ids").all()
        assert rows == [(now.producer_id,)]
        assert db.verify().ok


def test_a_round_looks_at_some_and_the_next_one_at_those_behind_them(
    db: eosdb.Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_ids, "STEPS_PER_UNIT", 2)
    monkeypatch.setattr(rounds, "_PAGES_OF_IDS", 1)
    with db:
        db.admin.create_topic("t", config={"retention.ms": -1})
        for name in ("kept 1", "kept 2", "kept 3"):
            work(db, name, "t")
        for name in ("gone 4", "gone 5", "gone 6"):
            work(db, name, None)
        clock.advance(8 * DAY_MS)
        left = []
        for _ in range(5):
            db.producer().send("t", b"what is due is done by whoever writes").result()
            left.append(len(stored(db)))
            clock.advance(2_000)
        assert left[0] == 6
        assert left[-1] == 3, left
        assert db.verify().ok
