"""An adopted file between its owner's programs, which use plain sqlite3, and eosdb's."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.admin import summary
from eosdb.store.schema import newest
from tests.readers import committed_values
from tests.store.schema.foreign_files import PLACES, owner, theirs, write

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)
WRITES = 150


@pytest.fixture
def adopted(db_path: Path) -> Path:
    write(db_path, PLACES)
    with eosdb.connect(db_path, adopt=True) as db:
        db.admin.create_topic("t")
    return db_path


def run(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """As a program of the owner's does."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return [row for sql in statements for row in connection.execute(sql).fetchall()]


_OWNER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for i in range(int(sys.argv[2])):
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO moz_historyvisits (place_id) VALUES (1)")
    connection.execute(f"PRAGMA user_version={78 + i}")
    connection.execute("COMMIT")
"""
_PRODUCER = """
import sys, eosdb
with eosdb.connect(sys.argv[1]) as db:
    for i in range(int(sys.argv[2])):
        db.producer().send("t", b"%d" % i).result()
        with db.begin() as tx:
            tx.connection.exec_driver_sql("UPDATE moz_origins SET frecency = frecency + 1")
            tx.publish("t", b"%d too" % i)
"""


@pytest.mark.process
def test_the_owners_program_and_eosdb_write_at_the_same_time(adopted: Path) -> None:
    """Neither knows the other's locks: SQLite's own is between them. Both come to their end."""
    programs = [
        subprocess.Popen([sys.executable, "-c", program, str(adopted), str(WRITES)])
        for program in (_OWNER, _PRODUCER, _OWNER)
    ]
    assert [program.wait(timeout=300) for program in programs] == [0, 0, 0]
    with eosdb.connect(adopted) as db:
        assert db.verify().problems == ()
        assert len(committed_values(db, TP)) == 2 * WRITES
    found = theirs(adopted)
    assert len(found.rows["moz_historyvisits"]) == 2 * WRITES + 1
    assert found.rows["moz_origins"][0][3] == WRITES - 1
    assert found.settings["user_version"] == 77 + WRITES


def test_who_watches_many_files_knows_an_adopted_one(adopted: Path) -> None:
    with eosdb.connect(adopted, read_only=True) as db:
        found = summary.look(adopted)
        assert (found.file_id, found.position) == (db.info()["file_id"], 1)
    os.utime(adopted, (1, 1))  # Nobody has written it for long: it is looked at without locks.
    assert summary.look(adopted) == found


def test_a_newer_adopted_file_is_refused_by_its_tables(adopted: Path) -> None:
    run(adopted, f"UPDATE {newest.ALEMBICS} SET version_num = '0999'")
    with pytest.raises(eosdb.SchemaTooNewError, match="schema 999"):
        eosdb.connect(adopted)
    run(adopted, f"DELETE FROM {newest.ALEMBICS}")
    for read_only in (False, True):
        with pytest.raises(eosdb.CorruptDatabaseError, match=newest.ALEMBICS):
            eosdb.connect(adopted, read_only=read_only)


def test_the_header_is_the_owners_also_through_eosdbs_connections(adopted: Path) -> None:
    from sqlalchemy import text

    with eosdb.connect(adopted) as db:
        with db.begin() as tx:
            tx.connection.execute(text("PRAGMA user_version=78"))
            tx.connection.execute(text("CREATE TABLE more (x)"))
        with db.engine.begin() as connection:
            connection.execute(text("PRAGMA application_id=5"))
            connection.execute(text("INSERT INTO more VALUES (1)"))
            with pytest.raises(eosdb.InvalidRequestError):
                connection.execute(text("PRAGMA journal_mode=DELETE"))
            with pytest.raises(eosdb.InvalidRequestError):
                connection.execute(text("DELETE FROM eosdb_journal"))
    found = theirs(adopted)
    assert (found.settings["user_version"], found.settings["application_id"]) == (78, 5)
    ordinary = adopted.with_name("ordinary.db")
    with (
        eosdb.connect(ordinary) as db,
        db.begin() as tx,
        pytest.raises(eosdb.InvalidRequestError),
    ):
        tx.connection.execute(text("PRAGMA user_version=78"))


def test_a_journal_mode_that_the_owner_switches_back_is_named(adopted: Path) -> None:
    with eosdb.connect(adopted) as db:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            run(adopted, "PRAGMA busy_timeout=0", "PRAGMA journal_mode=DELETE")
        assert db.verify().ok
    run(adopted, "PRAGMA journal_mode=DELETE")
    for adopt in (False, True, "wal"):
        with pytest.raises(eosdb.ReadOnlyDatabaseError, match="PRAGMA journal_mode=WAL"):
            eosdb.connect(adopted, adopt=adopt)
    with eosdb.connect(adopted, read_only=True) as db:
        assert db.verify().ok
    run(adopted, "PRAGMA journal_mode=WAL")
    eosdb.connect(adopted).close()


@pytest.mark.parametrize(
    "statements",
    [
        ("VACUUM", "ANALYZE", "REINDEX"),
        (
            "CREATE TABLE new__meta (key TEXT PRIMARY KEY, value NOT NULL, more)",
            "DROP TABLE moz_meta",
            "ALTER TABLE new__meta RENAME TO moz_meta",
            "ALTER TABLE moz_meta DROP COLUMN more",
        ),
    ],
    ids=["tidies up", "makes a table anew as its migrations do"],
)
def test_the_owner_changes_the_file_while_eosdb_has_it_open(
    adopted: Path, statements: tuple[str, ...]
) -> None:
    with eosdb.connect(adopted) as db:
        db.producer().send("t", b"before").result()
        run(adopted, *statements)
        db.producer().send("t", b"after").result()
        assert (committed_values(db, TP), db.verify().problems) == ([b"before", b"after"], ())


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DROP TABLE topics", "topics: this table of eosdb's is gone"),
        ("DROP VIEW all_records", "all_records: this view of eosdb's is gone"),
    ],
)
def test_verify_says_what_of_eosdbs_the_owner_has_dropped(
    adopted: Path, statement: str, says: str
) -> None:
    run(adopted, statement)
    with eosdb.connect(adopted, read_only=True) as db:
        assert says in db.verify().problems


def test_the_owner_puts_a_backup_of_its_own_over_the_file(adopted: Path) -> None:
    shutil.copy(adopted, backup := adopted.with_name("theirs.bak"))
    with eosdb.connect(adopted) as db:
        db.producer().send("t", b"acknowledged").result()
        os.replace(backup, adopted)
        with pytest.raises(eosdb.StorageError, match="replaced by another file"):
            db.producer().send("t", b"refused").result()


@pytest.mark.process
def test_the_owner_lives_on_when_eosdb_ends_and_the_other_way_round(adopted: Path) -> None:
    with owner(adopted, "SELECT 1") as program:
        with eosdb.connect(adopted) as db:
            program.say("INSERT INTO moz_meta VALUES ('a', 1)")
            db.producer().send("t", b"1").result()
        assert program.say("SELECT count(*) FROM moz_meta") == "[(1,)]"
        db = eosdb.connect(adopted)
        program.process.kill()
        program.process.wait()
        db.producer().send("t", b"2").result()
        db.close()
    with eosdb.connect(adopted) as db:
        assert (committed_values(db, TP), db.verify().problems) == ([b"1", b"2"], ())
