"""A user's table that a migration rebuilds keeps its children, as on a plain engine."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, event, text

import eosdb
import eosdb.aio
from eosdb import InvalidRequestError

pytestmark = pytest.mark.slow
TABLES = """
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE shop_order (
    id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer (id) ON DELETE {action}
);
INSERT INTO customer VALUES (1, 'Ada'), (2, 'Bob');
INSERT INTO shop_order VALUES (10, 1), (11, 1), (12, 2);
"""


def by_alembic(connection: Connection) -> None:
    with Operations(MigrationContext.configure(connection)).batch_alter_table("customer") as table:
        table.alter_column("name", nullable=False)


def by_hand(connection: Connection) -> None:
    for statement in (
        "PRAGMA foreign_keys=OFF",
        "CREATE TABLE new (id INTEGER PRIMARY KEY, name TEXT NOT NULL)",
        "INSERT INTO new SELECT * FROM customer",
        "DROP TABLE customer",
        "ALTER TABLE new RENAME TO customer",
        "PRAGMA foreign_key_check",
    ):
        connection.execute(text(statement))


def on_the_engine(db: eosdb.Database, migrate: Callable[[Connection], None]) -> None:
    with db.engine.begin() as connection:
        migrate(connection)


def in_a_block(db: eosdb.Database, migrate: Callable[[Connection], None]) -> None:
    with db.begin() as tx:
        migrate(tx.connection)


def in_a_handler(db: eosdb.Database, migrate: Callable[[Connection], None]) -> None:
    def handle(_: object, tx: eosdb.UserTransaction) -> None:
        migrate(tx.connection)

    eosdb.process(db, "t", handle, group_id="g", until_idle_ms=0)


def in_a_loop(db: eosdb.Database, migrate: Callable[[Connection], None]) -> None:
    async def run() -> None:
        async with eosdb.aio.connect(db.path) as other, other.begin() as tx:
            await tx.run(migrate)

    asyncio.run(run())


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "NO ACTION"])
@pytest.mark.parametrize("migrate", [by_alembic, by_hand])
@pytest.mark.parametrize("place", [on_the_engine, in_a_block, in_a_handler, in_a_loop])
def test_a_table_that_is_rebuilt_keeps_its_children(
    place: Callable[[eosdb.Database, Callable[[Connection], None]], None],
    migrate: Callable[[Connection], None], action: str, db: eosdb.Database, db_path: Path,
) -> None:  # fmt: skip
    db.admin.create_topic("t")
    db.producer().send("t", "1").result()
    own = sqlite3.connect(db_path)
    own.executescript(TABLES.format(action=action))
    place(db, migrate)
    assert own.execute("SELECT count(customer_id) FROM shop_order").fetchone() == (3,)
    assert own.execute("""SELECT "notnull" FROM pragma_table_info('customer')""").fetchall()[1] == (
        1,
    )
    own.close()


def test_who_enforces_foreign_keys_is_not_ignored(db: eosdb.Database) -> None:
    """SQLite ignores the setting within a transaction, and SQLAlchemy begins one before each statement."""
    with (
        db.engine.connect() as connection,
        pytest.raises(InvalidRequestError, match="foreign_keys"),
    ):
        connection.execute(text("PRAGMA foreign_keys=ON"))
    db.engine.dispose()
    event.listen(db.engine, "connect", lambda raw, _: raw.execute("PRAGMA foreign_keys=ON"))
    with db.engine.connect() as connection:
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
        with pytest.raises(InvalidRequestError, match="foreign_keys"):
            connection.execute(text("PRAGMA Foreign_Keys=OFF"))
