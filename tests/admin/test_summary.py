"""One look at a file: which it is, what is in it, and which remembered offsets still belong to it."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import RecordBatch, TopicPartition
from eosdb.admin import summary
from eosdb.admin.tools import Tools
from eosdb.errors import (
    CorruptDatabaseError,
    DatabaseNotFoundError,
    InvalidRequestError,
    NotAnEosdbFileError,
    SchemaTooNewError,
)
from eosdb.events.kinds import Acl
from eosdb.model.values import Record

TP = TopicPartition("t", 0)


def append(db: eosdb.Database, count: int = 1) -> None:
    for _ in range(count):
        db.broker.append(TP, RecordBatch([Record(value=b"v")]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "device.db"
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic("t")
        append(db, 3)
        me = db.broker.init_producer_id("open", 900_000)
        batch = RecordBatch([Record(value=b"open")], *me, 0, True)
        db.broker.append(TP, batch, transactional_id="open")
        append(db)
    return path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that SQLite opens."""
    found: list[str] = []
    connect = sqlite3.connect

    def counted(name: str, *given: Any, **named: Any) -> sqlite3.Connection:
        found.append(name)
        made: sqlite3.Connection = connect(name, *given, **named)
        return made

    monkeypatch.setattr(sqlite3, "connect", counted)
    return found


def test_a_look_tells_what_an_open_database_does(path: Path) -> None:
    found = summary.look(path)
    with eosdb.connect(path, read_only=True) as db:
        assert found.cut == db.admin.consistent_cut()
        assert found.mark == Tools(db.admin).history_mark()
        assert found.position == db.info()["journal_position"]
    assert found.cut[TP][1] == 3
    assert summary.id_in(found.mark) == found.file_id


def test_a_look_opens_the_file_once_and_so_does_a_reader(path: Path, opened: list[str]) -> None:
    summary.look(path)
    assert len(opened) == 1
    with eosdb.connect(path, read_only=True) as db:
        db.admin.consistent_cut()
        Tools(db.admin).history_mark()
    assert len(opened) == 2


def test_a_look_sees_what_is_in_the_wal_of_a_writer(path: Path) -> None:
    before = summary.look(path)
    with eosdb.connect(path) as db:
        db.admin.create_topic("other")
        append(db)
        found = summary.look(path)
        assert found.cut == db.admin.consistent_cut()
    assert found.position > before.position


def test_only_the_marks_of_this_file_that_do_not_hold_are_told(path: Path, tmp_path: Path) -> None:
    early = summary.look(path)
    shutil.copy(path, tmp_path / "copy.db")
    with eosdb.connect(path, durability="off") as db:
        append(db)
    late = summary.look(path)
    asked: list[str] = []

    def marks_of(file_id: str) -> list[str]:
        asked.append(file_id)
        return [early.mark, late.mark]

    assert summary.look(path, marks_of).departures == {}
    told = summary.look(tmp_path / "copy.db", marks_of).departures
    assert list(told) == [late.mark]
    assert "older copy" in told[late.mark]
    assert asked == [early.file_id] * 2
    with pytest.raises(InvalidRequestError, match="expected a mark"):
        summary.look(path, lambda _: ["nothing"])


def test_a_look_is_under_access_control(path: Path) -> None:
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_acls([Acl("User:ann", "describe", "topic", "t", "literal", "allow")])
    assert summary.look(path).cut == {}
    assert list(summary.look(path, principal="User:ann").cut) == [TP]


def test_what_is_no_eosdb_file_is_an_error_and_left_alone(path: Path, tmp_path: Path) -> None:
    foreign, empty, half, newer = (tmp_path / f"{name}.db" for name in ("f", "e", "h", "n"))
    foreign.write_bytes(b"no database at all, but long enough for one" * 100)
    empty.touch()
    half.write_bytes(path.read_bytes()[:20_000])
    shutil.copy(path, newer)
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version=999")
    connection.execute("UPDATE eosdb_file SET read_version = 999")
    connection.commit()
    connection.close()
    for file, error in (
        (foreign, NotAnEosdbFileError),
        (empty, NotAnEosdbFileError),
        (half, CorruptDatabaseError),
        (newer, SchemaTooNewError),
        (tmp_path / "nothing.db", DatabaseNotFoundError),
    ):
        with pytest.raises(error, match=file.name):
            summary.look(file)
    assert {p.name for p in tmp_path.glob("[fe].db*")} == {"f.db", "e.db"}


@pytest.fixture
def an_hour_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Than the file's times."""
    later = eosdb.ManualClock(start_ms=path.stat().st_ctime_ns // 1_000_000 + 3_600_000)
    monkeypatch.setattr(summary, "_CLOCK", later)


@pytest.mark.usefixtures("an_hour_later")
def test_a_look_at_a_file_at_rest_puts_nothing_beside_it(path: Path) -> None:
    before = sorted(path.parent.iterdir())
    found = summary.look(path)
    assert sorted(path.parent.iterdir()) == before
    with eosdb.connect(path, read_only=True) as db:
        assert found.cut == db.admin.consistent_cut()
        assert found.mark == Tools(db.admin).history_mark()


@pytest.mark.usefixtures("an_hour_later")
@pytest.mark.parametrize("is_closed", [True, False], ids=["into the file", "into the log"])
def test_a_file_that_is_written_during_the_look_is_looked_at_again(
    path: Path, is_closed: bool
) -> None:
    writers: list[eosdb.Database] = []

    def written(file_id: str) -> list[str]:
        if not writers:
            writers.append(eosdb.connect(path, durability="off"))
            append(writers[0], 5)
            if is_closed:
                writers[0].close()
        return []

    found = summary.look(path, written)
    with writers[0], eosdb.connect(path, read_only=True) as db:
        assert found.cut == db.admin.consistent_cut()
        assert found.position == summary.look(path).position


@pytest.mark.usefixtures("an_hour_later")
def test_a_log_that_a_killed_writer_left_is_read(path: Path) -> None:
    with eosdb.connect(path, durability="off") as db:
        append(db, 5)
        killed = path.with_name("killed.db")
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{killed}{suffix}")
        expected = db.admin.consistent_cut()
    assert summary.look(killed).cut == expected
