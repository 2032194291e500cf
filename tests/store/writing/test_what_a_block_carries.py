"""What a program does to the connection of its block: it neither changes what eosdb's own statements mean
nor reaches the next block (docs/outbox.md has the table)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

import eosdb
import eosdb.aio
from eosdb import InvalidRequestError, TopicPartition, UserTransaction
from eosdb.store.schema import guard
from tests.readers import committed_values
from tests.store.schema.foreign_files import PLACES, write

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)
HIDING = [
    *(f'CREATE TEMP TABLE "{name}" (x)' for name in sorted(guard.own_names())),
    "CREATE TEMP TABLE eosdb_later (x)",
    "CREATE TEMP TABLE Records AS SELECT 1 AS x",
    "CREATE TABLE temp.records (x)",
    "CREATE VIRTUAL TABLE temp.records USING fts5 (x)",
    "CREATE TEMP VIEW records AS SELECT 1 AS x",
    "CREATE VIEW temp.journal AS SELECT 1 AS x",
    *(
        f"CREATE TEMP TRIGGER mine BEFORE {event} ON {table} BEGIN SELECT RAISE(IGNORE); END"
        for event in ("INSERT", "UPDATE", "DELETE")
        for table in ("records", "main.eosdb_journal", "partitions", "eosdb_idempotency_keys")
    ),
    "CREATE TRIGGER temp.mine AFTER INSERT ON records BEGIN DELETE FROM records; END",
    "CREATE TEMP TRIGGER mine INSTEAD OF INSERT ON committed_records BEGIN SELECT 1; END",
]
SETTINGS = [
    "foreign_keys=ON", "recursive_triggers=ON", "query_only=ON", "case_sensitive_like=ON",
    "ignore_check_constraints=ON", "writable_schema=ON", "cell_size_check=ON", "read_uncommitted=ON",
    "journal_mode=DELETE", "locking_mode=EXCLUSIVE", "synchronous=OFF", "temp_store=FILE",
    "legacy_alter_table=ON", "reverse_unordered_selects=ON", "trusted_schema=OFF", "busy_timeout=0",
    "cache_size=1", "count_changes=ON", "full_column_names=ON", "hard_heap_limit=1",
    "analysis_limit=1", "max_page_count=1", "secure_delete=ON", "threads=2", "wal_autocheckpoint=1",
]  # fmt: skip


@pytest.fixture
def shop(request: pytest.FixtureRequest, db_path: Path) -> Iterator[eosdb.Database]:
    is_adopted = getattr(request, "param", "own") == "adopted"
    if is_adopted:
        write(db_path, PLACES)
    with eosdb.connect(db_path, adopt=is_adopted) as db:
        db.admin.create_topic("t")
        with db.begin() as tx:
            tx.connection.execute(text("CREATE TABLE mine (x)"))
        yield db


def driver(tx: UserTransaction) -> sqlite3.Connection:
    found = tx.connection.connection.driver_connection
    assert isinstance(found, sqlite3.Connection)
    return found


def block(db: eosdb.Database, work: Callable[[UserTransaction], object]) -> None:
    """In a block of its own."""
    with db.begin() as tx:
        try:
            work(tx)
        finally:
            tx.publish("t", "stored", idempotency_key=None)


def handler(db: eosdb.Database, work: Callable[[UserTransaction], object]) -> None:
    """In a handler of two parameters."""
    db.admin.create_topic("in", exist_ok=True)
    db.producer().send("in", b"v").result()
    raised = list[BaseException]()

    def handle(record: eosdb.ConsumerRecord, tx: UserTransaction) -> bytes:
        try:
            work(tx)
        except BaseException as error:
            raised.append(error)
        return b"stored"

    eosdb.process(db, "in", handle, "t", group_id="g", until_idle_ms=0)
    for error in raised:
        raise error


def asynchronous(db: eosdb.Database, work: Callable[[UserTransaction], object]) -> None:
    """In a block of an event loop: the statements are given to `tx.run`."""

    class Transaction:
        def __init__(self, connection: Connection) -> None:
            self.connection = connection

    async def scenario() -> None:
        async with eosdb.aio.connect(db.path) as other, other.begin() as tx:
            try:
                await tx.run(lambda connection: work(Transaction(connection)))  # type: ignore[arg-type]
            finally:
                await tx.publish("t", "stored")

    asyncio.run(scenario())


def works(db: eosdb.Database, stored: int) -> None:
    """What was acknowledged is there, and goes on to be."""
    block(db, lambda tx: tx.connection.execute(text("INSERT INTO mine VALUES (1)")))
    assert committed_values(db, TP) == [b"stored"] * (stored + 1)
    assert db.verify().ok


@pytest.mark.parametrize("shop", ["own", "adopted"], indirect=True)
@pytest.mark.parametrize("place", [block, handler, asynchronous])
def test_no_temporary_object_hides_a_table_of_eosdbs(shop: eosdb.Database, place: Any) -> None:
    """0 of 10 acknowledged results were there, and three of three behind a trigger."""

    def hide(tx: UserTransaction) -> None:
        for statement in HIDING:
            with pytest.raises(InvalidRequestError, match="temporary"):
                tx.connection.execute(text(statement))
        with pytest.raises(InvalidRequestError, match="temporary"):
            tx.connection.execute(text("CREATE TEMP TABLE harmless (x)"))
            tx.connection.execute(text("ALTER TABLE harmless RENAME TO records"))

    place(shop, hide)
    works(shop, 1)


def test_the_engine_refuses_them_too(shop: eosdb.Database) -> None:
    for statement in HIDING:
        with pytest.raises(InvalidRequestError), shop.engine.begin() as connection:
            connection.execute(text(statement))
    works(shop, 0)


@pytest.mark.parametrize("shop", ["own", "adopted"], indirect=True)
@pytest.mark.parametrize("place", [block, handler, asynchronous])
def test_settings_of_the_connection_are_not_set(shop: eosdb.Database, place: Any) -> None:
    def set_all(tx: UserTransaction) -> None:
        for setting in SETTINGS:
            with pytest.raises(InvalidRequestError, match="a setting"):
                tx.connection.execute(text(f"PRAGMA {setting}"))
        for statement in ("ATTACH ':memory:' AS records", "DETACH main"):
            with pytest.raises(InvalidRequestError):
                tx.connection.execute(text(statement))
        for question in ("table_info(mine)", "foreign_keys", "quick_check(1)", "data_version"):
            assert tx.connection.execute(text(f"PRAGMA {question}")).all()

    place(shop, set_all)
    works(shop, 1)


def test_foreign_keys_may_be_deferred_until_the_block_ends(shop: eosdb.Database) -> None:
    with shop.begin() as tx:
        tx.connection.execute(text("PRAGMA defer_foreign_keys=ON"))
        tx.publish("t", "stored")
    with shop.begin() as tx:
        assert tx.connection.execute(text("PRAGMA defer_foreign_keys")).all() == [(0,)]
    works(shop, 1)


# -- what is done to the driver's connection ------------------------------------------------------


def _nothing(*_: object) -> None: ...


class Sum:
    def step(self, *_: object) -> None: ...

    def finalize(self) -> int:
        return 0


REFUSED: dict[str, Callable[[sqlite3.Connection], object]] = {
    "authorizer": lambda raw: raw.set_authorizer(None),
    "limit": lambda raw: raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10),
    "isolation level": lambda raw: setattr(raw, "isolation_level", "DEFERRED"),
    "deserialize": lambda raw: raw.deserialize(b""),
    "close": lambda raw: raw.close(),
    "blob": lambda raw: raw.blobopen("records", "value", 1),
    "json": lambda raw: raw.create_function("json", 1, _nothing),
    "coalesce": lambda raw: raw.create_function("COALESCE", -1, _nothing),
    "hex by name": lambda raw: raw.create_function(name="hex", narg=1, func=_nothing),
    "max": lambda raw: raw.create_aggregate("max", 1, Sum),
    "collation": lambda raw: raw.create_collation("binary", lambda *_: 0),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_change_eosdbs_own_statements_is_refused(
    shop: eosdb.Database, what: str
) -> None:
    def do(tx: UserTransaction) -> None:
        tx.publish("t", "stored")
        with pytest.raises(InvalidRequestError, match="own statements run on it"):
            REFUSED[what](driver(tx))
        with pytest.raises((InvalidRequestError, sqlite3.DatabaseError), match=r"eosdb|authorized"):
            driver(tx).execute("DELETE FROM records")

    block(shop, do)
    works(shop, 2)


UNDONE: dict[str, Callable[[sqlite3.Connection], object]] = {
    "function": lambda raw: raw.create_function("twice", 1, lambda x: 2 * x),
    "aggregate": lambda raw: raw.create_aggregate("twice", 1, Sum),
    "collation": lambda raw: raw.create_collation("twice", lambda *_: 0),
    "trace": lambda raw: raw.set_trace_callback(_nothing),
    "progress": lambda raw: raw.set_progress_handler(_nothing, 1_000_000),
    "rows": lambda raw: setattr(raw, "row_factory", lambda _, row: dict(enumerate(row))),
    "text": lambda raw: setattr(raw, "text_factory", bytes),
    "temporary table": lambda raw: raw.execute("CREATE TEMP TABLE scratch (x)"),
    "temporary view": lambda raw: raw.execute("CREATE TEMP VIEW scratch AS SELECT 1"),
    "temporary trigger": lambda raw: raw.execute(
        "CREATE TEMP TRIGGER scratch AFTER INSERT ON mine BEGIN SELECT RAISE(IGNORE); END"
    ),
}


@pytest.mark.parametrize("what", UNDONE)
@pytest.mark.parametrize("fails", [False, True])
def test_what_is_the_programs_own_ends_with_its_block(
    shop: eosdb.Database, what: str, fails: bool
) -> None:
    """Within the block it holds, and eosdb's statements do not mind; the next block has a connection that
    nobody has touched. (What is undone with its block may be on the same one.)"""
    with contextlib.suppress(ZeroDivisionError), shop.begin() as tx:
        touched = driver(tx)
        UNDONE[what](touched)
        assert tx.publish("t", "stored", idempotency_key="one").offset == 0
        assert tx.publish("t", "stored", idempotency_key="one").duplicate
        if fails:
            raise ZeroDivisionError
    with shop.begin() as tx:
        assert driver(tx) is not touched
        assert driver(tx).execute("SELECT 'a'").fetchone() == ("a",)
        assert not driver(tx).execute("SELECT name FROM sqlite_temp_master").fetchall()
    works(shop, int(not fails))


def test_a_progress_handler_interrupts_the_programs_statements_and_none_of_eosdbs(
    shop: eosdb.Database,
) -> None:
    """The error of the interrupted ROLLBACK was sqlite3's own."""
    with pytest.raises(OperationalError, match="interrupted"), shop.begin() as tx:
        driver(tx).set_progress_handler(lambda: 1, 1)
        tx.publish("t", "undone")
        tx.connection.execute(text("INSERT INTO mine VALUES (2)"))
    with shop.begin() as tx:
        driver(tx).set_progress_handler(lambda: 1, 1)
        tx.publish("t", "stored")
    works(shop, 1)


