"""A file's id is its own from the first moment on, stays with its history, and is renewed with that."""

from __future__ import annotations

import json
import multiprocessing
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

import eosdb
from eosdb.cli.main import main
from eosdb.store.schema import new_file


def id_of(path: Path) -> str:
    with eosdb.connect(path, durability="off") as db:
        found = db.info()["file_id"]
    assert isinstance(found, str)
    assert re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]{21}", found)
    return found


def make(path: Path) -> None:
    eosdb.connect(path).close()


@pytest.mark.process
def test_no_two_files_have_the_same_also_when_forked_processes_make_them(tmp_path: Path) -> None:
    make(tmp_path / "first.db")
    forking = multiprocessing.get_context("fork")
    paths = [tmp_path / f"{i}.db" for i in range(4)]
    children = [forking.Process(target=make, args=(path,)) for path in paths]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    make(tmp_path / "last.db")
    ids = {id_of(path) for path in (tmp_path / "first.db", *paths, tmp_path / "last.db")}
    assert len(ids) == 6


def test_a_file_that_sqlite_makes_has_one_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_file, "make", lambda *_, **__: False)
    assert id_of(tmp_path / "a.db") != id_of(tmp_path / "b.db")


@pytest.mark.slow
def test_it_stays_as_long_as_the_history_does(db_path: Path, tmp_path: Path) -> None:
    mine = id_of(db_path)
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        position = db.info()["journal_position"]
        assert isinstance(position, int)
        db.rebuild()
        assert db.verify().ok
        db.backup(tmp_path / "backup.db")
        db.publish_copy(tmp_path / "published.db")
        for name in ("then.db", "then-again.db"):
            db.restore_to(tmp_path / name, position=position)
    assert [id_of(path) for path in (db_path, tmp_path / "backup.db")] == [mine, mine]
    with eosdb.connect(tmp_path / "published.db", read_only=True) as published:
        assert published.info()["file_id"] == mine
    restored = {id_of(tmp_path / name) for name in ("then.db", "then-again.db")}
    assert len(restored) == 2
    assert mine not in restored
    with eosdb.connect(tmp_path / "then.db") as db:
        assert db.verify().ok


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM eosdb_file",
        "UPDATE eosdb_file SET file_id = 'x'",
        "INSERT INTO eosdb_file VALUES ('AAAAAAAAAAAAAAAAAAAAAA', 1, '1.0', NULL, 0)",
    ],
)
def test_verify_tells_when_it_is_none(db_path: Path, damage: str) -> None:
    make(db_path)
    raw = sqlite3.connect(db_path)
    raw.execute(damage)
    raw.commit()
    raw.close()
    with eosdb.connect(db_path, read_only=True) as db:
        (problem,) = db.verify().problems
    assert problem.startswith("eosdb_file: found ")


def test_a_damaged_row_is_refused_and_not_stored_again_with_a_checksum_that_fits(
    db_path: Path,
) -> None:
    make(db_path)
    with closing(sqlite3.connect(db_path, isolation_level=None)) as raw:
        raw.execute("UPDATE eosdb_file SET place = 'elsewhere'")
    for _ in range(2):
        with pytest.raises(eosdb.CorruptDatabaseError, match="does not fit its checksum"):
            eosdb.connect(db_path)
    with eosdb.connect(db_path, read_only=True) as db:
        assert "does not fit its checksum" in db.verify().problems[0]


def test_the_command_line_tells_it(db_path: Path) -> None:
    mine = id_of(db_path)
    told = CliRunner().invoke(main, ["--db", str(db_path), "info", "--format", "json"])
    assert json.loads(told.stdout)[0]["file_id"] == mine
