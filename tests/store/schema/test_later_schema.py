"""The way from 1.0 to 1.1: a planted revision 0002 (later.py) upgrades a file of schema 1, and the program
of 1.0 refuses or reads the file as its `read_version` says (decision 72)."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.model.failpoints import Failpoint
from eosdb.store.schema.newest import SCHEMA_VERSION
from tests.readers import committed_values, dump_state
from tests.store.schema.foreign_files import theirs
from tests.store.schema.later import LATER, NAME, REVISION, UPGRADED, Old, make_package

pytestmark = [pytest.mark.process, pytest.mark.real_start, pytest.mark.slow]

ORDERS = TopicPartition("orders", 0)
AT_ONCE = "{'config': eosdb.BrokerConfig(lock_timeout_ms=1)}"
WORK = """
"new" in db.admin.list_topics() or db.admin.create_topic("new")
with db.producer(transactional_id="ended") as producer:
    producer.init_transactions()
    with producer.transaction():
        producer.send("orders", "of 1.1")
        producer.send("new", "of 1.1")
db.take_snapshot()
db.rebuild()
db.backup(sys.argv[1] + ".backup")
print([tuple(row) for row in db.query("SELECT DISTINCT colour FROM topics").all()], db.verify().problems)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_package(tmp_path_factory.mktemp("later"))


@pytest.fixture
def old(tmp_path: Path, package: Path) -> Old:
    return Old(tmp_path, package)


def test_an_upgrade_keeps_the_data_and_the_later_program_goes_on(old: Old) -> None:
    assert old.upgrade() == (0, [UPGRADED], "")
    after = dump_state(old.path)
    for table in ("records", "eosdb_journal", "group_offsets", "transactional_ids", "snapshots"):
        assert after[table] == old.before[table]
    for read_only in (False, True):
        with pytest.raises(eosdb.SchemaTooNewError, match=r"eosdb 1\.7 and later.*upgrade eosdb$"):
            eosdb.connect(old.path, read_only=read_only)
    assert dump_state(old.path) == after
    assert old.upgrade(then=WORK) == (0, [UPGRADED, "[('red',)] ()"], "")


def test_a_new_file_of_the_later_program_has_the_schema_of_an_upgraded_one(old: Old) -> None:
    old.upgrade()
    schema = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT IN ('typed') ORDER BY 1, 2"
    with closing(sqlite3.connect(old.path)) as connection:
        upgraded = connection.execute(schema).fetchall()
    old.path.unlink()
    assert old.upgrade() == (0, [f"{LATER} [] ()"], "")
    with closing(sqlite3.connect(old.path)) as connection:
        assert connection.execute(schema).fetchall() == upgraded


@pytest.mark.parametrize(
    "point",
    [
        Failpoint.MIGRATION_APPLIED,
        Failpoint.APPEND_RECORDED,
        Failpoint.APPEND_UNCOMMITTED,
        Failpoint.UNIT_COMMITTED,
        Failpoint.END_TXN_DECIDED,
        Failpoint.MARKER_WRITTEN,
        Failpoint.SNAPSHOT_WRITTEN,
        Failpoint.REBUILD_CLEARED,
        Failpoint.COPY_WRITTEN,
    ],
)
def test_an_upgrade_and_what_follows_survive_a_kill(old: Old, point: Failpoint) -> None:
    status, _, errors = old.upgrade(then=WORK, EOSDB_FAILPOINT=point.value)
    assert status == -signal.SIGKILL, errors
    if point is Failpoint.MIGRATION_APPLIED:
        old.check_unchanged()
    else:
        with pytest.raises(eosdb.SchemaTooNewError):
            eosdb.connect(old.path)
    assert old.upgrade(then=WORK)[:2] == (0, [UPGRADED, "[('red',)] ()"])


def test_a_newer_schema_that_says_so_is_read_by_an_older_eosdb_and_by_nothing_else_used(
    old: Old,
) -> None:
    assert old.upgrade(READ_VERSION=str(SCHEMA_VERSION)) == (0, [UPGRADED], "")
    with pytest.raises(eosdb.SchemaTooNewError, match=r"eosdb 1\.7.*read_only=True"):
        eosdb.connect(old.path)
    content = old.path.read_bytes()
    with eosdb.connect(old.path, read_only=True) as db:
        assert db.info()["schema_version"] == LATER
        assert committed_values(db, ORDERS) == [b"committed", b"plain"]
        assert db.broker.offset_fetch("billing")[ORDERS].offset == 1
        with pytest.raises(eosdb.SchemaTooNewError, match=r"to verify.*upgrade eosdb to 1\.7"):
            db.verify()
        with pytest.raises(eosdb.SchemaTooNewError, match="to verify, rebuild or restore"):
            db.restore_to(old.path.with_name("restored.db"), position=100)
    assert old.path.read_bytes() == content
    assert not old.path.with_name("restored.db").exists()