def test_an_untouched_connection_serves_block_after_block(shop: eosdb.Database) -> None:
    """Opening one takes longer than a small block."""
    found = set()
    for _ in range(3):
        with shop.begin() as tx:
            found.add(id(driver(tx)))
            tx.connection.execute(text("INSERT INTO mine VALUES (1)"))
    assert len(found) == 1


def test_who_keeps_the_connection_beyond_the_block_is_refused_the_same(
    shop: eosdb.Database,
) -> None:
    with shop.begin() as tx:
        kept = driver(tx)
        tx.publish("t", "stored")
    for statement in ("DELETE FROM records", "CREATE TEMP TABLE records (x)", "BEGIN"):
        with pytest.raises(sqlite3.DatabaseError, match="authorized"):
            kept.execute(statement)
    works(shop, 1)


def test_a_handler_finds_no_temporary_object_of_the_record_before(shop: eosdb.Database) -> None:
    """One unit holds many records; each attempt is its own."""
    shop.admin.create_topic("in")
    for value in (b"1", b"2", b"3"):
        shop.producer().send("in", value).result()

    def handle(record: eosdb.ConsumerRecord, tx: UserTransaction) -> bytes:
        tx.connection.execute(text("CREATE TEMP TABLE scratch (x)"))
        tx.connection.execute(text("CREATE TEMP VIEW seen AS SELECT * FROM scratch"))
        assert driver(tx).row_factory is None
        driver(tx).row_factory = sqlite3.Row
        return b"stored"

    eosdb.process(shop, "in", handle, "t", group_id="g", until_idle_ms=0, max_attempts=1)
    works(shop, 3)
