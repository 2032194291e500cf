"""A new file appears whole and durable or not at all, and quickly: without Alembic, whatever was there."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import eosdb
from eosdb.model.failpoints import Failpoint, watched
from eosdb.store.file.file_system import LOCKS
from eosdb.store.schema import migrate, new_file, newest
from tests.crash.children import environment
from tests.programs import ended

pytestmark = pytest.mark.slow

MAKE = "import sys, eosdb; eosdb.connect(sys.argv[1]).close()"


def beside(path: Path) -> list[str]:
    return sorted(name.removeprefix(path.name) for name in os.listdir(path.parent))


def schema_of(path: Path) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()


def pragmas(path: Path) -> list[object]:
    names = ("application_id", "user_version", "journal_mode", "page_size", "integrity_check")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]


def test_a_new_file_is_what_the_revisions_make_of_an_empty_one(db_path: Path) -> None:
    eosdb.connect(db_path).close()
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as revised:
        migrate.apply_revisions(revised)
        newest.create_views(revised)
        made = revised.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
        for row in (newest.ALEMBICS, newest.BASELINE_TABLE):
            with contextlib.closing(sqlite3.connect(db_path)) as connection:
                (expected,) = connection.execute(f"SELECT * FROM {row}")
            assert revised.execute(f"SELECT * FROM {row}").fetchone() == expected
    assert sorted(map(repr, made)) == sorted(map(repr, schema_of(db_path)))


@pytest.mark.process
@pytest.mark.real_start
def test_neither_alembic_nor_sqlalchemy_is_imported_to_make_and_use_a_file(db_path: Path) -> None:
    use = f"""
{MAKE}
with eosdb.connect(sys.argv[1]) as db:
    db.admin.create_topic("t")
    db.producer().send("t", b"v").result()
    with db.consumer("g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        assert len(consumer.poll()) == 1
print([name for name in ("alembic", "sqlalchemy") if name in sys.modules])
"""
    command = [sys.executable, "-c", use, str(db_path)]
    said = ended(command, check=True)
    assert said.stdout.strip() == "[]"


def test_the_content_is_synced_before_the_name_and_the_name_before_anything_else(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    link, fsync = os.link, os.fsync

    def noted_link(*names: str) -> None:
        steps.append("link")
        link(*names)

    def noted_fsync(descriptor: int) -> None:
        steps.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "link", noted_link)
    monkeypatch.setattr(os, "fsync", noted_fsync)
    eosdb.connect(db_path).close()
    assert steps == ["file", "link", "folder"]
    eosdb.connect(db_path.with_name("other.db"), durability="off").close()
    assert steps[3:] == ["link"]


@pytest.mark.process
def test_killed_before_the_file_has_its_name_nothing_is_there(db_path: Path) -> None:
    command = [sys.executable, "-c", MAKE, str(db_path)]
    killed = subprocess.run(
        command, env=environment(EOSDB_FAILPOINT=Failpoint.MIGRATION_APPLIED.value), check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert not db_path.exists()
    with pytest.raises(eosdb.DatabaseNotFoundError):
        eosdb.connect(db_path, create=False)
    with eosdb.connect(db_path) as db:
        assert db.verify().ok
    assert beside(db_path) == sorted(("", *LOCKS))


def test_killed_when_the_file_has_two_names_the_next_one_removes_the_second(db_path: Path) -> None:
    eosdb.connect(db_path).close()
    os.link(db_path, new_file.unfinished_name(str(db_path)))
    with eosdb.connect(db_path) as db:
        assert db.verify().ok
        assert db_path.stat().st_nlink == 1
    assert beside(db_path) == sorted(("", *LOCKS))


def test_what_a_deleted_file_left_behind_does_not_get_into_the_new_one(db_path: Path) -> None:
    db = eosdb.connect(db_path)
    db.admin.create_topic("old")
    for suffix in ("", "-wal"):
        shutil.copy(f"{db_path}{suffix}", f"{db_path}{suffix}.kept")
    db.close()
    db_path.unlink()
    os.rename(f"{db_path}-wal.kept", f"{db_path}-wal")
    Path(f"{db_path}-journal").write_bytes(b"of another file")
    with eosdb.connect(db_path) as db:
        assert db.admin.list_topics() == []
        assert db.verify().ok


def test_a_file_that_another_program_makes_meanwhile_is_left_alone(db_path: Path) -> None:
    def make(_: Failpoint) -> None:
        db_path.write_bytes(b"somebody else's")

    with watched(make), pytest.raises(eosdb.StorageError, match="another program"):
        eosdb.connect(db_path)
    assert db_path.read_bytes() == b"somebody else's"
    assert beside(db_path) == sorted(("", *LOCKS))


@pytest.mark.parametrize("lacking", ["links", "images"])
def test_where_the_system_cannot_do_it_sqlite_makes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    usual, other = tmp_path / "usual.db", tmp_path / "other.db"
    eosdb.connect(usual).close()

    def refuse(*_: str) -> None:
        raise PermissionError

    if lacking == "links":
        monkeypatch.setattr(os, "link", refuse)
    else:
        monkeypatch.setattr(new_file, "make", lambda *_, **__: False)
    with eosdb.connect(other) as db:
        assert db.verify().ok
    assert schema_of(other) == schema_of(usual)
    assert pragmas(other) == pragmas(usual)
    assert [name for name in os.listdir(tmp_path) if "unfinished" in name] == []


def test_without_memory_for_the_new_file_there_is_a_memory_error_and_no_file(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python tells it as SystemError, "error return without exception set"."""

    class WithoutMemory(sqlite3.Connection):
        def serialize(self, *_: object, **__: object) -> bytes:
            raise SystemError

    monkeypatch.setattr(new_file, "_idle", [])
    connect = functools.partial(sqlite3.connect, factory=WithoutMemory)
    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises(MemoryError):
        new_file.make(str(db_path), sync=True)
    assert not db_path.exists()
