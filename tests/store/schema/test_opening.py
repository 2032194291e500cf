"""What a path may turn out to be, and the error each gets. A file that is not ours is never touched."""

from __future__ import annotations

import copy
import os
import pickle
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb.store.file.file_system import LOCKS
from eosdb.store.schema import newest
from tests.programs import ended


def foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE dear (to_somebody)")
    connection.commit()
    connection.close()


def marked(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA application_id={newest.APPLICATION_ID}")
    connection.execute("CREATE TABLE no_journal (x)")
    connection.commit()
    connection.close()


def with_version(version: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        eosdb.connect(path).close()
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA user_version={version}")
        connection.commit()
        connection.close()

    return make


def truncated(path: Path) -> None:
    full(path)
    os.truncate(path, path.stat().st_size // 2)


def flipped(path: Path) -> None:
    """Damage inside the schema page and the journal's root."""
    full(path)
    data = bytearray(path.read_bytes())
    for at in range(100, 20_000, 97):
        data[at] ^= 0xFF
    path.write_bytes(data)


def full(path: Path) -> None:
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
        producer = db.producer(linger_ms=10_000)
        for _ in range(2_000):
            producer.send("t", b"x" * 100)
        producer.close()


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (foreign, eosdb.NotAnEosdbFileError, "another application"),
        (
            lambda p: p.write_bytes(b"hello" * 1000),
            eosdb.NotAnEosdbFileError,
            "not a SQLite database",
        ),
        (lambda p: p.write_bytes(b"SQLite format 3\0"), eosdb.NotAnEosdbFileError, "did not touch"),
        (lambda p: p.mkdir(), eosdb.NotAnEosdbFileError, "folder"),
        (marked, eosdb.CorruptDatabaseError, "no journal"),
        (with_version(newest.SCHEMA_VERSION + 1), eosdb.SchemaTooNewError, "upgrade eosdb"),
        (truncated, eosdb.CorruptDatabaseError, "backup"),
        (flipped, eosdb.CorruptDatabaseError, "damaged|malformed|journal"),
    ],
    ids=["foreign", "text", "short", "folder", "marked", "newer", "truncated", "flipped"],
)
@pytest.mark.parametrize("read_only", [False, True], ids=["rw", "ro"])
def test_each_kind_of_file_gets_its_own_error(
    db_path: Path, make: Callable[[Path], None], error: type[Exception], says: str, read_only: bool
) -> None:
    """And nothing is put beside a stranger's file."""
    make(db_path)
    before = None if db_path.is_dir() else db_path.read_bytes()
    beside = os.listdir(db_path.parent)
    with pytest.raises(error, match=says) as raised:
        eosdb.connect(db_path, read_only=read_only).verify()
    assert str(db_path) in str(raised.value)
    assert before is None or db_path.read_bytes() == before
    if error is eosdb.NotAnEosdbFileError:
        assert os.listdir(db_path.parent) == beside


def test_an_older_schema_is_only_upgraded_when_that_is_wanted(db_path: Path) -> None:
    with_version(0)(db_path)
    with pytest.raises(eosdb.SchemaOutOfDateError, match="eosdb migrate"):
        eosdb.connect(db_path, migrate=False)
    with pytest.raises(eosdb.SchemaOutOfDateError, match="read_only"):
        eosdb.connect(db_path, read_only=True)


def test_an_absent_file_is_made_only_when_that_is_wanted(db_path: Path) -> None:
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(eosdb.DatabaseNotFoundError, match="eosdb init"):
            eosdb.connect(db_path, **options)  # type: ignore[arg-type]
    assert os.listdir(db_path.parent) == []
    with pytest.raises(eosdb.StorageError):
        eosdb.connect(db_path.parent / "no such folder" / "x.db")


def test_an_empty_file_becomes_a_database(db_path: Path) -> None:
    db_path.touch()
    with pytest.raises(eosdb.NotAnEosdbFileError, match="empty"):
        eosdb.connect(db_path, read_only=True)
    with eosdb.connect(db_path) as db:
        assert db.verify().ok


def test_the_header_says_what_the_file_is(db_path: Path) -> None:
    eosdb.connect(db_path).close()
    header = db_path.read_bytes()[:100]
    assert header[68:72] == b"eosd"
    assert int.from_bytes(header[60:64], "big") == newest.SCHEMA_VERSION
    connection = sqlite3.connect(db_path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


@pytest.mark.parametrize(
    "name",
    ["a b.db", "a?mode.db", "a?=ro.db", "a#b.db", "100%.db", "%3f.db", "ü→.db", "'\";.db", "-a.db"],
)
def test_paths_with_odd_characters(tmp_path: Path, name: str) -> None:
    with eosdb.connect(tmp_path / name) as db:
        db.admin.create_topic("t")
        assert db.query("SELECT topic FROM partition_offsets").columns == ("topic",)
    assert name in os.listdir(tmp_path)
    with eosdb.connect(tmp_path / name, read_only=True) as db:
        assert db.admin.list_topics() == ["t"]


@pytest.mark.parametrize("path", ["", "a\0b"], ids=["empty", "NUL"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(eosdb.ConfigError):
        eosdb.connect(path)


def test_bad_options_are_refused(db_path: Path) -> None:
    with pytest.raises(eosdb.ConfigError, match="durability"):
        eosdb.connect(db_path, durability="fast")  # type: ignore[arg-type]
    with pytest.raises(eosdb.ConfigError, match="BrokerConfig"):
        eosdb.connect(db_path, config={})  # type: ignore[arg-type]
    with pytest.raises(eosdb.InvalidConfigError, match="num_partitions"):
        eosdb.BrokerConfig(num_partitions=0)
    with pytest.raises(eosdb.InvalidConfigError, match="unknown broker setting 'colour'"):
        eosdb.BrokerConfig(colour="red")  # type: ignore[call-arg]
    config = eosdb.BrokerConfig(num_partitions=3)
    assert pickle.loads(pickle.dumps(config)) == copy.copy(config) == config


def test_a_read_only_database_writes_nothing(db_path: Path) -> None:
    full(db_path)
    before = db_path.read_bytes()
    with eosdb.connect(db_path, read_only=True) as db:
        for call in (
            lambda: db.admin.create_topic("u"),
            lambda: db.producer().send("t", b"v").result(),
            lambda: db.broker.init_producer_id("a"),
            lambda: db.housekeeping(),
            lambda: db.rebuild(),
            lambda: db.take_snapshot(),
        ):
            with pytest.raises(eosdb.ReadOnlyDatabaseError):
                call()
        assert db.verify().ok
        assert len(db.broker.fetch(eosdb.TopicPartition("t", 0), 0).records) == 500
    assert db_path.read_bytes() == before


KILLED = """
import os, signal, sys
import eosdb
db = eosdb.connect(sys.argv[1])
db.admin.create_topic("t")
producer = db.producer(transactional_id="a")
producer.init_transactions()
producer.begin_transaction()
producer.send("t", b"open")
producer.flush()
for _ in range(9):
    db.broker.append(eosdb.TopicPartition("t", 0), eosdb.RecordBatch([eosdb.Record(value=b"v")]))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.process
@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_read_only_database_leaves_the_work_of_a_dead_process_to_others(
    db_path: Path, shared_memory: bool
) -> None:
    """It reads the WAL where it is: it is not copied into the file, and nothing is recovered."""
    subprocess.run([sys.executable, "-c", KILLED, str(db_path)], check=False)
    if not shared_memory:
        Path(f"{db_path}-shm").unlink()
    files = [db_path, Path(f"{db_path}-wal")]
    before = [(file.read_bytes(), file.stat().st_mtime_ns) for file in files]
    assert len(before[1][0]) > 100_000
    clock = eosdb.ManualClock(2_000_000_000_000)
    with eosdb.connect(db_path, read_only=True, clock=clock) as db:
        assert db.broker.offsets(eosdb.TopicPartition("t", 0)).log_end_offset == 10
        assert db.broker.describe_transactions(["a"])["a"].state == "Ongoing"
        assert db.verify().ok
        assert len(list(db.query("SELECT * FROM all_records").rows)) == 10
    assert [(file.read_bytes(), file.stat().st_mtime_ns) for file in files] == before


def test_a_read_only_database_sees_what_others_write_meanwhile(db_path: Path) -> None:
    tp = eosdb.TopicPartition("t", 0)
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        with eosdb.connect(db_path, read_only=True) as reader:
            for end in (1, 2):
                db.producer().send("t", b"v").result()
                assert reader.broker.offsets(tp).log_end_offset == end


UNPRIVILEGED = """
import os, sys
import eosdb
with eosdb.connect(":memory:") as db:
    db.verify()  # Whatever is imported late may not be readable without privileges.
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    eosdb.connect(sys.argv[1])
except eosdb.EosdbError as error:
    print(type(error).__name__)
with eosdb.connect(sys.argv[1], read_only=True) as db:
    print(db.verify().ok, db.broker.offsets(eosdb.TopicPartition("t", 0)).log_end_offset)
"""


@pytest.mark.process
@pytest.mark.parametrize("folder_mode", [0o777, 0o555], ids=["file", "folder"])
@pytest.mark.parametrize("with_wal", [False, True])
def test_a_file_that_may_not_be_written_can_be_read(folder_mode: int, with_wal: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        if with_wal:
            subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
        else:
            full(path)
        for file in Path(folder).iterdir():
            file.chmod(0o444)
        os.chmod(folder, folder_mode)
        command = [sys.executable, "-c", UNPRIVILEGED, str(path)]
        done = ended(command)
        os.chmod(folder, 0o777)
    expected = ["ReadOnlyDatabaseError", f"True {10 if with_wal else 2000}"]
    assert done.stdout.splitlines() == expected, done.stderr


def test_a_closed_database_says_so(db_path: Path) -> None:
    tp = eosdb.TopicPartition("t", 0)
    db = eosdb.connect(db_path)
    db.close()
    db.close()
    assert "closed" in repr(db)
    for call in (
        lambda: db.producer(),
        lambda: db.consumer(),
        lambda: db.admin.list_topics(),
        lambda: db.admin.create_topic("t"),
        lambda: db.broker.init_producer_id(),
        lambda: db.broker.init_producer_id("a"),
        lambda: db.broker.append(tp, eosdb.RecordBatch([eosdb.Record()])),
        lambda: db.broker.fetch(tp, 0),
        lambda: db.broker.offsets(tp),
        lambda: db.broker.list_offsets(tp, eosdb.LATEST),
        lambda: db.broker.end_txn("a", 0, 0, True),
        lambda: db.broker.offset_commit("g", {tp: eosdb.OffsetAndMetadata(0)}),
        lambda: db.broker.offset_fetch("g"),
        lambda: db.broker.delete_records(tp, 0),
        lambda: db.broker.list_transactions(),
        lambda: db.broker.find_coordinator("a"),
        lambda: db.housekeeping(),
        lambda: db.take_snapshot(),
        lambda: db.verify(),
        lambda: db.rebuild(),
        lambda: db.backup(db_path.with_name("copy.db")),
        lambda: db.restore_to(db_path.with_name("copy.db"), position=1),
        lambda: db.engine,
        lambda: db.query("SELECT 1"),
        lambda: db.info(),
        lambda: db.metrics(),
    ):
        with pytest.raises(eosdb.DatabaseClosedError):
            call()
    assert not db_path.with_name("copy.db").exists()


def test_a_closed_database_leaves_one_file_and_the_lock_beside_it(db_path: Path) -> None:
    full(db_path)
    assert sorted(os.listdir(db_path.parent)) == sorted(db_path.name + end for end in ("", *LOCKS))


class Seconds(eosdb.SystemClock):
    def time_ms(self) -> float:  # type: ignore[override]
        return 1.7e12


@pytest.mark.parametrize("clock", [5, object(), Seconds(), eosdb.ManualClock(-1)])
def test_a_clock_that_is_none_is_refused_before_a_file_is_made(db_path: Path, clock: Any) -> None:
    with pytest.raises(eosdb.ConfigError, match="clock"):
        eosdb.connect(db_path, clock=clock)
    assert not db_path.exists()


def test_a_manual_clock_counts_whole_milliseconds() -> None:
    """With 500.0 the checksums of events were those of another text than the file had."""
    clock = eosdb.ManualClock(1)
    for ms in (500.0, 0.5):
        with pytest.raises(TypeError):
            clock.advance(ms)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            eosdb.ManualClock(ms)  # type: ignore[arg-type]
    assert (clock.time_ms(), clock.monotonic_ms()) == (1, 1)
    clock.advance(2)
    assert (clock.time_ms(), clock.monotonic_ms()) == (3, 3)


def test_memory_is_a_database_like_any_other() -> None:
    with eosdb.connect(":memory:") as one, eosdb.connect(":memory:") as two:
        one.admin.create_topic("t")
        assert two.admin.list_topics() == []
        assert one.verify().ok
        assert one.path == ":memory:"


def test_the_engine_serves_queries_and_tables_of_the_users_own(db: eosdb.Database) -> None:
    import sqlalchemy as sa

    db.admin.create_topic("t")
    mine = sa.Table("mine", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))
    mine.create(db.engine)
    with db.engine.begin() as connection:
        connection.execute(mine.insert().values(id=7))
        topics = connection.execute(sa.text("SELECT topic FROM partition_offsets")).scalars().all()
    assert topics == ["t"]
    assert db.query("SELECT id FROM mine").columns == ("id",)
    assert db.verify().ok
    db.rebuild()
    assert list(db.query("SELECT id FROM mine").rows) == [(7,)]


def test_opening_a_file_reads_its_schema_once(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the schema is most of the cost of opening; the header alone identifies a file."""
    eosdb.connect(db_path).close()
    asked: list[list[str]] = []
    connect = sqlite3.connect

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        asked.append([])
        connection.set_trace_callback(asked[-1].append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    eosdb.connect(db_path).close()
    tables = ("journal", "sqlite_schema", "journal_mode")
    reading = [said for said in asked if any(name in text for text in said for name in tables)]
    assert [len(asked), len(reading)] == [2, 1]