@pytest.mark.parametrize("options", ["{'migrate': False}", "{'read_only': True}"])
def test_an_old_file_is_not_upgraded_unasked(old: Old, options: str) -> None:
    content = old.path.read_bytes()
    status, (said,), errors = old.upgrade(options)
    assert (status, errors) == (0, "")
    assert said.startswith("SchemaOutOfDateError: ")
    assert f"schema {SCHEMA_VERSION}, this eosdb writes {LATER}; neither" in said
    assert "nor a command that only reads upgrades it. Run `eosdb backup`" in said
    assert old.path.read_bytes() == content


def test_an_upgrade_that_fails_changes_nothing(old: Old, tmp_path: Path) -> None:
    sound, old.package = old.package, tmp_path / "failing"
    shutil.copytree(sound, old.package)
    failing = old.package / f"eosdb/{NAME}.py"
    failing.write_text(REVISION + "    execute('UPDATE no_such_table SET x = 1')\n")
    status, _, errors = old.upgrade()
    assert status == 1
    assert "no_such_table" in errors
    old.check_unchanged()
    old.package = sound
    assert old.upgrade() == (0, [UPGRADED], "")


def test_a_published_copy_of_an_earlier_schema_is_refused_with_a_way_to_read_it(old: Old) -> None:
    with closing(sqlite3.connect(old.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    _, (said,), _ = old.upgrade("{'read_only': True}")
    assert said.startswith("SchemaOutOfDateError: ")
    assert "journal_mode=WAL" in said
    with closing(sqlite3.connect(old.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    assert old.upgrade() == (0, [UPGRADED], "")


def test_an_older_adopted_file_is_upgraded_and_its_header_left_alone(old: Old) -> None:
    with closing(sqlite3.connect(old.path, isolation_level=None)) as connection:
        for statement in (
            "PRAGMA auto_vacuum=FULL", "VACUUM", "CREATE TABLE own (x)",
            "CREATE VIEW broken AS SELECT * FROM gone", "PRAGMA user_version=4711",
            "PRAGMA application_id=12",
        ):  # fmt: skip
            connection.execute(statement)
    before = theirs(old.path)
    assert before.settings["auto_vacuum"] == 1
    _, (said,), _ = old.upgrade("{'migrate': False}")
    assert f"has schema {SCHEMA_VERSION}, this" in said
    assert old.upgrade() == (0, [UPGRADED], "")
    assert theirs(old.path) == before


# -- beside others: who has the file open with the earlier schema would go on with that -----------

HOLD = """
import sqlite3, sys
import eosdb
{opened}
print("open", flush=True)
sys.stdin.readline()
"""
HOLDERS = {
    "a writer": "db = eosdb.connect(sys.argv[1])",
    "a reader": "db = eosdb.connect(sys.argv[1], read_only=True); db.query('SELECT 1 FROM topics')",
    "another program": "db = sqlite3.connect(sys.argv[1]); db.execute('SELECT * FROM topics')",
}


def hold(path: Path, how: str) -> subprocess.Popen[str]:
    """A process that has the file open until it is told something."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(opened=HOLDERS[how]), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    return child


@pytest.mark.parametrize("how", HOLDERS)
def test_it_is_refused_while_somebody_has_the_file_open_who_is_named(old: Old, how: str) -> None:
    with hold(old.path, how) as holder:
        _, (said,), _ = old.upgrade(AT_ONCE)
        assert said.startswith("DatabaseLockedError: ")
        assert f"has schema {SCHEMA_VERSION} and is open in process {holder.pid} (" in said
        assert "nothing was changed" in said
        old.check_unchanged()
        holder.communicate("end")
    assert old.upgrade() == (0, [UPGRADED], "")


def test_who_had_no_connection_while_it_was_upgraded_is_told(old: Old) -> None:
    """As around a fork, when a process closes all of them; it may be long before it opens one again."""
    with eosdb.connect(old.path) as db:
        assert db._store.pause(5)
        assert old.upgrade() == (0, [UPGRADED], "")
        db._store.go_on()
        for ask in (
            lambda: db.admin.create_topic("new"),
            lambda: db.begin().__enter__(),
            db.info,
            lambda: db.producer().send("orders", b"v").result(),
        ):
            with pytest.raises(eosdb.SchemaTooNewError, match="nothing was written"):
                ask()
        after = dump_state(old.path)
    assert old.upgrade() == (0, [UPGRADED], "")
    assert dump_state(old.path) == after, "nor was anything written by its closing"


def test_processes_that_upgrade_at_once(old: Old) -> None:
    for child in [old.start() for _ in range(3)]:
        output, errors = child.communicate()
        assert output.strip() == UPGRADED, errors


def test_a_program_that_is_just_closing_the_file_is_waited_for(old: Old) -> None:
    waits = "{'config': eosdb.BrokerConfig(lock_timeout_ms=600_000)}"
    with hold(old.path, "another program") as holder:
        child = old.start(waits, ALONE_WITHIN_MS="600000")
        assert holder.stdin is not None
        holder.stdin.write("end\n")
        holder.stdin.flush()
        output, errors = child.communicate()
    assert output.strip() == UPGRADED, errors
