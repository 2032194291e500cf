"""Handlers of two parameters: rows of their own, results and offsets in one commit, whatever fails."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import eosdb
from eosdb import ConsumerRecord, ManualClock, OffsetAndMetadata, TopicPartition, UserTransaction
from eosdb.client.processor.failure import read_failure
from eosdb.model.failpoints import Failpoint, watched
from tests.client.processor.work import feed, read, values

pytestmark = pytest.mark.slow

TP = TopicPartition("in", 0)
Run = Callable[..., eosdb.ProcessReport]
metadata = MetaData()
done = Table(
    "done",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("value", String, unique=True),
)


class Base(DeclarativeBase):
    pass


class Done(Base):
    __tablename__ = "done"
    id: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[str]


@pytest.fixture(autouse=True)
def _topics(db: eosdb.Database) -> None:
    for topic in ("in", "out"):
        db.admin.create_topic(topic)
    metadata.create_all(db.engine)


@pytest.fixture
def run(db: eosdb.Database) -> Run:
    def run_it(handler: Any, sink: str | None = "out", **config: Any) -> eosdb.ProcessReport:
        topics = config.pop("topics", "in")
        config = {"dead_letter_topic": "dead", **config}
        return eosdb.process(db, topics, handler, sink, group_id="g", until_idle_ms=50, **config)

    return run_it


def store(record: ConsumerRecord, tx: UserTransaction) -> bytes:
    """One row and one result for a record."""
    assert isinstance(record.value, bytes)
    tx.connection.execute(done.insert().values(value=record.value.decode()))
    return record.value


def at_b(act: Callable[[UserTransaction], object]) -> Callable[..., bytes]:
    """A handler that does something more, or fails, when it has stored the record `b`."""

    def handle(record: ConsumerRecord, tx: UserTransaction) -> bytes:
        result = store(record, tx)
        if record.value == b"b":
            act(tx)
        return result

    return handle


def fails(_: UserTransaction) -> NoReturn:
    raise ValueError("no b")


def undoes(tx: UserTransaction) -> None:
    """SQLite rolls the whole unit back."""
    tx.connection.execute(text("INSERT OR ROLLBACK INTO done (value) VALUES ('b')"))


def rows(db: eosdb.Database) -> list[str]:
    return [value for (value,) in db.query("SELECT value FROM done ORDER BY id").rows]


def committed(db: eosdb.Database) -> int:
    return db.broker.offset_fetch("g")[TP].offset


# -- one commit ---------------------------------------------------------------------------------


def test_rows_results_and_offset_are_one_commit(db: eosdb.Database, run: Run) -> None:
    commits: list[tuple[int, int, int]] = []

    def look(point: Failpoint) -> None:
        if point is Failpoint.USER_UNIT_UNCOMMITTED:
            commits.append((len(rows(db)), len(read(db)), len(db.broker.offset_fetch("g"))))

    def handle(record: ConsumerRecord, tx: UserTransaction) -> bytes:
        tx.publish("out", b"published", key=b"k")
        return store(record, tx)

    feed(db, b"a", b"b", b"c")
    with watched(look):
        report = run(handle)
    assert commits == [(0, 0, 0)]
    assert report.commits == 1
    assert report.processed == 3
    assert rows(db) == ["a", "b", "c"]
    assert values(db) == [b"a", b"b", b"c", *[b"published"] * 3]
    assert committed(db) == 3
    # No Kafka transaction, and no producer.
    assert list(db.query("SELECT count(*) FROM transactions").rows) == [(0,)]
    assert db.verify().ok


def test_an_attempt_that_fails_leaves_nothing(db: eosdb.Database, run: Run) -> None:
    attempts: list[bytes] = []

    def handle(record: ConsumerRecord, tx: UserTransaction) -> bytes:
        assert isinstance(record.value, bytes)
        attempts.append(record.value)
        tx.publish("out", b"while " + record.value)
        result = store(record, tx)
        if record.value == b"b" and attempts.count(b"b") < 3:
            raise ValueError
        return result

    feed(db, b"a", b"b", b"c")
    report = run(handle)
    assert attempts == [b"a", b"b", b"b", b"b", b"c"]
    assert rows(db) == ["a", "b", "c"]
    assert values(db) == [b"a", b"b", b"c", b"while a", b"while b", b"while c"]
    assert report.failed == 2
    assert report.aborts == 0
    assert db.verify().ok


def test_what_fails_for_good_leaves_its_dead_letter_alone(db: eosdb.Database, run: Run) -> None:
    def handle(record: ConsumerRecord, tx: UserTransaction) -> None:
        tx.publish("out", b"never")
        at_b(fails)(record, tx)

    feed(db, b"a", b"b", b"c")
    run(handle)
    assert rows(db) == ["a", "c"]
    (letter,) = read(db, "dead")
    failure = read_failure(letter.headers)
    assert failure is not None
    assert (failure.attempts, failure.message, failure.offset) == (3, "no b", 1)
    assert len(values(db)) == 2
    assert committed(db) == 3


def test_without_dead_letters_what_came_before_the_failing_record_stands(
    db: eosdb.Database, run: Run
) -> None:
    feed(db, b"a", b"b", b"c")
    for attempts in (1, 3):
        with pytest.raises(eosdb.HandlerFailedError, match=r"Nothing of the record.*"):
            run(at_b(fails), dead_letter_topic=None, max_attempts=attempts)
        assert (rows(db), values(db), committed(db)) == (["a"], [b"a"], 1)
    run(store)
    assert rows(db) == ["a", "b", "c"]


@pytest.mark.parametrize("how", ["return", "publish"])
def test_a_result_that_cannot_be_stored_is_its_records_failure(
    db: eosdb.Database, run: Run, how: str
) -> None:
    db.admin.create_topic("small", config={"max.message.bytes": 200})

    def handle(record: ConsumerRecord, tx: UserTransaction) -> Any:
        store(record, tx)
        value = b"x" * (500 if record.value == b"b" else 5)
        if how == "publish":
            tx.publish("small", value)
            return None
        return eosdb.ProducerRecord(topic="small", value=value)

    feed(db, b"a", b"b", b"c")
    report = run(handle)
    assert rows(db) == ["a", "c"]
    assert len(read(db, "small")) == 2
    assert [letter.value for letter in read(db, "dead")] == [b"b"]
    assert report.processed == 2


# -- who holds the lock, and for how long ---------------------------------------------------------


def test_the_lock_is_not_held_over_a_pause_or_a_poll(db: eosdb.Database, db_path: Path) -> None:
    """Another database object writes whenever the loop waits, and would not get the lock otherwise."""
    config = eosdb.BrokerConfig(lock_timeout_ms=100)
    written = tries = 0

    class Clock(ManualClock):
        def sleep_ms(self, duration_ms: int) -> None:
            nonlocal written
            if written < 20:
                written += 1
                producer.send("out", b"other").result()
            super().sleep_ms(duration_ms)

    def handle(record: ConsumerRecord, tx: UserTransaction) -> bytes:
        nonlocal tries
        tries += 1
        result = store(record, tx)
        if record.value == b"b" and tries < 4:
            raise ValueError
        return result

    feed(db, b"a", b"b", b"c")
    with (
        eosdb.connect(db_path, config=config, durability="off") as other,
        eosdb.connect(db_path, clock=Clock(db.clock.time_ms()), durability="off") as slow,
    ):
        producer = other.producer()
        eosdb.process(slow, "in", handle, "out", group_id="g", until_idle_ms=50)
    assert written >= 2
    assert rows(db) == ["a", "b", "c"]
    assert values(db) == [b"a", b"b", b"c", *[b"other"] * written]


def test_a_unit_ends_with_its_size_and_its_time(
    db: eosdb.Database, run: Run, clock: ManualClock
) -> None:
    feed(db, *(b"%d" % i for i in range(10)))
    assert run(store, transaction_size=4).commits == 3

    def slow(record: ConsumerRecord, tx: UserTransaction) -> bytes:
        clock.advance(60)
        return store(record, tx)

    feed(db, *(b"slow %d" % i for i in range(6)))
    assert run(slow, transaction_interval_ms=100).commits == 3
    assert len(rows(db)) == 16


# -- what a handler leaves behind -----------------------------------------------------------------


def leave_savepoint(_: ConsumerRecord, tx: UserTransaction) -> None:
    tx.connection.begin_nested()
    tx.connection.execute(done.insert().values(value="left"))


def leave_result(_: ConsumerRecord, tx: UserTransaction) -> None:
    statement = text("INSERT INTO done (value) VALUES ('x'), ('y') RETURNING id")
    left.append(tx.connection.execute(statement).fetchone())


def leave_cursor(_: ConsumerRecord, tx: UserTransaction) -> None:
    driver: Any = tx.connection.connection.dbapi_connection
    left.append(driver.execute("INSERT INTO done (value) VALUES ('x'), ('y') RETURNING id"))


def leave_session(_: ConsumerRecord, tx: UserTransaction) -> None:
    session = Session(tx.connection, join_transaction_mode="create_savepoint")
    left.append(session)
    session.add_all([Done(id=7, value="one"), Done(id=8, value="one")])
    with pytest.raises(IntegrityError):
        session.flush()


def leave_reading(_: ConsumerRecord, tx: UserTransaction) -> None:
    left.append(tx.connection.execute(text("SELECT * FROM committed_records")))


left: list[object] = []


@pytest.mark.parametrize(
    "leave", [leave_savepoint, leave_result, leave_cursor, leave_session, leave_reading]
)
@pytest.mark.parametrize("fails", [False, True])
def test_what_a_handler_leaves_behind_does_not_meet_the_next_record(
    db: eosdb.Database, run: Run, leave: Callable[..., None], fails: bool
) -> None:
    def handle(record: ConsumerRecord, tx: UserTransaction) -> bytes:
        if record.value == b"b":
            leave(record, tx)
            if fails:
                raise ValueError
            return b"b"
        return store(record, tx)

    feed(db, b"a", b"b", b"c")
    run(handle)
    left.clear()
    gc.collect()
    assert [value for value in rows(db) if value not in ("left", "x", "y")] == ["a", "c"]
    ended = values(db) + [letter.value for letter in read(db, "dead")]
    assert sorted(ended) == [b"a", b"b", b"c"]  # type: ignore[type-var]
    assert committed(db) == 3
    assert db.verify().ok


def test_an_error_that_the_handler_catches_undoes_its_statement_alone(
    db: eosdb.Database, run: Run
) -> None:
    def handle(record: ConsumerRecord, tx: UserTransaction) -> bytes:
        result = store(record, tx)
        with pytest.raises(IntegrityError):
            store(record, tx)
        with pytest.raises(eosdb.UnknownTopicOrPartitionError):
            tx.publish("nowhere", b"x")
        return result

    feed(db, b"a", b"b")
    run(handle)
    assert (rows(db), values(db)) == (["a", "b"], [b"a", b"b"])


@pytest.mark.parametrize("catches", [False, True])
def test_a_unit_that_sqlite_undoes_is_processed_again_without_the_culprit(
    db: eosdb.Database, run: Run, catches: bool
) -> None:
    def act(tx: UserTransaction) -> None:
        with contextlib.suppress(*[IntegrityError] * catches):
            undoes(tx)

    feed(db, b"a", b"b", b"c")
    report = run(at_b(act))
    assert (rows(db), values(db), committed(db)) == (["a", "c"], [b"a", b"c"], 3)
    assert [letter.value for letter in read(db, "dead")] == [b"b"]
    assert report.failed == 3
    assert report.aborts >= 1
    assert db.verify().ok


@pytest.mark.parametrize("refused", [0, 1, 2, 3])
@pytest.mark.parametrize("ways", [(), *product(("raised", "undone"), repeat=2)])
def test_however_attempts_and_commits_have_failed_each_record_is_stored_once_in_its_place(
    db: eosdb.Database, run: Run, ways: tuple[str, ...], refused: int
) -> None:
    """An attempt of the last record raises, or undoes the unit; one commit finds the file locked."""
    failures, commits = iter(ways), 0

    def handle(record: ConsumerRecord, tx: UserTransaction) -> bytes:
        result = store(record, tx)
        way = next(failures, None) if record.value == b"b" else None
        if way == "raised":
            raise ValueError("not now")
        if way == "undone":
            undoes(tx)
        return result

    def refuse(point: Failpoint) -> None:
        nonlocal commits
        commits += point is Failpoint.USER_UNIT_UNCOMMITTED
        if commits == refused and point is Failpoint.USER_UNIT_UNCOMMITTED:
            raise eosdb.DatabaseLockedError("not now")

    feed(db, b"a", b"b")
    with watched(refuse):
        run(handle, max_attempts=5)
    assert (rows(db), values(db), committed(db)) == (["a", "b"], [b"a", b"b"], 2)
    assert next(failures, None) is None
    assert db.verify().ok


def test_a_unit_that_is_undone_costs_no_record_of_a_partition_that_it_had_not_come_to(
    db: eosdb.Database, run: Run
) -> None:
    """One poll has brought records of all partitions, and the first record of them undoes the unit."""
    attempts: list[bytes] = []

    def handle(record: ConsumerRecord, tx: UserTransaction) -> bytes:
        result = store(record, tx)
        attempts.append(result)
        if len(attempts) == 1:
            tx.connection.execute(
                text("INSERT OR ROLLBACK INTO done (value) VALUES (:value)"),
                {"value": result.decode()},
            )
        return result

    db.admin.create_topic("wide", partitions=3)
    sent = sorted(b"%d-%d" % (partition, i) for partition in range(3) for i in range(4))
    with db.producer() as producer:
        for value in sent:
            producer.send("wide", value, partition=int(value[:1]))
    run(handle, topics="wide")
    assert sorted(rows(db)) == [value.decode() for value in sent]
    assert Counter(values(db)) == Counter(sent)
    assert {at.offset for at in db.broker.offset_fetch("g").values()} == {4}
    assert db.verify().ok


def test_an_interrupt_in_a_handler_leaves_nothing_held(
    db: eosdb.Database, run: Run, db_path: Path
) -> None:
    def interrupt(_: UserTransaction) -> None:
        raise KeyboardInterrupt

    feed(db, b"a", b"b")
    with pytest.raises(KeyboardInterrupt):
        run(at_b(interrupt))
    assert (rows(db), values(db)) == ([], [])
    assert db.broker.describe_group("g").state == "Empty"
    config = eosdb.BrokerConfig(lock_timeout_ms=50)
    with eosdb.connect(db_path, config=config, clock=db.clock) as other, other.begin() as tx:
        tx.publish("out", b"free")
    run(store)
    assert (rows(db), values(db)) == (["a", "b"], [b"a", b"b", b"free"])


def test_writing_past_the_transaction_is_refused_and_a_failure_of_its_record(
    db: eosdb.Database, run: Run
) -> None:
    producer = db.producer()

    feed(db, b"a", b"b", b"c")
    run(at_b(lambda _: producer.send("out", b"past").result()))
    assert (rows(db), values(db)) == (["a", "c"], [b"a", b"c"])
    (letter,) = read(db, "dead")
    failure = read_failure(letter.headers)
    assert failure is not None
    assert failure.error == "IllegalStateError"


def test_a_transaction_is_over_when_its_handler_has_returned(db: eosdb.Database, run: Run) -> None:
    kept: list[UserTransaction] = []

    def handle(record: ConsumerRecord, tx: UserTransaction) -> bytes:
        for earlier in kept:
            with pytest.raises(eosdb.InvalidRequestError, match="handler has returned"):
                earlier.publish("out", b"late")
            with pytest.raises(eosdb.InvalidRequestError, match="handler has returned"):
                _ = earlier.connection
        kept.append(tx)
        return store(record, tx)

    feed(db, b"a", b"b")
    run(handle)
    with pytest.raises(eosdb.InvalidRequestError, match="handler has returned"):
        kept[0].commit_offsets("g", {TP: OffsetAndMetadata(0)})
    assert (rows(db), values(db)) == (["a", "b"], [b"a", b"b"])


def test_another_thread_may_help_while_the_handler_runs(db: eosdb.Database, run: Run) -> None:
    def handle(record: ConsumerRecord, tx: UserTransaction) -> bytes:
        thread = threading.Thread(target=tx.publish, args=("out", b"helped"))
        thread.start()
        thread.join()
        return store(record, tx)

    feed(db, b"a")
    run(handle)
    assert values(db) == [b"a", b"helped"]


def test_a_generator_runs_in_its_transaction(db: eosdb.Database, run: Run) -> None:
    def handle(record: ConsumerRecord, tx: UserTransaction) -> Iterator[bytes]:
        yield b"first"
        yield store(record, tx)
        if record.value == b"b":
            raise ValueError

    feed(db, b"a", b"b")
    run(handle)
    assert (rows(db), values(db)) == (["a"], [b"a", b"first"])


# -- members that lose their partitions -----------------------------------------------------------


@pytest.mark.parametrize("others_offsets", [False, True])
def test_whoever_lost_its_membership_stores_nothing_of_what_it_did(
    db: eosdb.Database, run: Run, others_offsets: bool
) -> None:
    """Its session ends while it waits to try again, and what is due is done before the unit begins."""
    if others_offsets:
        db.broker.offset_commit("g", {TP: OffsetAndMetadata(0)})
    calls: list[object] = []

    def handle(record: ConsumerRecord, tx: UserTransaction) -> bytes:
        calls.append(record.value)
        result = store(record, tx)
        if len(calls) == 1:
            raise ValueError
        return result

    feed(db, b"a", b"b")
    report = run(handle, retry_backoff_ms=50_000)
    assert (rows(db), values(db), committed(db)) == (["a", "b"], [b"a", b"b"], 2)
    assert calls == [b"a", b"a", b"b", b"a", b"b"]
    assert report.aborts == 1
