"""`verify` finds whichever row of whichever table is altered, deleted, inserted or exchanged with another.

Triggers are off, and checksums stay as they are, as damage and strange programs leave them. A row of the
baseline is changed in the strongest way: the tables are folded from it anew, so that nothing differs.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.coordinator.projection import apply
from eosdb.maintenance import replay
from eosdb.model.requests import ConsumerGroupHeartbeat
from eosdb.store import baseline
from eosdb.store.schema import file_id
from eosdb.store.schema.newest import BASELINE_TABLE, in_baseline, newest_schema
from eosdb.store.writing.unit import Unit
from tests.maintenance import everything
from tests.maintenance.everything import TP
from tests.maintenance.test_every_column import alter, problems

pytestmark = pytest.mark.slow

START_MS = 1_700_000_000_000
TABLES = [found.table for found in newest_schema() if found.type == "table"]
OF_ONE_ROW = ("eosdb_alembic_version", "eosdb_file", "eosdb_baseline")
UNSEEN = {
    # A lease: the next program that writes begins it anew, and no history depends on it.
    ("group_sessions", "delete"),
    *((table, "exchange") for table in OF_ONE_ROW),
}
"""What no reader can find, each with its reason."""
ALSO_UNIQUE = {"topics": ["topic"], "partitions": ["topic"], "records": ["producer_id"]}
ALSO_UNIQUE |= {in_baseline(name): columns for name, columns in ALSO_UNIQUE.items()}


def fill(path: Path) -> None:
    """Two rows at least in every table that can have two, most of which the baseline has already."""
    clock = ManualClock(START_MS)
    everything.begin_a_life(path, clock)
    everything.fill(path, clock, values=7)
    everything.move(path, file_id.COPIED)  # The next writer begins another life.
    config = eosdb.BrokerConfig(
        history_retention_ms=0, log_retention_check_interval_ms=10**12, super_users="User:ANONYMOUS"
    )
    with eosdb.connect(path, clock=clock, durability="off", config=config) as db:
        for number, name in enumerate(("one", "two")):
            db.append_once(name, 1, {TP: [Record(value=b"of a sink")]}, held=[name])
            db.admin.create_view(f"view_{name}", "t", {name: "TEXT"})
            db.admin.alter_group_config(name, {"consumer.session.timeout.ms": 50_000 + number})
            db.producer().send("c", None, key=f"gone {name}").result()
            with db.begin() as tx:
                tx.publish("t", b"once", partition=1, idempotency_key=name)
            db.broker.offset_commit(name, {TP: OffsetAndMetadata(3)})
            me = db.broker.init_producer_id(name, 900_000)
            batch = RecordBatch([Record(value=b"open", timestamp=clock.time_ms())], *me, 0, True)
            db.broker.append(TopicPartition("t", 1), batch, transactional_id=name)
            db.broker.txn_offset_commit(name, name, *me, {TP: OffsetAndMetadata(7)})
            member = ConsumerGroupHeartbeat(name,
                member_id=name, rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions={}
            )  # fmt: skip
            db.broker.ask(member)
            db.admin.set_password(name, "secret")
        for size in (40_000, 50_000, 60_000):
            clock.advance(1)
            batch = RecordBatch([Record(value=bytes(size), timestamp=clock.time_ms())])
            db.broker.append(TP, batch)
        for name, operation in (("User:a", "read"), ("User:b", "write")):
            db.admin.create_acls([eosdb.Acl(name, operation, "topic", name)])
        db.take_snapshot()
        for _ in range(2):
            clock.advance(1_000)
            db.housekeeping()
            db.producer().send("c", b"newer", key="k").result()
        assert db.verify().ok
        db.abandon()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("tables") / "all.db"
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


@pytest.fixture
def path(filled: bytes, tmp_path: Path) -> Path:
    (tmp_path / "copy.db").write_bytes(filled)
    return tmp_path / "copy.db"


class Table:
    """A table whose rows are changed behind eosdb's back."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self.connection, self.name = connection, name
        rows = connection.execute(f'PRAGMA table_info("{name}")').fetchall()
        self.columns = [f'"{column}"' for _, column, *_ in rows]
        self.key = [f'"{column}"' for _, column, *_, key in rows if key]
        if name == "records":
            self.key = ["partition_id", '"offset"']

    def where(self, names: list[str]) -> str:
        return " AND ".join(f"{name} IS ?" for name in names)

    def rows(self) -> list[tuple[object, ...]]:
        return self.connection.execute(
            f'SELECT {", ".join(self.columns)} FROM "{self.name}" ORDER BY {", ".join(self.key)}'
        ).fetchall()

    def alter(self) -> None:
        others = [name for name in self.columns if name not in (*self.key, '"checksum"')]
        alter(self.connection, self.name, (others or self.key)[-1].strip('"'), "true")

    def delete(self) -> None:
        where = self.where(self.columns)
        self.connection.execute(f'DELETE FROM "{self.name}" WHERE {where}', self.rows()[0])

    def insert(self) -> None:
        """A copy of the first row, with another key."""
        self.connection.execute(f'CREATE TEMP TABLE copied AS SELECT * FROM "{self.name}" LIMIT 1')
        key = self.key[-1]
        if isinstance(self.rows()[0][self.columns.index(key)], int):
            self.connection.execute(f"UPDATE copied SET {key} = {key} + 1000003")
        else:
            alter(self.connection, "copied", key.strip('"'), "true")
        for column in ALSO_UNIQUE.get(self.name, ()):
            alter(self.connection, "copied", column, "true")
        self.connection.execute(f'INSERT INTO "{self.name}" SELECT * FROM copied')

    def exchange(self) -> None:
        """All but the keys of the first two rows that differ there; where all is key, its second column."""
        free = [name for name in self.columns if name not in (*self.key, '"checksum"')]
        free = [*(free or self.key[1:2]), '"checksum"']
        at = {self.columns.index(name) for name in free[:-1]}
        first, *others = self.rows()
        second = next(row for row in others if any(row[i] != first[i] for i in at))
        self.connection.execute("PRAGMA foreign_keys=0")
        for row in (first, second):
            where = self.where(self.columns)
            self.connection.execute(f'DELETE FROM "{self.name}" WHERE {where}', row)
        places = ", ".join("?" * len(self.columns))
        for row, other in ((first, second), (second, first)):
            mixed = [other[i] if name in free else row[i] for i, name in enumerate(self.columns)]
            self.connection.execute(f'INSERT INTO "{self.name}" VALUES ({places})', mixed)


