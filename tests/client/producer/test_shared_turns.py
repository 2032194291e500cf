"""What goes along with the last records: one turn with the broker, and all of it or nothing."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.client.transport import DirectTransport
from eosdb.model.requests import Produce
from eosdb.store.writing.group_commit import UnitRequest
from eosdb.store.writing.unit import Unit
from eosdb.store.writing.writer import Writer
from tests.client.producer.answers import transactional
from tests.inside import Commits, writer
from tests.readers import committed_values

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


@pytest.fixture
def db(db_path: Path, clock: eosdb.ManualClock) -> Iterator[eosdb.Database]:
    with eosdb.connect(db_path, clock=clock, durability="full") as opened:
        opened.admin.create_topic("t", partitions=2)
        yield opened


def send_both(producer: eosdb.Producer, count: int = 3) -> None:
    for i in range(count):
        producer.send("t", b"%d" % i, partition=0)
        producer.send("t", b"%d" % i, partition=1)


def test_the_last_records_and_the_decision_are_one_commit(db: eosdb.Database) -> None:
    producer = transactional(db)
    for _ in range(2):
        producer.begin_transaction()
        send_both(producer)
        with Commits(db) as commits:
            producer.commit_transaction()
        assert (commits.all, commits.synced) == (1, 1), "records, Prepare, markers and Complete"
    assert committed_values(db, TP) == committed_values(db, OTHER) == [b"0", b"1", b"2"] * 2


def test_the_next_small_transaction_reads_nothing(db: eosdb.Database) -> None:
    producer = transactional(db)
    connection, statements = writer(db).connection, list[str]()
    for _ in range(2):
        statements.clear()
        connection.set_trace_callback(statements.append)
        with producer.transaction():
            send_both(producer)
        connection.set_trace_callback(None)
    assert [sql for sql in statements if sql.startswith("SELECT")] == []
    assert statements[-1] == "COMMIT"


def test_offsets_go_along_with_the_records_before_them(db: eosdb.Database) -> None:
    producer = transactional(db)
    producer.begin_transaction()
    send_both(producer)
    with Commits(db) as commits:
        producer.send_offsets_to_transaction({TP: OffsetAndMetadata(7)}, "g")
    assert (commits.all, commits.synced) == (1, 0)
    with Commits(db) as commits:
        producer.commit_transaction()
    assert (commits.all, commits.synced) == (1, 1)
    assert db.broker.offset_fetch("g", [TP])[TP].offset == 7
    assert committed_values(db, TP) == [b"0", b"1", b"2"]


def test_full_batches_of_one_partition_share_a_commit(db: eosdb.Database) -> None:
    with db.producer(batch_size=1, linger_ms=60_000) as producer:
        producer.send("t", b"first", partition=0)
        producer.flush()
        with Commits(db) as commits, producer._lock:
            futures = [producer.send("t", b"%d" % i, partition=0) for i in range(20)]
            producer.flush()
    assert (commits.all, commits.synced) == (1, 1)
    assert [future.result().offset for future in futures] == list(range(1, 21))


@pytest.mark.parametrize("most", [1, 5])
def test_without_idempotence_the_order_rests_on_one_request_at_a_time(
    db: eosdb.Database, most: int
) -> None:
    with db.producer(
        enable_idempotence=False,
        max_in_flight_requests_per_connection=most,
        batch_size=1,
        linger_ms=60_000,
    ) as producer:
        # The lock keeps the thread away that sends what lingers: a batch of one byte is full at once.
        with Commits(db) as commits, producer._lock:
            for i in range(3):
                producer.send("t", b"%d" % i, partition=0)
            producer.flush()
        assert commits.all == 3
    assert committed_values(db, TP) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(("config", "tells"), [({}, False), ({}, True), ({"batch_size": 1}, True)])
def test_what_is_too_large_as_a_whole_is_split_and_stays_in_order(
    db: eosdb.Database, config: dict[str, Any], tells: bool
) -> None:
    """Somebody who is to be told has the records sent in a turn before the commit's."""
    db.admin.create_topic("small", config={"max.message.bytes": "25"})
    producer, told = transactional(db, **config), list[object]()
    values = [b"%010d" % i for i in range(20)]
    note = (lambda _, at: told.append(at and at.offset)) if tells else None
    with producer.transaction():
        for value in values:
            producer.send("small", value, on_delivery=note)
        producer.send("t", b"beside", partition=0)
    assert told == [*range(20)] * tells
    assert committed_values(db, TopicPartition("small", 0)) == values
    assert committed_values(db, TP) == [b"beside"]
    assert db.verify().ok


def test_a_batch_that_is_refused_keeps_the_decision_back(db: eosdb.Database) -> None:
    db.admin.create_topic("small", config={"max.message.bytes": "5"})
    producer = transactional(db)
    producer.begin_transaction()
    producer.send("t", b"good", partition=0)
    bad = producer.send("small", b"too large for its topic")
    with pytest.raises(eosdb.MessageTooLargeError):
        producer.commit_transaction()
    assert isinstance(bad.exception(), eosdb.MessageTooLargeError)
    producer.abort_transaction()
    assert committed_values(db, TP) == []
    with producer.transaction():
        producer.send("t", b"next", partition=0)
    assert committed_values(db, TP) == [b"next"]


