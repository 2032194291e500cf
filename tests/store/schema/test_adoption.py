"""Another application's file: adopted in one commit, or left as it is, byte for byte."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.integrations import publishing
from eosdb.model.failpoints import Failpoint
from eosdb.store.schema import adoption
from tests.programs import ended
from tests.readers import committed_values
from tests.store.schema.foreign_files import (
    ACCEPTED,
    PLACES,
    Foreign,
    folder_of,
    owner,
    theirs,
    write,
)

pytestmark = pytest.mark.process


@pytest.mark.parametrize("foreign", ACCEPTED.values(), ids=ACCEPTED)
def test_an_adopted_file_does_everything_and_stays_its_owners(
    db_path: Path, foreign: Foreign
) -> None:
    foreign.make(db_path)
    before = theirs(db_path)
    eosdb.connect(db_path, adopt=True).close()
    assert theirs(db_path) == before, "adoption adds"
    with eosdb.connect(db_path) as db:  # Known by its tables from now on.
        db.admin.create_topic("outbox")
        with db.begin() as tx:
            tx.connection.exec_driver_sql(foreign.write)
            tx.publish("outbox", b"in the same commit")
        with pytest.raises(ZeroDivisionError), db.begin() as tx:
            tx.connection.exec_driver_sql(foreign.write)
            tx.publish("outbox", b"never")
            raise ZeroDivisionError
        db.producer().send("outbox", b"by a producer").result()
        written = theirs(db_path)
        assert written.schema == before.schema
        assert [len(rows) for rows in written.rows.values()] != [
            len(rows) for rows in before.rows.values()
        ]
        assert db.verify().problems == ()
        db.rebuild()
        db.housekeeping()
        db.compact()
        db.admin.stats()
        copies = [db_path.parent / name for name in ("backup.db", "restored.db", "published.db")]
        db.backup(copies[0])
        db.restore_to(copies[1], position=db.info()["journal_position"])  # type: ignore[arg-type]
        db.publish_copy(f"file://{db_path.parent / 'storage'}")
    values = [b"in the same commit", b"by a producer"]
    publishing.fetch(f"file://{db_path.parent / 'storage'}", copies[2])
    for path in (db_path, *copies):
        with eosdb.connect(path, read_only=True) as db:
            assert (db.verify().ok, committed_values(db, TopicPartition("outbox", 0))) == (
                True,
                values,
            )
            assert db.info()["schema_version"] == eosdb.connect(":memory:").info()["schema_version"]
        assert theirs(path) == written, path.name


def utf_16(path: Path) -> None:
    write(path, "CREATE TABLE a (b)", before="PRAGMA encoding='UTF-16le'")


def collisions(path: Path) -> None:
    write(
        path,
        "CREATE TABLE Topics (x); CREATE VIEW committed_records AS SELECT 1; "
        "CREATE INDEX records_offset ON Topics (x); CREATE TABLE eosdb_mine (x); "
        "CREATE TRIGGER JOURNAL AFTER INSERT ON Topics BEGIN SELECT 1; END; "
        "CREATE TABLE child (x REFERENCES partitions (partition_id) ON DELETE CASCADE)",
    )


def damaged(path: Path) -> None:
    write(path, "CREATE TABLE a (b PRIMARY KEY); INSERT INTO a VALUES (1)")
    data = bytearray(path.read_bytes())
    data[4096] ^= 0x07  # What kind of page the table's root is.
    path.write_bytes(data)


def hot_journal(path: Path) -> None:
    """Its program was killed in the middle of a transaction that had reached the file."""
    write(path, PLACES, mode="DELETE")
    with owner(path, "PRAGMA cache_size=1; BEGIN; CREATE TABLE big (x)") as program:
        program.say(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) "
            "INSERT INTO big SELECT randomblob(500) FROM n"
        )
        program.process.kill()
        program.process.wait()
    assert Path(f"{path}-journal").stat().st_size > 512


def killed_and_copied(path: Path) -> None:
    with owner(path, f"PRAGMA journal_mode=WAL; {PLACES}") as program:
        program.process.kill()
        program.process.wait()
    Path(f"{path}-shm").unlink()


REFUSED: dict[str, tuple[Callable[[Path], object], type[eosdb.EosdbError], tuple[str, ...]]] = {
    "rollback journal": (
        lambda path: write(path, PLACES, mode="DELETE"),
        eosdb.NotAnEosdbFileError,
        ("rollback-journal mode", "PRAGMA journal_mode=WAL", "eosdb init --adopt --wal"),
    ),
    "hot journal": (hot_journal, eosdb.StorageError, ("-journal", "own program")),
    "log without its index": (killed_and_copied, eosdb.StorageError, ("-wal", "own program")),
    "UTF-16": (utf_16, eosdb.NotAnEosdbFileError, ("UTF-16le", "UTF-8")),
    "collisions": (
        collisions,
        eosdb.NotAnEosdbFileError,
        (
            "table 'Topics'",
            "view 'committed_records'",
            "index 'records_offset'",
            "trigger 'JOURNAL'",
            "table 'eosdb_mine'",
            "table 'child'",
        ),
    ),
    "damaged": (damaged, eosdb.CorruptDatabaseError, ("damaged", "nothing was changed")),
    "text": (
        lambda path: path.write_text("hello" * 1000),
        eosdb.NotAnEosdbFileError,
        ("not a SQLite database",),
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_file_that_is_refused_is_left_as_it_is_byte_for_byte(db_path: Path, why: str) -> None:
    make, error, says = REFUSED[why]
    make(db_path)
    before = folder_of(db_path)
    with pytest.raises(error) as raised:
        eosdb.connect(db_path, adopt=True)
    assert folder_of(db_path) == before
    for text in (str(db_path), *says):
        assert text in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_program_of_the_owners_may_be_writing_meanwhile(db_path: Path, is_refused: bool) -> None:
    """What it has committed is in its log alone."""
    more = "CREATE TABLE journal (x);" if is_refused else ""
    with owner(db_path, f"PRAGMA journal_mode=WAL; {PLACES} {more}") as program:
        before = folder_of(db_path)
        assert b"moz_places" not in before[db_path.name][0]
        if is_refused:
            with pytest.raises(eosdb.NotAnEosdbFileError, match="table 'journal'"):
                eosdb.connect(db_path, adopt=True)
            assert folder_of(db_path) == before
            return
        with eosdb.connect(db_path, adopt=True) as db:
            db.admin.create_topic("t")
            assert program.say("INSERT INTO moz_historyvisits (place_id) VALUES (1)") == "[]"
            assert db.verify().ok
            assert list(db.query("SELECT visit_count FROM moz_places").rows) == [(2,)]


def test_who_holds_the_write_lock_is_waited_for_and_then_named(db_path: Path) -> None:
    write(db_path, PLACES)
    config = eosdb.BrokerConfig(lock_timeout_ms=100)
    with owner(db_path, "BEGIN IMMEDIATE; INSERT INTO moz_meta VALUES ('a', 'b')") as program:
        before = folder_of(db_path)
        with pytest.raises(
            eosdb.DatabaseLockedError,
            match=r"neither read nor written.* held by process",
        ):
            eosdb.connect(db_path, adopt=True, config=config)
        assert folder_of(db_path) == before
        program.say("COMMIT")
        eosdb.connect(db_path, adopt=True, config=config).close()


def test_a_transaction_in_a_rollback_journal_is_waited_for(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers of a server start: one creates its tables while the other one adopts."""
    write(db_path, PLACES, mode="DELETE")
    short = eosdb.BrokerConfig(lock_timeout_ms=100)
    with owner(db_path, "PRAGMA cache_size=1; BEGIN; CREATE TABLE big (x)") as program:
        program.say(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) "
            "INSERT INTO big SELECT randomblob(500) FROM n"
        )
        with pytest.raises(eosdb.StorageError, match="a program is writing"):
            eosdb.connect(db_path, adopt="wal", config=short)
        pauses = itertools.count(1)

        def pause(ms: int) -> None:
            if next(pauses) == 2:
                program.say("COMMIT")

        monkeypatch.setattr(adoption, "_CLOCK", SimpleNamespace(sleep_ms=pause))
        with eosdb.connect(db_path, adopt="wal") as db:
            assert list(db.query("SELECT count(*) FROM big").rows) == [(500,)]
    assert next(pauses) == 3


