"""`db.begin()`: the user's own tables, records and offsets in one commit, or none of it."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.errors import IllegalStateError, InvalidRequestError
from eosdb.store.schema import newest
from tests.readers import committed_values

TP = TopicPartition("orders", 0)
metadata = MetaData()
orders = Table("orders", metadata, Column("id", Integer, primary_key=True), Column("what", String))


@pytest.fixture
def shop(db: eosdb.Database) -> eosdb.Database:
    db.admin.create_topic("orders")
    with db.begin() as tx:
        metadata.create_all(tx.connection)
    return db


def rows(db: eosdb.Database) -> list[tuple[int, str]]:
    return list(db.query("SELECT id, what FROM orders ORDER BY id").rows)


# -- idempotency keys ---------------------------------------------------------------------------


def test_a_key_is_taken_once_for_all_time(shop: eosdb.Database, db_path: Path) -> None:
    with shop.begin() as tx:
        first = tx.publish("orders", "a", idempotency_key="req-1")
        again = tx.publish("orders", "b", idempotency_key="req-1")
    with shop.begin() as tx:
        later = tx.publish("orders", "c", key="k", idempotency_key="req-1")
    with eosdb.connect(db_path, clock=shop.clock) as other, other.begin() as tx:
        elsewhere = tx.publish("orders", "d", idempotency_key="req-1")
    assert [m.duplicate for m in (first, again, later, elsewhere)] == [False, True, True, True]
    assert {(m.partition, m.offset, m.timestamp) for m in (first, again, later, elsewhere)} == {
        (0, 0, first.timestamp)
    }
    assert committed_values(shop, TP) == [b"a"]


def test_a_key_belongs_to_its_topic_and_goes_with_it(shop: eosdb.Database) -> None:
    shop.admin.create_topic("other")
    with shop.begin() as tx:
        tx.publish("orders", "a", idempotency_key="k")
        assert not tx.publish("other", "a", idempotency_key="k").duplicate
    shop.admin.delete_topic("orders")
    shop.admin.create_topic("orders")
    with shop.begin() as tx:
        assert not tx.publish("orders", "b", idempotency_key="k").duplicate
    assert shop.verify().ok
    shop.rebuild()
    with shop.begin() as tx:
        assert tx.publish("other", "b", idempotency_key="k").duplicate


def test_threads_that_publish_one_key_append_one_record(shop: eosdb.Database) -> None:
    answers: list[bool] = []

    def publish() -> None:
        with shop.begin() as tx:
            answers.append(tx.publish("orders", "x", idempotency_key="k").duplicate)

    threads = [threading.Thread(target=publish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False, *[True] * 7]
    assert committed_values(shop, TP) == [b"x"]


# -- what the block may not do ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM partitions",
        "UPDATE records SET value = x'00'",
        "INSERT INTO counters VALUES ('x', 1)",
        "DROP VIEW committed_records",
        "DROP TABLE topics",
        "CREATE TABLE eosdb_mine (x)",
        "CREATE TABLE IF NOT EXISTS Journal (x)",
        "CREATE TRIGGER t AFTER INSERT ON records BEGIN SELECT 1; END",
        "CREATE INDEX i ON records (value)",
        "ALTER TABLE topics ADD COLUMN x",
        "COMMIT",
        "ROLLBACK",
        "ATTACH ':memory:' AS other",
        "PRAGMA user_version = 7",
        "PRAGMA wal_checkpoint",
        "PRAGMA writable_schema = ON",
    ],
)
def test_what_is_eosdbs_is_not_written_by_users(shop: eosdb.Database, statement: str) -> None:
    with shop.begin() as tx:
        with pytest.raises(InvalidRequestError, match="eosdb's"):
            tx.connection.execute(text(statement))
        tx.publish("orders", "still open")
    if statement not in ("COMMIT", "ROLLBACK", "ATTACH ':memory:' AS other"):
        with pytest.raises(InvalidRequestError), shop.engine.begin() as connection:
            connection.execute(text(statement))
    assert committed_values(shop, TP) == [b"still open"]
    assert shop.verify().ok


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_block_alone_ends_its_transaction(shop: eosdb.Database, end: str) -> None:
    with shop.begin() as tx:
        tx.connection.execute(orders.insert().values(id=1, what="a"))
        with pytest.raises(IllegalStateError, match="ends its transaction itself"):
            getattr(tx.connection, end)()
        tx.publish("orders", "a")
    assert rows(shop) == [(1, "a")]
    assert committed_values(shop, TP) == [b"a"]


def test_the_block_ends_itself_also_after_others_have(shop: eosdb.Database) -> None:
    """The driver keeps eosdb's own statements, which nothing refuses, by their text."""
    for _ in range(2):
        with shop.begin() as tx:
            tx.connection.execute(text("SELECT 1"))
            tx.publish("orders", "a")
            for statement in ("COMMIT", "ROLLBACK TO part", "ROLLBACK TO eosdb_part"):
                with pytest.raises((InvalidRequestError, OperationalError)):
                    tx.connection.execute(text(statement))
    assert committed_values(shop, TP) == [b"a", b"a"]


