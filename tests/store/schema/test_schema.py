"""The schema: the event tables defend themselves, and its names are taken."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.store.schema import migrate
from eosdb.store.schema import newest as newest_schema
from eosdb.store.writing.table import Table
from tests.cases import each
from tests.tidy.tree import modules

TP = TopicPartition("t", 0)


def test_every_table_of_the_state_has_the_columns_of_the_schema() -> None:
    created = sqlite3.connect(":memory:")
    newest_schema.create(created)
    rooms = ("eosdb.log.", "eosdb.coordinator.", "eosdb.store.")
    found = (vars(import_module(name)).values() for name in modules() if name.startswith(rooms))
    tables = {table for values in found for table in values if isinstance(table, Table)}
    assert len(tables) >= 18
    for table in tables:
        (name,) = re.findall(r"FROM (\w+)$", table.select)
        columns = {name for _, name, *_ in created.execute(f"PRAGMA table_info({name})")}
        assert set(table.columns.replace('"', "").split(", ")) == columns, name
    created.close()


def test_the_newest_revision_is_the_schema_version() -> None:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(migrate._scripts()))
    assert int(str(scripts.get_current_head())) == newest_schema.SCHEMA_VERSION
    assert len(list(scripts.walk_revisions())) == newest_schema.SCHEMA_VERSION, (
        "one line, no branches"
    )


@pytest.fixture
def raw(db: eosdb.Database, db_path: Path) -> Iterator[sqlite3.Connection]:
    """A foreign connection to a file with a few records."""
    db.admin.create_topic("t")
    who = db.broker.init_producer_id()
    db.broker.append(TP, RecordBatch([Record(value=b"v")] * 5, *who, 0))
    connection = sqlite3.connect(db_path, isolation_level=None)
    yield connection
    connection.close()


@each(
    "statement",
    [
        "UPDATE records SET value = X'00'",
        "DELETE FROM records",
        "UPDATE eosdb_journal SET timestamp = 0",
        "DELETE FROM eosdb_journal WHERE position = 1",
        "INSERT INTO records SELECT * FROM records LIMIT 1",
        'INSERT INTO records SELECT partition_id, "offset" + 100, timestamp, timestamp_type, key, '
        "value, headers, producer_id, producer_epoch, sequence, sequence_round, is_transactional, "
        "control, position, checksum FROM records LIMIT 1",
        "INSERT INTO records (partition_id) VALUES ('text')",
    ],
)
def test_the_event_tables_defend_themselves(raw: sqlite3.Connection, statement: str) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        raw.execute(statement)
    assert raw.execute("SELECT count(*) FROM records").fetchone() == (5,)


def test_64_bit_columns_are_declared_for_readers_that_look_at_types(
    raw: sqlite3.Connection,
) -> None:
    """Of STRICT tables, and of views, which hand on what their tables say."""
    for name, kind, strict in raw.execute(
        "SELECT name, type, strict FROM pragma_table_list WHERE schema = 'main' "
        "AND name NOT LIKE 'sqlite_%' AND name <> 'eosdb_alembic_version'"
    ).fetchall():
        assert strict or kind == "view", name
        columns = raw.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
        narrow = [column for column, declared, _ in columns if declared == "INTEGER"]
        keys = [column for column, _, place in columns if place]
        assert narrow == [] or narrow == keys, f"{name}: SQLite's own row number alone is INTEGER"
    for view, names in {
        "committed_records": "offset timestamp producer_id sequence",
        "partition_offsets": "log_end_offset last_stable_offset",
    }.items():
        types = dict(raw.execute("SELECT name, type FROM pragma_table_info(?)", (view,)))
        assert {types[column] for column in names.split()} == {"INT"}


def test_every_table_and_view_is_out_of_reach_of_the_users_own_sql(
    db: eosdb.Database, raw: sqlite3.Connection
) -> None:
    found = raw.execute(
        "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view') "
        "AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    assert {"records", "groups", "eosdb_file", "all_records"} <= {name for _, name in found}
    with db.engine.connect() as connection:
        for kind, name in found:
            with pytest.raises(eosdb.InvalidRequestError, match="of eosdb's"):
                connection.exec_driver_sql(f'DROP {kind} "{name.upper()}"')
            connection.rollback()


MAKE = """
import sys
import eosdb
with eosdb.connect(sys.argv[1]) as db:
    db.admin.create_topic(sys.argv[2])
"""


@pytest.mark.process
def test_processes_that_make_a_file_at_once(db_path: Path) -> None:
    command = [sys.executable, "-c", MAKE, str(db_path)]
    children = [subprocess.Popen([*command, f"t{i}"]) for i in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    with eosdb.connect(db_path) as db:
        assert db.admin.list_topics() == ["t0", "t1", "t2"]
        assert db.info()["schema_version"] == newest_schema.SCHEMA_VERSION
        assert db.verify().ok


def test_the_views_are_described(db: eosdb.Database) -> None:
    """By the file's own columns, and by the first sentence above each definition."""
    described = {view.name: view for view in db.views()}
    assert list(described) == [*newest_schema.views()]
    for name, view in described.items():
        assert view.columns == db.query(f"SELECT * FROM {name}").columns
    assert described["consumer_offsets"].text == "Each group's committed offsets, and its lag."
    assert described["committed_records"].text == (
        "The records that a read_committed consumer reads: data below the last stable offset that was "
        "not aborted."
    )
    assert described["journal"].columns[:2] == ("position", "kind")
    assert all(re.fullmatch(r"[A-Z][^\n]+\.", view.text) for view in described.values())


def test_every_table_is_an_event_a_lease_the_identity_or_folded(raw: sqlite3.Connection) -> None:
    names = (
        *newest_schema.EVENT_TABLES,
        *newest_schema.LEASE_TABLES,
        newest_schema.IDENTITY_TABLE,
        "eosdb_alembic_version",
    )
    folded = newest_schema.materialized_tables()
    copies = map(newest_schema.in_baseline, folded)
    tables = raw.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    assert sorted((*names, *folded, *copies, newest_schema.BASELINE_TABLE)) == sorted(
        name for (name,) in tables
    )
    assert folded.index("topics") < folded.index("partitions"), "which refers to it"