def test_who_has_the_file_for_itself_alone_is_named(db_path: Path) -> None:
    script = f"PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; {PLACES}"
    with owner(db_path, script):
        before = folder_of(db_path)
        with pytest.raises(eosdb.StorageError, match="locking_mode=EXCLUSIVE"):
            eosdb.connect(db_path, adopt=True, config=eosdb.BrokerConfig(lock_timeout_ms=100))
        assert folder_of(db_path) == before


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_processes_that_adopt_at_the_same_time_make_one_history(db_path: Path, mode: str) -> None:
    write(db_path, PLACES, mode=mode)
    program = (
        "import contextlib, sqlite3, sys, eosdb\n"
        "own = sqlite3.connect(sys.argv[1], timeout=60)\n"
        "own.execute('CREATE TABLE IF NOT EXISTS mine (x)').close()\n"
        "with eosdb.connect(sys.argv[1], adopt='wal') as db:\n"
        "    with contextlib.suppress(eosdb.TopicAlreadyExistsError):\n"
        "        db.admin.create_topic('t')\n"
        "    db.producer().send('t', b'x').result()\n"
    )
    command = [sys.executable, "-c", program, str(db_path)]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 4
    with eosdb.connect(db_path) as db:
        assert (db.verify().problems, db.info()["records"]) == ((), 4)


