"""What a killed copy leaves is removed by the next one in its folder; what a living one writes is not."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import eosdb
from eosdb.maintenance import copies
from eosdb.model.failpoints import Failpoint
from tests.crash.children import environment
from tests.readers import dump_state
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

COPIES = ["backup", "publish", "restore --position 2"]
BESIDE = """
import sys, eosdb
def wait(done, total):
    if done:  # Before the first page nothing is there.
        print("copying", flush=True)
        sys.stdin.readline()
eosdb.connect(sys.argv[1], read_only=True).backup(sys.argv[2], on_progress=wait)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "nightly"
    folder.mkdir()
    return folder


@pytest.fixture
def filled(db: eosdb.Database) -> eosdb.Database:
    db.admin.create_topic("t")
    db.producer().send("t", b"v")
    return db


@contextlib.contextmanager
def copying(db_path: Path, target: Path) -> Iterator[subprocess.Popen[str]]:
    """Another program in the middle of a backup; a line lets it go on."""
    process = subprocess.Popen(
        [sys.executable, "-c", BESIDE, db_path, target],
        cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "copying\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("command", COPIES)
def test_a_killed_copy_is_cleared_away_by_the_next_under_whichever_name(
    filled: eosdb.Database, db_path: Path, folder: Path, command: str
) -> None:
    name, *options = command.split()
    killed = subprocess.run(
        [sys.executable, "-m", "eosdb.cli", "--db", db_path, name, folder / "monday.db", *options],
        cwd=ROOT, env=environment(EOSDB_FAILPOINT=Failpoint.COPY_WRITTEN.value), check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    assert names(folder), "the kill has left something"
    assert "monday.db" not in names(folder)
    filled.backup(folder / "tuesday.db")
    assert names(folder) == ["tuesday.db"]
    assert dump_state(folder / "tuesday.db") == dump_state(db_path)


def test_a_copy_that_is_being_made_is_left_alone_until_its_program_is_killed(
    filled: eosdb.Database, db_path: Path, folder: Path
) -> None:
    with copying(db_path, folder / "a.db") as one, copying(db_path, folder / "b.db") as other:
        begun = names(folder)
        assert len(begun) >= 4, "for each a copy, and its lock"
        filled.publish_copy(folder / "c.db")
        assert names(folder) == sorted([*begun, "c.db"])
        one.communicate("\n" * 100)
        assert one.returncode == 0
        assert dump_state(folder / "a.db") == dump_state(db_path)
        other.kill()
        other.wait()
        filled.publish_copy(folder / "c.db")
        assert {name[:4] for name in names(folder)} == {"a.db", "c.db"}
        assert not list(folder.glob("*unfinished*"))


def test_copies_of_the_same_name_in_two_threads_of_a_program_do_not_meet(
    filled: eosdb.Database, folder: Path
) -> None:
    inner: list[bool] = []

    def copy(done: int, total: int) -> None:
        if not inner:
            before = names(folder)
            filled.backup(folder / "copy.db")
            inner.append(names(folder) == sorted([*before, "copy.db"]))

    with pytest.raises(eosdb.IllegalStateError, match="just been created"):
        filled.backup(folder / "copy.db", on_progress=copy)
    assert inner == [True]
    assert names(folder) == ["copy.db"]


def test_files_of_others_with_like_names_stay(filled: eosdb.Database, folder: Path) -> None:
    others = [
        "copy.db.unfinished-business", "copy.db.unfinished-4711", "x.unfinished-0123456-lock",
        "copy.db.unfinished-01234567", ".unfinished-01234567-lock",
    ]  # fmt: skip
    for name in others:
        (folder / name).touch()
    (folder / "link.unfinished-01234567-lock").symlink_to(folder / others[0])
    (folder / "folder.unfinished-01234567-lock").mkdir()
    before = names(folder)
    filled.backup(folder / "copy.db")
    assert names(folder) == sorted([*before, "copy.db"])


@pytest.mark.parametrize("command", ["backup", "publish_copy"])
def test_a_copy_whose_claim_is_interrupted_leaves_nothing(
    filled: eosdb.Database, folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Ctrl-C after the lock's file is there and before it is locked."""
    seen: list[list[str]] = []

    def flock(*_: int) -> None:
        seen.append(names(folder))
        raise KeyboardInterrupt

    module = SimpleNamespace(LOCK_EX=fcntl.LOCK_EX, LOCK_NB=fcntl.LOCK_NB, flock=flock)
    monkeypatch.setattr(copies, "fcntl", module)
    with pytest.raises(KeyboardInterrupt):
        getattr(filled, command)(folder / "copy.db")
    assert [len(files) for files in seen] == [1]
    assert names(folder) == []


@pytest.mark.parametrize("removals", range(2))
def test_a_copy_whose_removal_is_interrupted_is_cleared_away_by_the_next(
    filled: eosdb.Database, folder: Path, monkeypatch: pytest.MonkeyPatch, removals: int
) -> None:
    """Of what is left the lock is there, too: without it nobody would clear the rest away."""
    left = [None] * removals

    def unlink(path: str) -> None:
        if not left:
            raise KeyboardInterrupt
        os.remove(path)
        left.pop()

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", unlink)
        with pytest.raises(KeyboardInterrupt):
            filled.backup(folder / "monday.db")
    assert names(folder)[-1].endswith("-lock")
    filled.backup(folder / "tuesday.db")
    assert {*names(folder)} <= {"monday.db", "tuesday.db"}


def test_a_claim_is_one_of_the_file_that_has_the_name_now(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a program waits for a claim, the one that has it removes the file."""
    path = folder / "x"

    def flock(descriptor: int, operation: int) -> None:
        fcntl.flock(descriptor, operation)
        monkeypatch.setattr(copies, "fcntl", fcntl)
        path.unlink()

    module = SimpleNamespace(LOCK_EX=fcntl.LOCK_EX, flock=flock)
    monkeypatch.setattr(copies, "fcntl", module)
    descriptor = copies.claim(str(path))
    try:
        assert os.path.samestat(os.fstat(descriptor), path.stat())
    finally:
        os.close(descriptor)
