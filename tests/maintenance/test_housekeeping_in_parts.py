"""Housekeeping takes on a bounded part in each unit, however much is due, so that others get their turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.log import retention
from eosdb.model.config import BrokerConfig
from eosdb.store.store import Store
from eosdb.store.writing.unit import STEPS_PER_UNIT, Unit

pytestmark = pytest.mark.slow

MANY = 2 * STEPS_PER_UNIT + 100
DAY_MS = 24 * 3600 * 1000
KINDS_OF_EXPIRY = 4


class Units:
    """How many events each unit has recorded, and how many rows of the log it has deleted."""

    def __init__(self) -> None:
        self.events: list[int] = []
        self.rows: list[int] = []

    def clear(self) -> None:
        self.events, self.rows = [], []


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> Units:
    seen, write = Units(), Store.write

    def watched(store: Store, function: Callable[[Unit], Any], **options: Any) -> Any:
        def run(unit: Unit) -> Any:
            before, changes = unit.last_position(), unit.connection.total_changes
            result = function(unit)
            seen.events.append(unit.last_position() - before)
            if seen.events[-1] == 0:
                seen.rows.append(unit.connection.total_changes - changes)
            return result

        return write(store, run, **options)

    monkeypatch.setattr(Store, "write", watched)
    return seen


@pytest.fixture
def db(clock: ManualClock) -> Iterator[eosdb.Database]:
    config = BrokerConfig(
        log_retention_check_interval_ms=10 * 365 * DAY_MS, history_retention_ms=-1
    )
    with eosdb.connect(":memory:", clock=clock, config=config) as opened:
        yield opened


def partitions(db: eosdb.Database, count: int, **config: object) -> list[TopicPartition]:
    db.admin.create_topic("t", count, config)
    return [TopicPartition("t", i) for i in range(count)]


def appended(db: eosdb.Database) -> None:
    for tp in partitions(db, MANY):
        db.broker.append(tp, RecordBatch([Record(value=b"v")]))


def appended_by_producers(db: eosdb.Database) -> None:
    who = db.broker.init_producer_id()
    for tp in partitions(db, MANY, **{"retention.ms": -1}):
        db.broker.append(tp, RecordBatch([Record(value=b"v")], *who, 0))
    db.take_snapshot()


def transactional_ids(db: eosdb.Database) -> None:
    for i in range(MANY):
        db.broker.init_producer_id(f"id {i}")


def committed_offsets(db: eosdb.Database) -> None:
    (tp,) = partitions(db, 1)
    for i in range(MANY):
        db.broker.offset_commit(f"group {i}", {tp: OffsetAndMetadata(0)})


def members(db: eosdb.Database) -> None:
    for i in range(MANY):
        db.broker.join_group(f"group {i}", protocols=[("range", b"")])


DUE: dict[str, tuple[Callable[[eosdb.Database], None], str]] = {
    "records": (appended, "deleted_records"),
    "snapshots": (appended, "snapshots"),
    "producers": (appended_by_producers, "expired_producers"),
    "transactional ids": (transactional_ids, "expired_transactional_ids"),
    "offsets": (committed_offsets, "expired_offsets"),
    "members": (members, "changed_groups"),
}


@pytest.mark.parametrize("what", DUE)
def test_a_unit_takes_on_some_of_what_is_due(
    db: eosdb.Database, clock: ManualClock, units: Units, what: str
) -> None:
    prepare, counted = DUE[what]
    prepare(db)
    clock.advance(30 * DAY_MS)
    units.clear()
    report = db.housekeeping()
    assert getattr(report, counted) >= MANY
    assert max(units.events) <= KINDS_OF_EXPIRY * STEPS_PER_UNIT
    assert sum(count > 0 for count in units.events) >= 3
    assert db.verify().ok


def test_rows_are_deleted_in_parts_of_many_partitions(
    db: eosdb.Database, clock: ManualClock, units: Units, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS_PER_UNIT", 200)
    appended(db)
    clock.advance(30 * DAY_MS)
    units.clear()
    db.housekeeping()
    assert list(db.query("SELECT count(*) FROM records").rows) == [(0,)]
    assert max(units.rows) == 200
    db.broker.append(TopicPartition("t", 3), RecordBatch([Record(value=b"v")] * 450))
    units.clear()
    db.broker.delete_records(TopicPartition("t", 3), -1)
    db.admin.delete_topic("t")
    assert max(units.rows) <= 200


def test_partitions_with_nothing_due_cost_no_unit(
    db: eosdb.Database, clock: ManualClock, units: Units
) -> None:
    """As many units as in an empty file."""
    db.housekeeping()
    units.clear()
    db.housekeeping()
    of_none = len(units.events)
    appended(db)
    db.admin.create_topic("c", 20, {"cleanup.policy": "compact"})
    db.housekeeping()
    units.clear()
    clock.advance(1_000)
    report = db.housekeeping()
    assert report == eosdb.HousekeepingReport()
    assert len(units.events) == of_none
    assert set(units.events) == {0}


def test_housekeeping_that_was_cut_off_goes_on_where_it_stopped(
    db: eosdb.Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(db)
    clock.advance(30 * DAY_MS)
    move, left = retention.move_log_start, iter(range(STEPS_PER_UNIT + 7))

    def cut_off(*args: Any) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        move(*args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(retention, "move_log_start", cut_off)
        db.housekeeping()
    assert db.housekeeping().deleted_records == MANY - STEPS_PER_UNIT
    assert db.verify().ok