def test_a_zombies_last_records_and_its_commit_are_refused(db: eosdb.Database) -> None:
    zombie = transactional(db)
    zombie.begin_transaction()
    zombie.send("t", b"from the grave", partition=0)
    transactional(db)
    with pytest.raises(eosdb.EosdbError) as refused:
        zombie.commit_transaction()
    assert isinstance(refused.value, (eosdb.ProducerFencedError, eosdb.InvalidProducerEpochError))
    assert committed_values(db, TP) == []
    assert db.verify().ok


def test_a_callback_is_told_before_the_commit_and_may_still_send(db: eosdb.Database) -> None:
    producer = transactional(db)
    producer.begin_transaction()
    producer.send(
        "t", b"first", partition=0,
        on_delivery=lambda error, _: producer.send("t", b"from the callback", partition=0),
    )  # fmt: skip
    producer.commit_transaction()
    assert committed_values(db, TP) == [b"first", b"from the callback"]


def interrupt_next_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes when the next synced commit is in the file, and before its answer."""
    commit = Writer.commit

    def commit_and_interrupt(writer: Writer, requests: int, **settings: bool) -> None:
        commit(writer, requests, **settings)
        if writer._synchronous == "FULL":
            monkeypatch.undo()
            raise KeyboardInterrupt

    monkeypatch.setattr(Writer, "commit", commit_and_interrupt)


@pytest.mark.parametrize("then", ["say it again", "abort", "a block"])
def test_a_commit_that_was_interrupted_is_committed(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    producer = transactional(db)
    interrupt_next_commit(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        if then == "a block":
            with producer.transaction() as token:
                send_both(producer)
        token = producer.begin_transaction()
        send_both(producer)
        producer.commit_transaction()
    assert db.outcome(token) == "committed"
    if then == "say it again":
        producer.commit_transaction()
    elif then == "abort":
        with pytest.raises(eosdb.IllegalStateError, match="is committed"):
            producer.abort_transaction()
    with producer.transaction():
        producer.send("t", b"next", partition=0)
    assert committed_values(db, TP) == [b"0", b"1", b"2", b"next"]


class Followers:
    """One thread leads a round, another waits to lead the next, and the main thread, which waits behind it,
    is interrupted: before that round, or in it."""

    def __init__(self, db: eosdb.Database, monkeypatch: pytest.MonkeyPatch, *, runs: bool) -> None:
        self._store, self._runs = db._store, runs
        self._leads, self._waits, self._next_leads, self.is_out, self._may_end = (
            threading.Event() for _ in range(5)
        )
        self._wait = UnitRequest.wait
        monkeypatch.setattr(UnitRequest, "wait", lambda *given: self._waiting(*given))
        self._threads = [threading.Thread(target=work) for work in (self._lead, self._lead_next)]

    def __enter__(self) -> Followers:
        self._threads[0].start()
        assert self._leads.wait(60)
        self._threads[1].start()
        assert self._waits.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.is_out.set()
        self._may_end.set()
        for thread in self._threads:
            thread.join(60)

    def _lead(self) -> None:
        def hold(_: Unit) -> None:
            self._leads.set()
            assert self._may_end.wait(60)

        self._store.write(hold, sync=False)

    def _lead_next(self) -> None:
        def hold(_: Unit) -> None:
            self._next_leads.set()
            assert self.is_out.wait(60)

        self._store.write(hold, sync=False)

    def _waiting(self, request: UnitRequest, seconds: float) -> bool:
        if threading.current_thread() is threading.main_thread() and not self.is_out.is_set():
            if self._runs:
                self._may_end.set()
                assert self._next_leads.wait(60)
            raise KeyboardInterrupt
        self._waits.set()
        return self._wait(request, seconds)


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("then", ["say it again", "abort"])
def test_a_commit_that_was_interrupted_among_others_is_asked_for_its_fate(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch, then: str, runs: bool
) -> None:
    producer = transactional(db)
    token = producer.begin_transaction()
    futures = [producer.send("t", b"%d" % i, partition=0) for i in range(3)]
    with Followers(db, monkeypatch, runs=runs) as others:
        with pytest.raises(KeyboardInterrupt):
            producer.commit_transaction()
        others.is_out.set()
        others._may_end.set()
        if then == "say it again":
            producer.commit_transaction()
        elif runs:
            with pytest.raises(eosdb.IllegalStateError, match="is committed"):
                producer.abort_transaction()
        else:
            producer.abort_transaction()
    is_committed = runs or then == "say it again"
    assert db.outcome(token) == ("committed" if is_committed else "aborted")
    if is_committed:
        assert [future.result().offset for future in futures] == [0, 1, 2]
    with producer.transaction():
        producer.send("t", b"next", partition=0)
    assert committed_values(db, TP) == [b"0", b"1", b"2"] * is_committed + [b"next"]
    assert db.verify().ok


class FailsOnce:
    """A driver connection whose statement number `fatal` does not get through."""

    def __init__(self, connection: sqlite3.Connection, fatal: int) -> None:
        self._connection = connection
        self._left = fatal

    def cursor(self) -> FailsOnce:
        return self

    def execute(self, *statement: Any) -> sqlite3.Cursor:
        self._count()
        return self._connection.execute(*statement)

    def commit(self) -> None:
        self._count()
        self._connection.commit()

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise sqlite3.OperationalError("database or disk is full")

    @property
    def has_failed(self) -> bool:
        return self._left <= 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def failing(db: eosdb.Database, fatal: int) -> tuple[FailsOnce, Callable[[], None]]:
    inside = writer(db)
    connection = inside.connection
    fails = FailsOnce(connection, fatal)
    inside.connection = fails  # type: ignore[misc, assignment]
    everywhere: list[Any] = [inside._unit]
    for holder in everywhere:
        holder._connection = fails

    def mend() -> None:
        inside.connection = connection  # type: ignore[misc]
        for holder in everywhere:
            holder._connection = connection

    return fails, mend


def transactions_that_fail(
    db: eosdb.Database, producer: eosdb.Producer
) -> Iterator[tuple[int, Callable[[], None]]]:
    """Begun transactions, in each of which another statement of what follows fails, COMMIT too, until none
    of them is reached. The statement's number, and what has the file as before."""
    for fatal in range(1, 200):
        producer.begin_transaction()
        send_both(producer)
        fails, mend = failing(db, fatal)
        yield fatal, mend
        if not fails.has_failed:
            return
    raise AssertionError("a commit has no end")


