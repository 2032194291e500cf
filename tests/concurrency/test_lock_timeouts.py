"""A write lock that is held for too long: every face answers with the same error, which says that nothing
was written, who holds the lock, and what to do."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import eosdb
from eosdb.cli.file_command import Session
from eosdb.cli.main import main
from tests.readers import committed_values
from tests.store.locked import BLOCK, FACES, HASTY, SQLITE, TP, check, held_by

pytestmark = [pytest.mark.crash, pytest.mark.real_start]

HELD_BY_OTHERS = pytest.mark.parametrize("program", [SQLITE, BLOCK], ids=["sqlite", "begin"])
COMMANDS = (("topics", "create", "new"), ("produce", "t"), ("compact",), ("housekeeping",))


@pytest.fixture
def path(db_path: Path) -> Path:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        db.admin.create_topic("other")
    return db_path


def patiently(call: Callable[[], object]) -> None:
    """Call until the lock is had: on a busy machine the 20 ms of HASTY may pass without a holder."""
    while True:
        with contextlib.suppress(eosdb.DatabaseLockedError):
            call()
            return


@HELD_BY_OTHERS
def test_every_face_names_the_process_that_holds_the_lock(path: Path, program: str) -> None:
    db = eosdb.connect(path, config=HASTY)
    calls = {face: prepared(db) for face, prepared in FACES.items()}
    with held_by(program, path) as holder:
        with eosdb.connect(path, read_only=True) as reader:
            assert committed_values(reader, TP) == [], "readers do not wait"
        for face, call in calls.items():
            with pytest.raises(eosdb.DatabaseLockedError) as raised:
                call()
            check(str(raised.value), path, holder)
            assert raised.value.outcome == "not written", face
    assert (committed_values(db, TP), db.broker.offset_fetch("g")) == ([], {})
    for face in ("send", "transaction", "commit", "offsets in a transaction", "begin"):
        patiently(calls[face])
    assert committed_values(db, TP) == [b"v"] * 5, "each goes on when the lock is free"
    db.close()
    with eosdb.connect(path) as later:
        assert committed_values(later, TP) == [b"v"] * 5, "nor does closing store what was refused"
        assert later.broker.topics() == ["other", "t"]
        assert later.verify().ok


@HELD_BY_OTHERS
def test_commands_say_it_in_one_line(
    path: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hasty(session: Session, **_: object) -> eosdb.Database:
        return eosdb.connect(session.named_path(), config=HASTY)

    monkeypatch.setattr(Session, "open", hasty)
    with held_by(program, path) as holder:
        for command in COMMANDS:
            done = CliRunner().invoke(main, ["--db", str(path), *command], input="one\n")
            assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.output
            check(done.stderr.removeprefix("error: DatabaseLockedError: "), path, holder)


def test_a_block_of_the_same_database_is_told_with_its_thread(path: Path) -> None:
    begun, end = threading.Event(), threading.Event()
    with eosdb.connect(path, config=HASTY) as db:

        def hold() -> None:
            with db.begin():
                begun.set()
                end.wait()

        thread = threading.Thread(target=hold, name="import-job")
        thread.start()
        begun.wait()
        try:
            with pytest.raises(eosdb.DatabaseLockedError) as raised:
                db.producer().send("t", b"v").result()
        finally:
            end.set()
            thread.join()
        check(
            str(raised.value),
            path,
            r"this process: a block of db\.begin\(\).* of the thread import-job",
        )
        assert raised.value.outcome == "not written"


@pytest.mark.parametrize("is_eosdbs", [False, True], ids=["another library", "another database"])
def test_a_connection_of_this_process_is_told_as_such(path: Path, is_eosdbs: bool) -> None:
    """In this very thread."""
    connection = sqlite3.connect(path, isolation_level=None)
    with eosdb.connect(path) as other, eosdb.connect(path, config=HASTY) as db:
        block = other.begin()
        block.__enter__() if is_eosdbs else connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(eosdb.DatabaseLockedError) as raised:
            db.admin.create_topic("new")
        check(str(raised.value), path, rf"this process {os.getpid()} \(")
        block.__exit__(None, None, None) if is_eosdbs else connection.execute("ROLLBACK")
        db.admin.create_topic("new")
    connection.close()


def test_a_wait_is_one_for_all_threads(path: Path) -> None:
    """Those that wait together are refused together, and who comes later waits for its own time."""
    told: list[BaseException] = []
    with (
        eosdb.connect(path, config=HASTY) as db,
        held_by(SQLITE, path) as holder,
    ):

        def write(number: int) -> None:
            try:
                db.admin.create_topic(f"new-{number}")
            except eosdb.DatabaseLockedError as error:
                told.append(error)

        threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(told) == 8
        for error in told:
            check(str(error), path, holder)
