"""`eosdb.join`: records and offsets in a transaction that the program has begun on its own connection."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.errors import DatabaseLockedError, IllegalStateError, InvalidRequestError
from eosdb.store.file import locks
from eosdb.store.writing import joined_unit

TP = TopicPartition("orders", 0)
INSERT = "INSERT INTO shop VALUES (?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An application's file with a table of its own and eosdb's beside it."""
    path = tmp_path / "app.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE shop (what TEXT)")
    with eosdb.connect(path, adopt="wal") as db:
        db.admin.create_topic("orders")
    return path


@pytest.fixture
def own(path: Path) -> Iterator[sqlite3.Connection]:
    """The program's own connection, as `sqlite3.connect` makes it."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        yield connection


def stored(path: Path) -> tuple[list[str], list[str]]:
    """The rows and the records, of a file that is sound."""
    with eosdb.connect(path) as db:
        assert db.verify().ok
        rows = db.query("SELECT what FROM shop ORDER BY rowid").rows
        records = db.query("SELECT CAST(value AS TEXT) FROM committed_records").rows
        return [what for (what,) in rows], [what for (what,) in records]


def test_a_key_is_taken_once_by_whatever_way_it_comes(own: sqlite3.Connection, path: Path) -> None:
    with eosdb.connect(path) as db:
        with db.begin() as tx:
            first = tx.publish("orders", "tea", idempotency_key="1")
        with own:
            again = eosdb.join(own).publish("orders", "tea", idempotency_key="1")
        assert (again.offset, again.duplicate) == (first.offset, True)
    assert stored(path) == ([], ["tea"])


def test_writers_of_an_open_database_go_on_behind_it(own: sqlite3.Connection, path: Path) -> None:
    """A database that is open in the same process has cached the partition, and sees that it is old."""
    with eosdb.connect(path) as db, db.producer() as producer:
        for number in range(3):
            producer.send("orders", f"a{number}").result()
            with own:
                assert eosdb.join(own).publish("orders", f"b{number}").offset == 3 * number + 1
            with db.begin() as tx:
                assert tx.publish("orders", f"c{number}").offset == 3 * number + 2
        assert db.verify().ok


def test_a_waiting_consumer_hears_of_the_commit(own: sqlite3.Connection, path: Path) -> None:
    found = []
    with eosdb.connect(path) as db, db.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        thread = threading.Thread(target=lambda: found.extend(consumer.poll(60_000)))
        thread.start()
        with own:
            eosdb.join(own).publish("orders", "tea")
        thread.join()
    assert [record.value for record in found] == [b"tea"]


def test_the_rights_and_settings_given_are_those_that_count(
    own: sqlite3.Connection, path: Path
) -> None:
    config = eosdb.BrokerConfig(super_users="User:root", auto_create_topics_enable=True)
    with eosdb.connect(path, principal="User:root", config=config) as db:
        db.admin.create_acls([eosdb.Acl("User:ann", "read", "topic", "*")])
    with own:
        with pytest.raises(eosdb.TopicAuthorizationFailedError, match="User:ann may not write"):
            eosdb.join(own, principal="User:ann").publish("orders", "x")
        root = eosdb.join(own, principal="User:root", config=config)
        assert root.publish("made-by-this", "x").offset == 0
    assert stored(path) == ([], ["x"])


# -- transactions ------------------------------------------------------------------------------------


def test_without_a_transaction_nothing_is_published(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as own:
        with pytest.raises(IllegalStateError, match="no transaction is open"):
            eosdb.join(own).publish("orders", "x")
        assert not own.in_transaction
        own.execute("BEGIN")
        eosdb.join(own).publish("orders", "y")
        own.execute("COMMIT")
    assert stored(path) == ([], ["y"])


def test_a_transaction_that_has_read_an_older_state_is_told_to_begin_anew(
    own: sqlite3.Connection, path: Path
) -> None:
    """SQLite refuses it at once, and would for ever."""
    own.execute("BEGIN")
    own.execute("SELECT * FROM shop").fetchall()
    with eosdb.connect(path) as db, db.producer() as producer:
        producer.send("orders", "other").result()
    with pytest.raises(DatabaseLockedError, match=r"has written since .* BEGIN IMMEDIATE"):
        eosdb.join(own).publish("orders", "x")
    own.rollback()
    assert stored(path) == ([], ["other"])


def test_a_deferred_transaction_waits_before_it_reads(path: Path) -> None:
    """So that what it reads is not old when it writes."""
    with eosdb.connect(path) as db, contextlib.closing(sqlite3.connect(path, 60)) as own:
        held, may_end = threading.Event(), threading.Event()

        def hold() -> None:
            with db.begin() as tx:
                tx.publish("orders", "first")
                held.set()
                may_end.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        own.execute("BEGIN")
        own.set_progress_handler(may_end.set, 1)  # Called by whatever runs before it waits.
        assert eosdb.join(own).publish("orders", "second").offset == 1
        own.commit()
        thread.join()
    assert stored(path) == ([], ["first", "second"])


def test_who_holds_the_lock_is_told(path: Path) -> None:
    """A block of `db.begin()` in the same thread: this process, not another program."""
    with (
        contextlib.closing(sqlite3.connect(path, timeout=0)) as own,
        eosdb.connect(path) as db,
        db.begin(),
        pytest.raises(DatabaseLockedError, match=r"not written, .* this process"),
    ):
        eosdb.join(own).publish("orders", "x")
    assert stored(path) == ([], [])


# -- what else a connection can be -------------------------------------------------------------------


def a_temporary_table(own: sqlite3.Connection) -> None:
    own.execute("CREATE TEMP TABLE Records (x)")


def a_temporary_trigger(own: sqlite3.Connection) -> None:
    own.execute("CREATE TEMP TRIGGER t AFTER INSERT ON main.eosdb_journal BEGIN SELECT 1; END")


def a_function(own: sqlite3.Connection) -> None:
    own.create_function("ifnull", 2, lambda a, b: b)


@pytest.mark.parametrize(
    ("change", "name"),
    [(a_temporary_table, "Records"), (a_temporary_trigger, "journal"), (a_function, "ifnull")],
)
def test_what_would_change_the_meaning_of_a_statement_is_refused(
    change: Callable[[sqlite3.Connection], None], name: str, own: sqlite3.Connection, path: Path
) -> None:
    change(own)
    with own, pytest.raises(InvalidRequestError, match=name):
        eosdb.join(own).publish("orders", "x")
    assert stored(path) == ([], [])


def test_converters_of_the_programs_are_refused_where_they_change_what_is_read(path: Path) -> None:
    sqlite3.register_converter("TEXT", bytes.upper)
    try:
        with contextlib.closing(sqlite3.connect(path)) as own, own:
            eosdb.join(own).publish("orders", "x")
        types = sqlite3.PARSE_DECLTYPES
        own = sqlite3.connect(path, detect_types=types)
        with contextlib.closing(own), own, pytest.raises(InvalidRequestError, match="converter"):
            eosdb.join(own).publish("orders", "x")
    finally:
        del sqlite3.converters["TEXT"]


def test_every_function_that_is_called_is_looked_at(own: sqlite3.Connection) -> None:
    called = set()

    def authorize(action: int, _: object, name: str | None, *__: object) -> int:
        if action == sqlite3.SQLITE_FUNCTION:
            called.add(name)
        return sqlite3.SQLITE_OK

    own.set_authorizer(authorize)
    config = eosdb.BrokerConfig(auto_create_topics_enable=True)
    with own:
        tx = eosdb.join(own, config=config)
        tx.publish("new", "x", key="k", headers=[("h", b"")], idempotency_key="1")
        tx.publish("new", "y", idempotency_key="1")
        tx.commit_offsets("g", {TopicPartition("new", 0): OffsetAndMetadata(1)})
    assert called <= set(joined_unit.FUNCTIONS)


def test_a_file_without_eosdbs_tables_is_named(tmp_path: Path) -> None:
    for name, words in (
        (tmp_path / "plain.db", r"plain\.db has .*eosdb init --adopt"),
        (":memory:", "in memory"),
    ):
        own = sqlite3.connect(name)
        with contextlib.closing(own), own, pytest.raises(eosdb.NotAnEosdbFileError, match=words):
            eosdb.join(own).publish("orders", "x")


def test_a_published_copy_is_not_written(path: Path, tmp_path: Path) -> None:
    with eosdb.connect(path) as db:
        db.publish_copy(tmp_path / "copy.db")
    own = sqlite3.connect(tmp_path / "copy.db")
    with contextlib.closing(own), own, pytest.raises(eosdb.ReadOnlyDatabaseError):
        eosdb.join(own).publish("orders", "x")


def test_a_connection_that_is_closed_or_of_another_thread_is_told(
    own: sqlite3.Connection, path: Path
) -> None:
    errors: list[Exception] = []

    def elsewhere() -> None:
        try:
            eosdb.join(own).publish("orders", "x")
        except IllegalStateError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "same thread" in str(errors[0])
    own.close()
    with pytest.raises(IllegalStateError, match="closed"):
        eosdb.join(own).publish("orders", "x")


@pytest.mark.parametrize("wrong", [None, "app.db", 3, object()])
def test_anything_else_is_no_connection(wrong: Any) -> None:
    with pytest.raises(eosdb.ConfigError, match=r"expected a sqlite3\.Connection"):
        eosdb.join(wrong)


def test_while_a_failed_sync_is_to_be_made_good_nothing_is_published(
    own: sqlite3.Connection, path: Path
) -> None:
    """decisions/0017: whatever is written before would be lost with the power, committed or not."""
    lock = locks.WriterMutex(f"{path}-lock", 0)
    lock.note_sync(failed=True)
    with own, pytest.raises(eosdb.StorageError, match="a sync has failed"):
        eosdb.join(own).publish("orders", "x")
    with eosdb.connect(path) as db, db.producer() as producer:
        producer.send("orders", "renewed").result()
    with own:
        assert eosdb.join(own).publish("orders", "y").offset == 1
    lock.close()


# -- SQLAlchemy --------------------------------------------------------------------------------------


@pytest.fixture
def sessions(path: Path) -> Iterator[sessionmaker[Session]]:
    engine = create_engine(f"sqlite:///{path}")
    yield sessionmaker(engine)
    engine.dispose()


@pytest.mark.parametrize("first", ["row", "record"])
def test_a_session_commits_and_rolls_back_records_with_its_rows(
    first: str, sessions: sessionmaker[Session], path: Path
) -> None:
    """Whichever comes first: the driver begins a transaction before the first INSERT only."""

    def order(session: Session, what: str) -> None:
        if first == "record":
            eosdb.join(session).publish("orders", what)
        session.execute(text("INSERT INTO shop VALUES (:what)"), {"what": what})
        if first == "row":
            eosdb.join(session).publish("orders", what)

    with sessions() as session:
        order(session, "never")
        session.rollback()
        order(session, "tea")
        session.commit()
    with pytest.raises(ZeroDivisionError), sessions.begin() as session:
        order(session, "never")
        raise ZeroDivisionError
    with sessions.begin() as session:
        order(session, "cups")
        with pytest.raises(ZeroDivisionError), session.begin_nested():
            order(session, "never")
            raise ZeroDivisionError
    assert stored(path) == (["tea", "cups"], ["tea", "cups"])


def test_scoped_sessions_and_connections_of_sqlalchemy_are_joined_too(
    sessions: sessionmaker[Session], path: Path
) -> None:
    scoped = scoped_session(sessions)
    eosdb.join(scoped).publish("orders", "scoped")
    scoped.commit()
    scoped.remove()
    with sessions.kw["bind"].begin() as connection:
        eosdb.join(connection).publish("orders", "connection")
    assert stored(path) == ([], ["scoped", "connection"])