@pytest.mark.slow
def test_whichever_statement_fails_the_transaction_is_committed_once_or_not_at_all(
    db: eosdb.Database,
) -> None:
    """The disk is full at one statement of the turn, and has room again when the user tries again."""
    producer = transactional(db, batch_size=1)
    written: list[bytes] = []
    for fatal, mend in transactions_that_fail(db, producer):
        try:
            for _ in range(5):
                try:
                    producer.commit_transaction()
                    break
                except (eosdb.DatabaseFullError, eosdb.StorageError):
                    assert producer.state in ("IN_TRANSACTION", "COMMITTING_TRANSACTION")
            else:
                raise AssertionError("five commits were not enough")
        finally:
            mend()
        written += [b"0", b"1", b"2"]
        db.housekeeping()  # Who writes next completes what was decided.
        assert committed_values(db, TP) == committed_values(db, OTHER) == written, fatal
    assert fatal > 20, "records, decision, markers: every one of them has failed once"
    assert db.verify().ok


@pytest.mark.slow
def test_whichever_statement_fails_offsets_are_in_the_transaction_or_their_call_raises(
    db: eosdb.Database,
) -> None:
    """The disk is full at one statement of the turn that takes the records and the offsets behind them."""
    producer = transactional(db)
    written: list[bytes] = []
    for fatal, mend in transactions_that_fail(db, producer):
        try:
            producer.send_offsets_to_transaction({TP: OffsetAndMetadata(fatal)}, "g")
        except (eosdb.DatabaseFullError, eosdb.StorageError):
            mend()
            producer.abort_transaction()
        else:
            mend()
            producer.commit_transaction()
            written += [b"0", b"1", b"2"]
            assert db.broker.offset_fetch("g", [TP])[TP].offset == fatal
        assert committed_values(db, TP) == committed_values(db, OTHER) == written
    assert fatal > 5, "records, offsets and the commit: every one of them has failed once"
    assert db.verify().ok


def test_a_row_that_fits_no_more_at_the_end_costs_only_its_own_request(db: eosdb.Database) -> None:
    """A stranger has stored a sequence before its producer does: nothing tells but the unique index."""

    def batch(who: eosdb.ProducerIdAndEpoch, sequence: int) -> eosdb.RecordBatch:
        record = eosdb.Record(None, b"%d" % sequence)
        return eosdb.RecordBatch([record], *who, base_sequence=sequence)

    taken, free = db.broker.init_producer_id(), db.broker.init_producer_id()
    for sequence in range(6):
        db.broker.append(TP, batch(taken, sequence))
    with closing(sqlite3.connect(db.path)) as stranger:
        stranger.execute(
            'INSERT INTO records (partition_id, "offset", timestamp, timestamp_type, producer_id, '
            "producer_epoch, sequence, sequence_round, is_transactional, position, checksum) "
            "SELECT partition_id, 1000, timestamp, 0, producer_id, producer_epoch, 6, 0, 0, position, 0 "
            "FROM records WHERE sequence = 5"
        )
        stranger.commit()
    first, refused, last = DirectTransport(db.broker).ask(
        [
            Produce({OTHER: batch(free, 0)}),
            Produce({TP: batch(taken, 6)}),
            Produce({OTHER: batch(free, 1)}),
        ],
        sync=True,
    )
    assert (first[OTHER].base_offset, last[OTHER].base_offset) == (0, 1)
    assert isinstance(refused[TP].error, eosdb.OutOfOrderSequenceNumberError)
    assert committed_values(db, OTHER) == [b"0", b"1"]
