"""Marks: whoever keeps offsets elsewhere knows by them whether the file still has that history."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

import eosdb
from eosdb.admin.tools import Tools
from eosdb.errors import InvalidRequestError
from eosdb.store import journal
from tests.store.schema.schema_files import VERSIONS, schema_file


def grow(db: eosdb.Database, value: str, count: int = 1) -> None:
    for _ in range(count):
        db.producer(enable_idempotence=False).send("t", value).result()


def test_a_mark_holds_as_long_as_the_history_only_grows(db_path: Path, tmp_path: Path) -> None:
    with eosdb.connect(db_path) as db:
        marks = [Tools(db.admin).history_mark()]
        db.admin.create_topic("t")
        for i in range(3):
            marks.append(Tools(db.admin).history_mark())
            grow(db, f"{i}")
        db.rebuild()
        assert len(set(marks)) == 4
        assert [Tools(db.admin).history_departure(mark) for mark in marks] == [None] * 4
        db.backup(tmp_path / "copy.db")
    with eosdb.connect(tmp_path / "copy.db", read_only=True) as copy:
        assert [Tools(copy.admin).history_departure(mark) for mark in marks] == [None] * 4


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_marks_outlive_an_upgrade(tmp_path: Path, version: int) -> None:
    """Streams, relays and exports go on after it from what they stored before."""
    path = Path(shutil.copy(schema_file(version), tmp_path / "old.db"))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        positions = connection.execute("SELECT position FROM journal").fetchall()
        events = [
            (at, journal._event(connection, at) + journal._life(connection, at)[0])
            for (at,) in positions
        ]
    assert events
    with eosdb.connect(path) as db:
        file_id = Tools(db.admin).history_mark().partition(".")[0]
        for at, digest in events:
            assert Tools(db.admin).history_departure(f"{file_id}.{at}.{digest}") is None


def test_another_file_and_an_older_copy_are_told_apart(db_path: Path, tmp_path: Path) -> None:
    copy_path = tmp_path / "copy.db"
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        early = Tools(db.admin).history_mark()
        db.backup(copy_path)
        grow(db, "a", 3)
        mark = Tools(db.admin).history_mark()
    with eosdb.connect(copy_path) as copy:
        assert "ends with event" in (Tools(copy.admin).history_departure(mark) or "")
        grow(copy, "b", 3)
        assert "another life" in (Tools(copy.admin).history_departure(mark) or "")
        grow(copy, "b", 3)
        assert "another life" in (Tools(copy.admin).history_departure(mark) or "")
        assert Tools(copy.admin).history_departure(early) is None
    with eosdb.connect(db_path) as db:  # As after a restore of the whole disk, which nothing shows.
        *place, digest = mark.split(".")
        altered = ".".join([*place, f"{int(digest[:8], 16) ^ 1:08x}{digest[8:]}"])
        assert Tools(db.admin).history_departure(mark) is None
        assert "has another event" in (Tools(db.admin).history_departure(altered) or "")
    with eosdb.connect(tmp_path / "other.db") as other:
        other.admin.create_topic("t")
        grow(other, "a", 3)
        assert "another file" in (Tools(other.admin).history_departure(mark) or "")


@pytest.mark.parametrize("told", ["", "x", "a.b.c", "a.1", 5])
def test_what_is_no_mark_is_refused(db: eosdb.Database, told: str) -> None:
    with pytest.raises(InvalidRequestError):
        Tools(db.admin).history_departure(told)
