"""Housekeeping that nobody asks for: some steps after each write, in whichever program writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.errors import StorageError
from eosdb.log import retention
from tests.conftest import START_MS
from tests.inside import Commits

TP = TopicPartition("old", 0)
MANY = 3 * retention.ROWS_PER_UNIT
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Ticking(ManualClock):
    """Every look at it takes a while, so that every step does."""

    look_ms = 1

    def monotonic_ms(self) -> int:
        self.advance(self.look_ms)
        return super().monotonic_ms()


@pytest.fixture
def clock() -> Ticking:
    return Ticking(START_MS)


def fill(db: eosdb.Database) -> None:
    """Records that expire within the hour."""
    db.admin.create_topic("old", config={"retention.ms": HOUR_MS})
    db.admin.create_topic("new")
    for _ in range(3):
        db.broker.append(TP, RecordBatch([Record(value=b"v" * 500)] * (MANY // 3)))


def rows(db: eosdb.Database) -> int:
    query = "SELECT count(*) FROM records JOIN partitions USING (partition_id) WHERE topic = 'old'"
    ((found,),) = db.query(query).rows
    return int(found)


def sends(db: eosdb.Database) -> Callable[[], object]:
    producer = db.producer()
    return lambda: producer.send("new", b"v")


def transactions(db: eosdb.Database) -> Callable[[], object]:
    producer = db.producer(transactional_id="a")
    producer.init_transactions()

    def write() -> None:
        with producer.transaction():
            producer.send("new", b"v")

    return write


def once(db: eosdb.Database) -> Callable[[], object]:
    numbers = iter(range(10**6))
    new = TopicPartition("new", 0)
    return lambda: db.append_once("sink", next(numbers), {new: [Record(value=b"v")]})


def blocks(db: eosdb.Database) -> Callable[[], object]:
    def write() -> None:
        with db.begin() as tx:
            tx.publish("new", b"v")

    return write


def commits(db: eosdb.Database) -> Callable[[], object]:
    consumer = db.consumer("g")
    consumer.assign([TP])
    return lambda: consumer.commit({TP: OffsetAndMetadata(0)})


@pytest.mark.slow
@pytest.mark.parametrize("way", [sends, transactions, once, blocks, commits])
def test_whoever_writes_tidies_up_a_little_after_each_write(
    db: eosdb.Database, clock: Ticking, way: Callable[[eosdb.Database], Callable[[], object]]
) -> None:
    fill(db)
    write = way(db)
    clock.advance(2 * HOUR_MS)
    clock.look_ms = 30
    left = [rows(db)]
    while left[-1]:
        write()
        left.append(rows(db))
        assert len(left) < 1_000
    assert left[0] == MANY
    assert len(set(left)) > 2, "not all at once"
    assert db.verify().ok


@pytest.mark.slow
def test_who_writes_many_rows_has_many_deleted(
    db: eosdb.Database, clock: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And who writes few waits for one step."""
    monkeypatch.setattr(retention, "ROWS_PER_UNIT", 30)
    fill(db)
    clock.advance(2 * HOUR_MS)
    clock.look_ms = 30
    while rows(db) == MANY:
        db.broker.append(TopicPartition("new", 0), RecordBatch([Record(value=b"v")]))
    clock.look_ms = 2
    taken: dict[int, list[int]] = {1: [], 3_000: []}
    for _ in range(5):
        for count, found in taken.items():
            clock.advance(HOUR_MS // 100)
            before = rows(db)
            batch = RecordBatch([Record(value=b"v")] * count)
            db.broker.append(TopicPartition("new", 0), batch)
            found.append(before - rows(db))
    assert taken[1] == [30] * 5
    assert all(deleted >= 60 for deleted in taken[3_000])


@pytest.mark.slow
def test_the_file_shrinks_by_itself(db: eosdb.Database, db_path: Path, clock: Ticking) -> None:
    fill(db)
    write = sends(db)
    db._store.checkpoint()
    before = db_path.stat().st_size
    clock.advance(2 * HOUR_MS)
    for _ in range(300):
        write()
    db._store.checkpoint()
    assert rows(db) == 0
    after = db_path.stat().st_size
    assert before - after > MANY * 500 - 256 * 4096 - 200_000
    ((free, pages),) = db.query(
        "SELECT freelist_count, page_count FROM pragma_freelist_count, pragma_page_count"
    ).rows
    assert 0 < free <= max(256, pages // 8), "a reserve stays"
    assert db.verify().ok


def test_two_programs_do_not_do_the_same_round(
    db: eosdb.Database, db_path: Path, clock: ManualClock
) -> None:
    with eosdb.connect(db_path, clock=clock) as other:
        fill(db)
        mine, theirs = sends(db), sends(other)
        mine()
        theirs()
        clock.advance(2 * HOUR_MS)
        mine()
        with Commits(other) as commits:
            theirs()
            theirs()
        assert commits.all == 2, "the first program is at it"
        clock.advance(2 * HOUR_MS)
        with Commits(other) as commits:
            theirs()
        assert commits.all > 1, "the next round is anybody's"


@pytest.mark.parametrize(("pause_ms", "is_done"), [(HOUR_MS, True), (8 * DAY_MS, False)])
def test_a_program_that_lives_for_one_write_does_its_part(
    db_path: Path, pause_ms: int, is_done: bool
) -> None:
    """Unless nobody has written for days: who opens an old file may first look at it."""
    with eosdb.connect(db_path, clock=ManualClock(START_MS)) as db:
        fill(db)
    with eosdb.connect(db_path, clock=ManualClock(START_MS + 1 + pause_ms)) as db:
        db.producer().send("new", b"v").result()
        assert (rows(db) == 0) is is_done


@pytest.mark.slow
def test_a_failing_step_is_logged_and_left_to_the_next_round(
    db: eosdb.Database,
    clock: Ticking,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(db)
    clock.advance(2 * HOUR_MS)

    def fail(*_: object) -> Iterator[None]:
        raise StorageError("the disk is in a bad mood")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "eosdb"):
        patch.setattr(retention, "delete_in_parts", fail)
        for i in range(100):
            assert db.producer().send("new", b"v").result().offset == i
    assert [record.message for record in caplog.records] == [
        f"{db.path}: housekeeping failed, and continues later: the disk is in a bad mood"
    ]
    assert rows(db) == MANY
    clock.advance(HOUR_MS)
    for _ in range(100):
        db.producer().send("new", b"v").result()
    assert rows(db) == 0


def test_one_move_of_the_log_start_is_bounded(
    db: eosdb.Database, clock: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS_PER_MOVE", 700)
    fill(db)
    clock.advance(2 * HOUR_MS)
    assert db.housekeeping().deleted_records == MANY
    moves = [event for event in db.admin.journal() if event.kind == "LogStartOffsetMoved"]
    assert len(moves) == -(-MANY // 700)
    assert db.verify().ok


def test_large_records_are_deleted_a_few_in_a_unit(db: eosdb.Database, clock: Ticking) -> None:
    db.admin.create_topic("old", config={"retention.ms": HOUR_MS})
    for _ in range(6):
        large = Record(value=bytes(retention.BYTES_PER_UNIT // 2))
        db.broker.append(TP, RecordBatch([large]))
    with Commits(db) as commits:
        db.broker.delete_records(TP, -1)
    assert rows(db) == 0
    assert commits.all == 1 + 3 + 1, "the move, two records in each unit, and one that finds none"


@pytest.mark.parametrize("ahead_ms", [1, HOUR_MS, 365 * DAY_MS])
def test_a_round_noted_in_the_future_does_not_stop_those_that_follow(
    db: eosdb.Database, ahead_ms: int
) -> None:
    """As by a program whose clock was wrong."""
    store, now = db._store, db.clock.time_ms()
    store.begin_round(now + ahead_ms, 0)
    assert store.begin_round(now, HOUR_MS) == (False, now), "the interval begins anew"
    assert store.begin_round(now + HOUR_MS - 1, HOUR_MS) == (False, now)
    assert store.begin_round(now + HOUR_MS, HOUR_MS) == (True, now + HOUR_MS)