@pytest.mark.parametrize("how", ["begin_nested", "session"])
def test_a_savepoint_of_the_user_undoes_records_too(shop: eosdb.Database, how: str) -> None:
    def undone(tx: eosdb.UserTransaction, value: str) -> None:
        if how == "begin_nested":
            savepoint = tx.connection.begin_nested()
            tx.publish("orders", value, idempotency_key="k")
            savepoint.rollback()
        else:
            with Session(tx.connection, join_transaction_mode="create_savepoint") as session:
                session.connection()
                tx.publish("orders", value, idempotency_key="k")

    for number in range(2):
        with shop.begin() as tx:
            undone(tx, "never")
            first = tx.publish("orders", f"first {number}")
            undone(tx, "never")
            undone(tx, "never")
            second = tx.publish("orders", f"second {number}")
            tx.commit_offsets("billing", {TP: OffsetAndMetadata(number)})
            undone(tx, "never")
        assert (first.offset, second.offset) == (2 * number, 2 * number + 1)
    assert committed_values(shop, TP) == [b"first 0", b"second 0", b"first 1", b"second 1"]
    assert shop.verify().ok


def test_an_interrupt_within_a_statement_is_no_end(shop: eosdb.Database) -> None:
    """SQLAlchemy gives up a connection on which a signal has raised."""

    class Interrupting:
        def __conform__(self, protocol: object) -> object:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), shop.begin() as tx:
        tx.publish("orders", "never")
        tx.connection.exec_driver_sql("SELECT ?", (Interrupting(),))
    for number in range(2):
        with shop.begin() as tx:
            tx.connection.execute(orders.insert().values(id=number, what="a"))
            tx.publish("orders", "a")
    assert rows(shop) == [(0, "a"), (1, "a")]
    assert committed_values(shop, TP) == [b"a", b"a"]


def test_rows_that_nobody_reads_keep_no_block_from_its_end(shop: eosdb.Database) -> None:
    with shop.begin() as tx:
        tx.connection.execute(orders.insert().values(id=1, what="a"))
        left = tx.connection.execute(text("DELETE FROM orders RETURNING id"))
    del left
    assert rows(shop) == []


def test_a_transaction_is_over_with_its_block(shop: eosdb.Database) -> None:
    with shop.begin() as tx:
        pass
    with pytest.raises(InvalidRequestError, match="is over"):
        tx.publish("orders", "late")
    with pytest.raises(InvalidRequestError, match="is over"):
        _ = tx.connection


