"""Threads that share one database, and databases that share one process."""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

import eosdb
from eosdb import ConsumerGroupMetadata, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.store.writing import group_commit
from eosdb.store.writing.group_commit import GroupCommit, UnitRequest
from eosdb.store.writing.unit import Memo, Unit
from tests.client.producer.answers import transactional
from tests.concurrency.worker import threads
from tests.inside import Commits, writer
from tests.readers import committed_values

pytestmark = pytest.mark.crash

TP = TopicPartition("t", 0)


@dataclass(slots=True)
class Seen(Memo):
    numbers: set[int] = field(default_factory=set)


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t")


def test_a_requests_error_undoes_only_its_own_writes(db: eosdb.Database) -> None:
    """Good and bad requests leave together, so they share commits."""
    together = threading.Barrier(8)
    refused: list[int] = []

    def work(number: int) -> None:
        who = db.broker.init_producer_id()
        for i in range(30):
            together.wait()
            good = number % 2 == 0
            sequence = i if good else i * 2
            batch = RecordBatch([Record(value=b"%d %d" % (number, i))], *who, sequence)
            try:
                db.broker.append(TP, batch)
            except eosdb.OutOfOrderSequenceNumberError:
                refused.append(number)

    threads(8, work)
    values = committed_values(db, TP)
    for number in range(0, 8, 2):
        mine = [value for value in values if value and value.startswith(b"%d " % number)]
        assert mine == [b"%d %d" % (number, i) for i in range(30)]
    for number in range(1, 8, 2):
        mine = [value for value in values if value and value.startswith(b"%d " % number)]
        assert mine == [b"%d 0" % number]
    assert len(refused) == 4 * 29
    assert db.verify().ok


def test_requests_of_many_threads_share_commits(db: eosdb.Database) -> None:
    batch = RecordBatch([Record(value=b"v")])
    assert at_once(db, [partial(db.broker.append, TP, batch)] * 8)[0] == 1
    assert db.broker.offsets(TP).log_end_offset == 8


def at_once(db: eosdb.Database, works: Sequence[Callable[[], object]]) -> tuple[float, float]:
    """While one round is held up, everything that comes waits for the next one. Returns how many commits
    and syncs the works have taken, of which each makes one request."""

    def hold(_: Unit) -> None:
        entered.set()
        assert go.wait(60)

    entered, go = threading.Event(), threading.Event()
    held = threading.Thread(target=db._store.write, args=(hold,), kwargs={"sync": False})
    started = [threading.Thread(target=work) for work in works]
    held.start()
    entered.wait()
    with Commits(db) as commits:
        for thread in started:
            thread.start()
        while len(db._store._group._queue) < 1 + len(works):
            pass
        go.set()
        for thread in (held, *started):
            thread.join()
    return commits.all - 1, commits.synced


@pytest.mark.parametrize("has_offsets", [False, True])
def test_transactions_of_many_threads_share_a_commit_and_its_sync(
    db_path: Path, has_offsets: bool
) -> None:
    """Records, a group's offsets as a processor sends them, and the end: each is one request."""
    with eosdb.connect(db_path, durability="full") as db:
        producers = [transactional(db, f"p{i}") for i in range(8)]
        offsets = {TP: OffsetAndMetadata(7)} if has_offsets else {}
        for number in range(2):
            for producer in producers:
                producer.begin_transaction()
                producer.send("t", b"%d" % number, partition=0)
            assert at_once(
                db,
                [
                    partial(p._commit_with, offsets, ConsumerGroupMetadata(f"g{i}"))
                    for i, p in enumerate(producers)
                ],
            ) == (1, 1)
        assert committed_values(db, TP) == [b"0"] * 8 + [b"1"] * 8
        for i in range(8):
            committed = db.broker.offset_fetch(f"g{i}", [TP])
            assert [at.offset for at in committed.values()] == [7] * has_offsets
        assert db.verify().ok


def test_a_transaction_that_is_refused_behind_its_records_undoes_only_itself(
    db: eosdb.Database,
) -> None:
    db.admin.create_topic("small", config={"max.message.bytes": "5"})
    producers = [transactional(db, f"p{i}") for i in range(4)]
    refused: list[eosdb.EosdbError] = []

    def commit(number: int) -> None:
        try:
            producers[number].commit_transaction()
        except eosdb.MessageTooLargeError as error:
            refused.append(error)
            producers[number].abort_transaction()

    for number, producer in enumerate(producers):
        producer.begin_transaction()
        producer.send("t", b"%d" % number)
        if number % 2:
            producer.send("small", b"too large for its topic")
    at_once(db, [partial(commit, number) for number in range(4)])
    assert len(refused) == 2
    assert sorted(filter(None, committed_values(db, TP))) == [b"0", b"2"]
    for number, producer in enumerate(producers):
        with producer.transaction():
            producer.send("t", b"next %d" % number)
    assert len(committed_values(db, TP)) == 6
    assert db.verify().ok


