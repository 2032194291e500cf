"""The schema: two ways to it agree, the event tables defend themselves, old files come along."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.store import migrate, schema
from tests.readers import committed_values, dump_state
from tests.tidy.tree import ROOT

TP = TopicPartition("t", 0)


def shape(connection: sqlite3.Connection) -> dict[str, object]:
    """Tables as SQLite itself sees them."""
    tables = connection.execute(
        "SELECT name, wr, strict FROM pragma_table_list WHERE type = 'table' AND schema = 'main'"
    ).fetchall()
    return {
        name: (
            without_rowid,
            strict,
            connection.execute(
                'SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (name,)
            ).fetchall(),
        )
        for name, without_rowid, strict in tables
        if name != "alembic_version" and not name.startswith("sqlite_")
    }


def test_the_revisions_lead_to_what_the_code_says(db_path: Path) -> None:
    from sqlalchemy import create_engine

    eosdb.connect(db_path).close()
    migrated = sqlite3.connect(db_path)
    created = sqlite3.connect(":memory:")
    engine = create_engine("sqlite://", creator=lambda: created)
    schema.metadata.create_all(engine)
    assert shape(migrated) == shape(created)
    engine.dispose()
    migrated.close()
    created.close()


def test_the_newest_revision_is_the_schema_version() -> None:
    revisions = sorted(path.name[:4] for path in (ROOT / "migrations/versions").glob("0*.py"))
    assert int(revisions[-1]) == migrate.SCHEMA_VERSION


@pytest.fixture
def raw(db: eosdb.Database, db_path: Path) -> sqlite3.Connection:
    """A foreign connection to a file with a few records."""
    db.admin.create_topic("t")
    who = db.broker.init_producer_id()
    db.broker.append(TP, RecordBatch([Record(value=b"v")] * 5, *who, 0))
    connection = sqlite3.connect(db_path, isolation_level=None)
    yield connection  # type: ignore[misc]
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE records SET value = X'00'",
        "DELETE FROM records",
        "UPDATE journal SET timestamp = 0",
        "DELETE FROM journal WHERE position = 1",
        "INSERT INTO records SELECT * FROM records LIMIT 1",
        'INSERT INTO records SELECT partition_id, "offset" + 100, timestamp, timestamp_type, key, '
        "value, headers, producer_id, producer_epoch, sequence, sequence_round, is_transactional, "
        "control, position FROM records LIMIT 1",
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
    for view, columns in {
        "committed_records": "offset timestamp producer_id sequence",
        "partition_offsets": "log_end_offset last_stable_offset",
        "journal": "position timestamp",
    }.items():
        types = dict(raw.execute("SELECT name, type FROM pragma_table_info(?)", (view,)))
        assert {types[column] for column in columns.split()} == {"INT"}


def test_a_file_of_the_first_schema_opens_with_its_data(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(ROOT / "tests/data/schema_0001.db", path)
    with eosdb.connect(path, clock=eosdb.ManualClock(1_700_000_100_000)) as db:
        report = db.verify()
        assert report.ok, report.problems
        assert committed_values(db, TopicPartition("orders", 0)) == [b"committed", b"plain"]
        states = {t.transactional_id: t.state for t in db.broker.list_transactions()}
        assert states == {
            "ended": "CompleteCommit", "aborted": "CompleteAbort", "open": "Ongoing",
        }  # fmt: skip
        assert db.broker.offset_fetch("billing")[TopicPartition("orders", 0)].offset == 1


NEXT_REVISION = '''
"""A later schema, for the test."""
from alembic import op
revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
def upgrade() -> None:
    op.execute("ALTER TABLE topics ADD COLUMN colour TEXT")
    op.execute("UPDATE topics SET colour = 'red'")
'''
UPGRADE = """
import sys
from pathlib import Path
from eosdb.store import migrate
import eosdb
migrate.SCHEMA_VERSION = 2
migrate._scripts = lambda: Path(sys.argv[2])
with eosdb.connect(sys.argv[1]) as db:
    print(db.info()["schema_version"], list(db.query("SELECT topic, colour FROM topics").rows))
"""


def test_an_upgrade_keeps_the_data_and_survives_a_kill(tmp_path: Path) -> None:
    scripts, path = tmp_path / "migrations", tmp_path / "old.db"
    shutil.copytree(ROOT / "migrations", scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions/0002_later.py").write_text(NEXT_REVISION)
    shutil.copy(ROOT / "tests/data/schema_0001.db", path)
    before = dump_state(path)

    def upgrade(**environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", UPGRADE, str(path), str(scripts)]
        return subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )

    killed = upgrade(EOSDB_FAILPOINT="migration.applied")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert dump_state(path) == before
    with eosdb.connect(path, read_only=True) as db:
        assert db.info()["schema_version"] == 1
    done = upgrade()
    assert done.stdout.strip() == "2 [('orders', 'red')]", done.stderr
    assert dump_state(path)["records"] == before["records"]
    with pytest.raises(eosdb.SchemaTooNewError):
        eosdb.connect(path)


def test_the_views_have_the_contracts_columns(db: eosdb.Database) -> None:
    contract = (ROOT / "docs/views.md").read_text()
    for view in migrate.views():
        section = contract.split(f"## `{view}`")[1].split("\n## ")[0]
        listed = [n for n in re.findall(r"`([a-z_]+)`", section) if n != view]
        columns = db.query(f"SELECT * FROM {view}").columns
        assert [name for name in listed if name in columns][: len(columns)] == list(columns)