def test_a_unit_that_sqlite_has_undone_stores_nothing_more(shop: eosdb.Database) -> None:
    with shop.begin() as tx:
        tx.connection.execute(orders.insert().values(id=1, what="a"))
    with pytest.raises(IllegalStateError, match="rolled back"), shop.begin() as tx:
        tx.publish("orders", "lost")
        tx.connection.execute(orders.insert().values(id=2, what="lost"))
        with pytest.raises(Exception, match="UNIQUE"):
            tx.connection.execute(text("INSERT OR ROLLBACK INTO orders VALUES (1, 'b')"))
        with pytest.raises(IllegalStateError, match="rolled back"):
            tx.connection.execute(orders.insert().values(id=3, what="lost"))
        with pytest.raises(IllegalStateError, match="rolled back"):
            tx.publish("orders", "lost")
    assert rows(shop) == [(1, "a")]
    assert committed_values(shop, TP) == []


def test_a_read_only_database_begins_nothing(shop: eosdb.Database, db_path: Path) -> None:
    with (
        eosdb.connect(db_path, read_only=True) as reader,
        pytest.raises(eosdb.ReadOnlyDatabaseError),
        reader.begin(),
    ):
        pass


# -- beside other tools -------------------------------------------------------------------------


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customers"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


def test_an_orm_session_works_inside(shop: eosdb.Database) -> None:
    with shop.begin() as tx:
        Base.metadata.create_all(tx.connection)
        with Session(tx.connection, join_transaction_mode="create_savepoint") as session:
            session.add(Customer(id=1, name="Ada"))
            session.commit()
            session.add(Customer(id=2, name="undone"))
            session.flush()
            session.rollback()
        tx.publish("orders", "Ada is here")
    with Session(shop.engine) as session:
        assert list(session.scalars(select(Customer.name))) == ["Ada"]
    assert committed_values(shop, TP) == [b"Ada is here"]


def test_what_is_due_is_done_before_a_block(shop: eosdb.Database, clock: eosdb.ManualClock) -> None:
    producer = shop.producer(transactional_id="slow")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", "never")
    producer.flush()
    clock.advance(60_001)
    with shop.begin() as tx:
        tx.publish("orders", "now")
    assert committed_values(shop, TP) == [b"now"]


@pytest.mark.slow
def test_the_users_own_alembic_has_the_common_table_to_itself(
    shop: eosdb.Database, tmp_path: Path, db_path: Path
) -> None:
    from alembic import command
    from alembic.config import Config

    scripts = tmp_path / "alembic"
    (scripts / "versions").mkdir(parents=True)
    (scripts / "env.py").write_text(
        "from alembic import context\n"
        "with context.config.attributes['engine'].begin() as connection:\n"
        "    context.configure(connection=connection)\n"
        "    context.run_migrations()\n"
    )
    (scripts / "versions" / "a1.py").write_text(
        "from alembic import op\nimport sqlalchemy as sa\n"
        "revision = 'a1'\ndown_revision = None\n"
        "def upgrade(): op.create_table('stock', sa.Column('id', sa.Integer, primary_key=True))\n"
        "def downgrade(): op.drop_table('stock')\n"
    )
    config = Config()
    config.set_main_option("script_location", str(scripts))
    config.attributes["engine"] = shop.engine
    command.upgrade(config, "head")
    assert list(shop.query("SELECT version_num FROM alembic_version").rows) == [("a1",)]
    shop.close()
    with eosdb.connect(db_path, clock=shop.clock) as db:
        assert db.verify().ok
        db.rebuild()
        assert list(db.query("SELECT count(*) FROM stock").rows) == [(0,)]
        config.attributes["engine"] = db.engine
        command.downgrade(config, "base")
        assert db.info()["schema_version"] == newest.SCHEMA_VERSION


def test_plain_sqlite_sees_tables_and_records_alike(shop: eosdb.Database, db_path: Path) -> None:
    with shop.begin() as tx:
        tx.connection.execute(orders.insert().values(id=1, what="tea"))
        tx.publish("orders", "1")
    raw = sqlite3.connect(db_path)
    assert raw.execute(
        "SELECT what FROM orders JOIN committed_records ON id = CAST(CAST(value AS TEXT) AS INT)"
    ).fetchall() == [("tea",)]
    raw.close()
