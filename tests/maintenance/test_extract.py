"""eosdb's tables leave a file that is another application's too: all, checked, or none."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.maintenance import extract
from eosdb.model.failpoints import Failpoint
from eosdb.store.file.file_system import LOCKS
from eosdb.store.schema import new_file, newest
from tests.crash.children import environment
from tests.programs import ended
from tests.readers import committed_values
from tests.store.schema.foreign_files import (
    ACCEPTED,
    OURS,
    PLACES,
    Foreign,
    folder_of,
    owner,
    theirs,
    write,
)

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)


def fill(db: eosdb.Database) -> None:
    """Something in every kind of table: a group, a transaction, a typed view, a baseline."""
    db.admin.create_topic("t")
    db.producer().send("t", b'{"a": 1}').result()
    producer = db.producer(transactional_id="tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"in a transaction")
    producer.commit_transaction()
    db.broker.offset_commit("group", {TP: OffsetAndMetadata(1, "")})
    db.admin.create_view("typed", "t", {"a": "INTEGER"})
    db.take_snapshot()


def events_and_state(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What is in eosdb's tables, except for the place of the file."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {
            name: sorted(connection.execute(f'SELECT * FROM "{name}"'), key=repr)
            for name in newest.tables()
            if name != "eosdb_file"
        }


@pytest.fixture
def adopted(db_path: Path) -> Path:
    write(db_path, PLACES)
    with eosdb.connect(db_path, adopt=True) as db:
        fill(db)
    return db_path


@pytest.fixture
def new(db_path: Path) -> Path:
    return db_path.with_name("orders.db")


def names(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


@pytest.mark.process
@pytest.mark.parametrize("foreign", ACCEPTED.values(), ids=ACCEPTED)
def test_adopted_and_extracted_its_owner_has_what_was_there_before(
    db_path: Path, new: Path, foreign: Foreign
) -> None:
    foreign.make(db_path)
    before = theirs(db_path)
    with eosdb.connect(db_path, adopt=True) as db:
        fill(db)
        state, file_id, position = events_and_state(db_path), db.info()["file_id"], db.extract(new)
    assert theirs(db_path) == before
    assert not names(db_path) & (OURS | {"typed"})
    with contextlib.closing(sqlite3.connect(db_path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    header = new.read_bytes()[:100]
    assert (header[18:20], header[68:72]) == (b"\x02\x02", b"eosd")
    with eosdb.connect(new) as db:
        assert events_and_state(new) == state
        assert db.info()["file_id"] == file_id
        assert db.info()["journal_position"] == position
        assert db.verify().problems == ()
        assert next(db.query("SELECT a, _offset FROM typed").rows) == (1, 0)
        assert committed_values(db, TP) == [b'{"a": 1}', b"in a transaction"]
        db.producer().send("t", b"and on it goes").result()
        db.compact()
        assert list(db.query("PRAGMA auto_vacuum").rows) == [(2,)]
    eosdb.connect(db_path, adopt=True).close()  # A new life, with another id.
    with eosdb.connect(db_path, read_only=True) as db:
        assert db.info()["file_id"] != file_id


def test_a_file_of_eosdbs_own_is_parted_from_the_tables_that_were_added(
    db_path: Path, new: Path
) -> None:
    with eosdb.connect(db_path) as db:
        fill(db)
        with pytest.raises(eosdb.IllegalStateError, match="extracting them would leave nothing"):
            db.extract(new)
        with db.begin() as tx:
            tx.connection.exec_driver_sql("CREATE TABLE own (x)")
            tx.connection.exec_driver_sql("INSERT INTO own VALUES (1)")
        db.extract(new)
    assert names(db_path) == {"own"}
    found = theirs(db_path)
    assert (found.settings["application_id"], found.settings["user_version"]) == (0, 0)
    with eosdb.connect(new) as db:
        assert (db.verify().problems, committed_values(db, TP)[0]) == ((), b'{"a": 1}')


USES = {
    "view": (
        "CREATE VIEW mine AS SELECT value FROM records",
        "the view 'mine', which reads them",
    ),
    "view over a view": (
        "CREATE VIEW mine AS WITH q AS (SELECT count(*) FROM Committed_Records) SELECT * FROM q",
        "the view 'mine', which reads them",
    ),
    "view over a typed view": (
        "CREATE VIEW mine AS SELECT a FROM typed",
        "the view 'mine', which reads them",
    ),
    "trigger": (
        "CREATE TRIGGER mine AFTER UPDATE OF url ON moz_places BEGIN "
        "INSERT INTO moz_meta SELECT topic, 1 FROM topics; END",
        "the trigger 'mine' on 'moz_places', which uses them",
    ),
    "trigger on ours": (
        "CREATE TRIGGER mine AFTER INSERT ON records BEGIN DELETE FROM moz_meta; END",
        "the trigger 'mine' on 'records'",
    ),
    "index on ours": ("CREATE INDEX mine ON records (timestamp)", "the index 'mine' on 'records'"),
    "foreign key": (
        "CREATE TABLE mine (x REFERENCES topics (topic_id))",
        "the foreign key of 'mine' to 'topics'",
    ),
}


@pytest.mark.parametrize("use", USES)
def test_what_would_break_is_named_and_nothing_happens(adopted: Path, new: Path, use: str) -> None:
    statement, says = USES[use]
    write(adopted, statement)
    write(
        adopted,
        "CREATE VIEW records_of_mine AS SELECT 'records' AS journal FROM moz_meta; "
        "CREATE TRIGGER records_of_others AFTER UPDATE ON moz_places BEGIN SELECT 'journal'; END",
    )
    before = folder_of(adopted)[adopted.name][0]
    with eosdb.connect(adopted) as db:
        with pytest.raises(eosdb.IllegalStateError) as raised:
            db.extract(new)
        assert says in str(raised.value)
        assert "records_of" not in str(raised.value), "a name in a text is no use"
        assert db.verify().problems == ()
    assert folder_of(adopted)[adopted.name][0] == before
    assert sorted(os.listdir(adopted.parent)) == sorted(adopted.name + end for end in ("", *LOCKS))


_EXTRACT = "import sys, eosdb; eosdb.connect(sys.argv[1]).extract(sys.argv[2])"


@pytest.mark.process
@pytest.mark.parametrize(
    "point",
    [Failpoint.EXTRACT_WRITTEN, Failpoint.EXTRACT_LINKED, Failpoint.EXTRACT_DROPPED],
    ids=lambda point: point.value,
)
def test_killed_at_any_step_both_are_whole_and_it_is_run_again(
    adopted: Path, new: Path, point: Failpoint
) -> None:
    before = theirs(adopted)
    state = events_and_state(adopted)
    command = [sys.executable, "-c", _EXTRACT, str(adopted), str(new)]
    done = subprocess.run(command, env=environment(EOSDB_FAILPOINT=point.value), check=False)
    assert done.returncode == -signal.SIGKILL
    assert new.exists() == (point is not Failpoint.EXTRACT_WRITTEN)
    with eosdb.connect(adopted) as db:
        assert (events_and_state(adopted), db.verify().problems) == (state, ())
        if new.exists():
            with eosdb.connect(new, read_only=True) as twin:
                assert (events_and_state(new), twin.verify().problems) == (state, ())
        db.extract(new)
    assert theirs(adopted) == before
    assert not names(adopted) & OURS
    with eosdb.connect(new) as db:
        assert (events_and_state(new), db.verify().problems) == (state, ())
    assert not [name for name in os.listdir(new.parent) if "unfinished" in name]


def killed_between(adopted: Path, new: Path) -> None:
    command = [sys.executable, "-c", _EXTRACT, str(adopted), str(new)]
    killed = environment(EOSDB_FAILPOINT=Failpoint.EXTRACT_LINKED.value)
    assert subprocess.run(command, env=killed, check=False).returncode == -signal.SIGKILL


@pytest.mark.process
@pytest.mark.parametrize("writes", [("new",), ("adopted",), ("adopted", "new")])
def test_what_was_written_since_decides_which_of_two_files_may_go(
    adopted: Path, new: Path, writes: tuple[str, ...]
) -> None:
    killed_between(adopted, new)
    for name in writes:
        with eosdb.connect(adopted if name == "adopted" else new) as db:
            db.producer().send("t", name.encode()).result()
            db.producer().send("t", b"more").result()
    with eosdb.connect(adopted) as db:
        if writes == ("new",):
            db.extract(new)
        else:
            with pytest.raises(eosdb.IllegalStateError, match=r"older copy|another event"):
                db.extract(new)
            assert committed_values(db, TP)[-2:] == [b"adopted", b"more"]
    with eosdb.connect(new) as db:
        expected = [b"new", b"more"] if "new" in writes else [b'{"a": 1}', b"in a transaction"]
        assert committed_values(db, TP)[-2:] == expected


def test_only_the_twin_is_taken_for_the_twin(adopted: Path, new: Path) -> None:
    with eosdb.connect(adopted) as db:
        db.backup(copy := adopted.with_name("backup.db"))
        eosdb.connect(other := adopted.with_name("other.db")).close()
        (text := adopted.with_name("text.db")).write_text("hello")
        (link := adopted.with_name("link.db")).symlink_to(adopted)
        for target in (copy, other, text, link, adopted, adopted.parent):
            before = None if target.is_dir() else target.read_bytes()
            with pytest.raises(eosdb.IllegalStateError, match=r"exists already|same file"):
                db.extract(target)
            assert before is None or target.read_bytes() == before
        assert db.verify().problems == ()
        with pytest.raises(eosdb.StorageError, match="cannot be written"):
            db.extract(adopted.parent / "no such folder" / "x.db")
    ordinary = adopted.with_name("ordinary.db")
    with eosdb.connect(ordinary) as db:
        with db.begin() as tx:
            tx.connection.exec_driver_sql("CREATE TABLE own (x)")
        with pytest.raises(eosdb.IllegalStateError, match="same file"):
            db.extract(ordinary)
        assert db.verify().problems == ()


def test_tables_that_do_not_verify_stay_where_they_are(adopted: Path, new: Path) -> None:
    write(adopted, "UPDATE partitions SET log_end_offset = 7")
    with eosdb.connect(adopted) as db:
        with pytest.raises(eosdb.CorruptDatabaseError, match="tables are damaged"):
            db.extract(new)
        db.rebuild()
        assert db.verify().ok
    assert sorted(os.listdir(adopted.parent)) == sorted(adopted.name + end for end in ("", *LOCKS))


def test_progress_that_raises_undoes_it(adopted: Path, new: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with eosdb.connect(adopted) as db:
        with pytest.raises(KeyboardInterrupt):
            db.extract(new, on_progress=stop)
        assert db.verify().ok
    assert sorted(os.listdir(adopted.parent)) == sorted(adopted.name + end for end in ("", *LOCKS))


@pytest.mark.process
def test_a_disk_that_is_full_undoes_it(adopted: Path, new: Path) -> None:
    program = (
        "import resource, signal, sys, eosdb; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "db = eosdb.connect(sys.argv[1]); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000)); "
        "db.extract(sys.argv[2])"
    )
    command = [sys.executable, "-c", program, str(adopted), str(new)]
    done = ended(command)
    assert "DatabaseFullError" in done.stderr
    with eosdb.connect(adopted) as db:
        assert db.verify().problems == ()
    assert sorted(os.listdir(adopted.parent)) == sorted(adopted.name + end for end in ("", *LOCKS))


@pytest.mark.process
def test_the_owners_program_goes_on_while_the_tables_leave(adopted: Path, new: Path) -> None:
    visit = "INSERT INTO moz_historyvisits (place_id) VALUES (1)"
    with owner(adopted, visit) as program, eosdb.connect(adopted) as db:
        program.say("BEGIN")
        assert program.say("SELECT visit_count FROM moz_places") == "[(2,)]"
        db.extract(new)
        assert program.say("SELECT count(*) FROM records") != "[]", "its snapshot is of before"
        program.say("COMMIT")
        assert program.say(visit) == "[]"
        assert program.say("SELECT visit_count FROM moz_places") == "[(3,)]"
    assert not names(adopted) & OURS


def test_who_has_the_file_open_is_told_and_writes_nothing_into_it(adopted: Path, new: Path) -> None:
    before = theirs(adopted)
    with eosdb.connect(adopted) as other, eosdb.connect(adopted) as db:
        producer = other.producer()
        producer.send("t", b"before").result()
        consumer = other.consumer("group", auto_offset_reset="earliest")
        consumer.subscribe(["t"])
        assert consumer.poll(timeout_ms=5_000)
        db.extract(new)
        for opened in (db, other):
            with pytest.raises(eosdb.StorageError, match="eosdb inspect extract"):
                opened.producer().send("t", b"after").result()
            with (
                pytest.raises(eosdb.StorageError, match="eosdb inspect extract"),
                opened.begin() as tx,
            ):
                tx.publish("t", b"after")
            with pytest.raises(eosdb.StorageError, match="eosdb inspect extract"):
                opened.admin.list_topics()
        with pytest.raises(eosdb.StorageError, match="eosdb inspect extract"):
            producer.send("t", b"after").result()
        with pytest.raises(eosdb.StorageError, match="eosdb inspect extract"):
            consumer.commit()
        assert other.verify().problems[0].endswith("is gone")
    assert theirs(adopted) == before
    with eosdb.connect(new) as db:
        assert committed_values(db, TP)[-1] == b"before"
    with pytest.raises(eosdb.NotAnEosdbFileError, match="adopt"):
        eosdb.connect(adopted)


def test_a_file_that_is_written_meanwhile_keeps_its_tables(
    adopted: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a program that does not know eosdb's lock: the twin does not have what it has done."""
    drop = extract._drop

    def written_before(*args: Any) -> None:
        with contextlib.closing(sqlite3.connect(adopted)) as other:
            other.execute(
                "INSERT INTO eosdb_journal (position, kind, timestamp, detail, checksum) SELECT "
                "position + 1, kind, timestamp, detail, checksum FROM eosdb_journal "
                "ORDER BY position DESC LIMIT 1"
            )
            other.commit()
        drop(*args)

    monkeypatch.setattr(extract, "_drop", written_before)
    with (
        eosdb.connect(adopted) as db,
        pytest.raises(eosdb.IllegalStateError, match="was written during the copy"),
    ):
        db.extract(new)
    assert names(adopted) >= OURS