@pytest.mark.parametrize("error", [ValueError, sqlite3.OperationalError])
def test_what_a_failed_request_wrote_is_undone_and_its_companions_stand(
    db: eosdb.Database, error: type[Exception]
) -> None:
    """Whether the failure is eosdb's own or one of SQLite's, after which everybody goes alone."""

    def good(number: int) -> Callable[[Unit], int]:
        def write(unit: Unit) -> int:
            unit.execute("INSERT INTO counters VALUES (?, 1)", (f"good {number}",))
            unit.memos[Seen].numbers.add(number)
            return number

        return write

    def bad(unit: Unit) -> None:
        unit.execute("INSERT OR REPLACE INTO counters VALUES ('bad', 1)")
        unit.memos[Seen].numbers.add(-1)
        raise error("on purpose")

    functions: list[Callable[[Unit], object]] = [good(0), bad, good(1), bad, good(2)]
    batch = [UnitRequest(function, sync=False) for function in functions]
    db._store._run_round(batch)
    assert [request.done for request in batch] == [True] * 5
    assert [request.result for request in batch] == [0, None, 1, None, 2]
    assert [request.error is None for request in batch] == [True, False, True, False, True]
    names = [name for (name,) in db.query("SELECT name FROM counters").rows]
    assert sorted(name for name in names if " " in name) == ["good 0", "good 1", "good 2"]
    assert "bad" not in names
    assert -1 not in writer(db)._unit.memos[Seen].numbers


def test_two_databases_of_one_process_on_one_file(db: eosdb.Database, db_path: Path) -> None:
    with eosdb.connect(db_path, clock=db.clock, durability="normal") as other:

        def work(number: int) -> None:
            producer = (db, other)[number % 2].producer()
            for i in range(50):
                producer.send("t", f"{number} {i}").result()

        threads(4, work)
        assert db.broker.offsets(TP) == other.broker.offsets(TP)
        assert len(set(committed_values(other, TP))) == 200
    assert db.producer().send("t", b"still open").result().offset == 200


def test_a_producer_id_is_given_to_one_thread_only(db: eosdb.Database) -> None:
    given: list[int] = []
    threads(8, lambda _: given.extend(db.broker.init_producer_id().producer_id for _ in range(300)))
    assert len(set(given)) == 8 * 300


def test_an_unexpected_error_inside_a_unit_leaves_the_next_one_unharmed(
    db: eosdb.Database,
) -> None:
    def broken(unit: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        db._store.write(broken)
    with pytest.raises(KeyboardInterrupt):
        db._store.write(lambda unit: (_ for _ in ()).throw(KeyboardInterrupt))
    assert db.producer().send("t", b"v").result().offset == 0


def test_a_thread_alone_waits_for_nobody(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = db.producer()

    def send_one(number: int) -> None:
        db.producer().send("t", b"%d" % number).result()

    threads(4, send_one)
    producer.send("t", b"the last that may wait for the others").result()

    def wait(request: UnitRequest, seconds: float) -> bool:
        raise AssertionError("it waits")

    monkeypatch.setattr(UnitRequest, "wait", wait)
    for i in range(5):
        producer.send("t", b"%d" % i).result()


def test_a_leader_that_forgets_to_wake_somebody_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one does that is interrupted (Ctrl-C) when its round is over."""
    entered, go = threading.Event(), threading.Event()

    def run_round(batch: list[UnitRequest]) -> None:
        entered.set()
        go.wait()
        for request in batch:
            request.result, request.done = request.function(None), True  # type: ignore[arg-type]

    monkeypatch.setattr(group_commit, "_LOOK_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(UnitRequest, "wake", lambda request: None)
    group = GroupCommit(run_round)
    ran: list[int] = []
    waiting = [
        threading.Thread(target=group.submit, args=(partial(_note, ran, number), False))
        for number in range(3)
    ]
    waiting[0].start()
    entered.wait()
    for thread in waiting[1:]:
        thread.start()
    while len(group._queue) < 3:
        pass
    go.set()
    for thread in waiting:
        thread.join()
    assert sorted(ran) == [0, 1, 2]


@pytest.mark.parametrize("at", range(4))
def test_who_shared_a_round_with_a_leader_that_is_interrupted_is_served_by_the_next(
    db: eosdb.Database, at: int
) -> None:
    """Ctrl-C reaches the leader while it runs the request at this place of its round, whosever it is."""
    entered, go = threading.Event(), threading.Event()
    places = iter(range(at + 1))
    ends: queue.SimpleQueue[tuple[int, bool]] = queue.SimpleQueue()

    def hold_up(unit: Unit) -> None:
        entered.set()
        go.wait()

    def write(number: int) -> None:
        def insert(unit: Unit) -> None:
            unit.execute("INSERT INTO counters VALUES (?, 1)", (f"row {number}",))
            if next(places, None) == at:
                raise KeyboardInterrupt

        try:
            db._store.write(insert)
            ends.put((number, True))
        except KeyboardInterrupt:
            ends.put((number, False))

    first = threading.Thread(target=db._store.write, args=(hold_up,))
    first.start()
    entered.wait()
    before = len(db._store._group._queue)
    for number in range(4):
        threading.Thread(target=write, args=(number,), daemon=True).start()
    while len(db._store._group._queue) < before + 4:
        pass
    go.set()
    first.join()
    answers = dict(ends.get() for _ in range(4))
    assert sorted(answers.values()) == [False, True, True, True]
    names = {name for (name,) in db.query("SELECT name FROM counters WHERE name LIKE 'row %'").rows}
    assert names == {f"row {number}" for number, is_stored in answers.items() if is_stored}


def _note(ran: list[int], number: int, unit: Unit) -> None:
    ran.append(number)