CHANGES: dict[str, Callable[[Table], None]] = {
    "alter": Table.alter,
    "delete": Table.delete,
    "insert": Table.insert,
    "exchange": Table.exchange,
}


def fold_anew(connection: sqlite3.Connection) -> None:
    """Make the tables what the damaged baseline and the events give, if anything can be made of it."""
    connection.execute("BEGIN")
    try:
        with mock.patch.object(baseline, "check_sound"):
            replay.rebuild(Unit(connection, apply))
    except (eosdb.EosdbError, sqlite3.Error):
        connection.execute("ROLLBACK")
    else:
        connection.execute("COMMIT")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("table", TABLES)
def test_verify_finds_what_happened_to_a_row(path: Path, table: str, change: str) -> None:
    with everything.changing(path) as connection:
        changed = Table(connection, table)
        before = changed.rows()
        if (table, change) in UNSEEN:
            assert before
            return
        assert len(before) >= 2 or change != "exchange", before
        CHANGES[change](changed)
        assert changed.rows() != before
        if table.startswith(BASELINE_TABLE) and table != BASELINE_TABLE:
            fold_anew(connection)
    assert problems(path), (table, change)


@pytest.mark.parametrize("name", [found.name for found in newest_schema() if found.type != "table"])
def test_verify_finds_what_is_missing_or_changed_of_the_schema_and_rebuild_makes_it_again(
    path: Path, name: str
) -> None:
    (made,) = [found for found in newest_schema() if found.name == name]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"DROP {made.type} {name}")
    assert f"{name}: this {made.type} of eosdb's is gone" in problems(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(re.sub(r"\b(SELECT|ON)\b", r"\1 ", made.sql, count=1))
    assert f"{name}: this {made.type} is not as eosdb makes it" in problems(path)
    with eosdb.connect(path) as db:
        db.rebuild()
    assert problems(path) == ()