@pytest.mark.parametrize("holder", [None, "BEGIN; SELECT * FROM moz_meta"])
def test_the_journal_mode_is_switched_only_when_that_is_asked_for(
    db_path: Path, holder: str | None
) -> None:
    write(db_path, PLACES, mode="DELETE")
    config = eosdb.BrokerConfig(lock_timeout_ms=100)
    if holder is None:
        with eosdb.connect(db_path, adopt="wal") as db:
            assert (db.is_published, db.verify().ok) == (False, True)
        return
    with owner(db_path, holder) as program:
        program.say("SELECT * FROM moz_meta")
        before = folder_of(db_path)
        program.say("SELECT count(*) FROM moz_places")
        with pytest.raises(eosdb.DatabaseLockedError):
            eosdb.connect(db_path, adopt="wal", config=config)
        assert folder_of(db_path) == before


def test_names_are_refused_before_the_journal_mode_is_switched(db_path: Path) -> None:
    write(db_path, "CREATE TABLE records (x)", mode="DELETE")
    before = folder_of(db_path)
    with pytest.raises(eosdb.NotAnEosdbFileError, match="table 'records'") as raised:
        eosdb.connect(db_path, adopt="wal")
    assert "rollback" not in str(raised.value)
    assert folder_of(db_path) == before


def test_without_asking_the_error_names_the_way_and_leaves_nothing_behind(db_path: Path) -> None:
    write(db_path, PLACES)
    before = folder_of(db_path)
    with pytest.raises(eosdb.NotAnEosdbFileError, match=r"eosdb init --adopt .*adopt=True"):
        eosdb.connect(db_path)
    assert folder_of(db_path) == before


def test_files_that_are_not_foreign_are_opened_as_ever(db_path: Path) -> None:
    with eosdb.connect(db_path, adopt=True) as db:  # Absent.
        assert db.verify().ok
    made = db_path.read_bytes()[60:72]
    eosdb.connect(db_path, adopt=True).close()
    assert (db_path.read_bytes()[60:72], made[-4:]) == (made, b"eosd")
    empty = db_path.with_name("empty.db")
    empty.touch()
    eosdb.connect(empty, adopt="wal").close()
    assert empty.read_bytes()[60:72] == made
    eosdb.connect(":memory:", adopt=True).close()
    with pytest.raises(eosdb.DatabaseNotFoundError):
        eosdb.connect(db_path.with_name("absent.db"), adopt=True, create=False)
    for options in ({"adopt": "yes"}, {"adopt": True, "read_only": True}):
        with pytest.raises(eosdb.ConfigError, match="adopt"):
            eosdb.connect(db_path, **options)


def test_a_second_name_is_refused_and_a_symbolic_link_is_followed(db_path: Path) -> None:
    write(db_path, PLACES)
    other = db_path.with_name("other.db")
    os.link(db_path, other)
    before = folder_of(db_path)
    with pytest.raises(eosdb.StorageError, match="hard links"):
        eosdb.connect(db_path, adopt=True)
    assert folder_of(db_path) == before
    other.unlink()
    other.symlink_to(db_path)
    eosdb.connect(other, adopt=True).close()
    with eosdb.connect(db_path) as db:
        assert db.verify().ok


def test_the_owners_locks_in_this_process_outlast_the_look(db_path: Path) -> None:
    """Closing any descriptor of a file drops every lock that the process has on it."""
    write(db_path, "CREATE TABLE records (x)", mode="DELETE")
    with contextlib.closing(sqlite3.connect(db_path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(eosdb.NotAnEosdbFileError):
            eosdb.connect(db_path, adopt=True)
        other = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
        done = subprocess.run(
            [sys.executable, "-c", other, str(db_path)], capture_output=True, check=False
        )
        assert b"database is locked" in done.stderr


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_disk_that_is_full_undoes_it(db_path: Path, mode: str) -> None:
    write(db_path, PLACES, mode=mode)
    before, content = folder_of(db_path), theirs(db_path)
    program = (
        "import resource, signal, sys, eosdb; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000)); "
        f"eosdb.connect(sys.argv[1], adopt={True if mode == 'WAL' else 'wal'!r})"
    )
    command = [sys.executable, "-c", program, str(db_path)]
    done = ended(command)
    assert "DatabaseFullError" in done.stderr
    if mode == "DELETE":  # Switched there and back: SQLite counts that.
        assert db_path.read_bytes()[18:20] == before[db_path.name][0][18:20]
        assert (list(folder_of(db_path)), theirs(db_path)) == ([db_path.name], content)
    else:
        assert folder_of(db_path) == before


def test_killed_in_the_middle_nothing_has_been_adopted(db_path: Path) -> None:
    write(db_path, PLACES)
    before = theirs(db_path)
    program = "import sys, eosdb; eosdb.connect(sys.argv[1], adopt=True)"
    environment = {**os.environ, "EOSDB_FAILPOINT": Failpoint.MIGRATION_APPLIED.value}
    command = [sys.executable, "-c", program, str(db_path)]
    assert subprocess.run(command, env=environment, check=False).returncode == -9
    with contextlib.closing(sqlite3.connect(db_path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert not names & {"journal", "eosdb_file"}
    assert theirs(db_path) == before
    eosdb.connect(db_path, adopt=True).close()
    assert theirs(db_path) == before