def test_the_twin_is_on_the_disk_before_the_tables_go(
    adopted: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes, and its name: a power cut behind the drop would leave nothing else."""
    synced: dict[int, bytes] = {}
    fsync, drop = os.fsync, extract._drop

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        found = os.fstat(descriptor)
        is_file = stat.S_ISREG(found.st_mode)
        name = Path(f"/proc/self/fd/{descriptor}")
        synced[found.st_ino] = name.read_bytes() if is_file else repr(os.listdir(name)).encode()

    def checked(*args: Any) -> None:
        assert synced[new.stat().st_ino] == new.read_bytes()
        assert new.name in synced[new.parent.stat().st_ino].decode()
        drop(*args)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(extract, "_drop", checked)
    with eosdb.connect(adopted) as db:
        db.extract(new)
    assert not names(adopted) & OURS


@pytest.mark.process
def test_a_twin_that_is_found_is_on_the_disk_before_the_tables_go(
    adopted: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_between(adopted, new)
    synced: list[str] = []
    sync_folder, drop = new_file.sync_folder, extract._drop

    def noted(path: str) -> None:
        sync_folder(path)
        synced.append(path)

    def checked(*args: Any) -> None:
        assert synced == [str(new)]
        drop(*args)

    monkeypatch.setattr(new_file, "sync_folder", noted)
    monkeypatch.setattr(extract, "_drop", checked)
    with eosdb.connect(adopted) as db:
        db.extract(new)
