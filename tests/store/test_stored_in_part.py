"""A full disk ends a call that makes several writes: its error tells what is stored, and claims no more."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import eosdb
from eosdb import TopicPartition
from eosdb.client.processor import dead_letters
from eosdb.log import retention
from eosdb.store.writing.group_commit import UnitRequest
from eosdb.store.writing.writer import Writer
from tests.cli.conftest import MAIN

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)
LONG = "v" * 100_000
Call = Callable[[eosdb.Database], object]


def out_of_room() -> sqlite3.Error:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


def raised(call: Call) -> Callable[[eosdb.Database], tuple[str, bool]]:
    """The error's text, and whether it says that nothing is stored."""

    def told(db: eosdb.Database) -> tuple[str, bool]:
        try:
            call(db)
        except eosdb.DatabaseFullError as error:
            return str(error), error.outcome == "not written"
        return "", False

    return told


def command(*words: str, stdin: str = "") -> Callable[[eosdb.Database], tuple[str, bool]]:
    def told(db: eosdb.Database) -> tuple[str, bool]:
        path = Path(db.path)
        (path.parent / "in.txt").write_text("line\n" * 20)
        given = [word.replace("IN", str(path.parent / "in.txt")) for word in words]
        done = CliRunner().invoke(MAIN, ["--db", db.path, *given], input=stdin)
        # `ingest` is repeated as a whole, whatever is stored: its status is that of the failed write.
        error = done.stderr.partition("error: ")[2]  # After lines of the log.
        return error, done.exit_code == 1 and words[0] != "ingest"

    return told


def replay(db: eosdb.Database) -> None:
    db.dead_letters("dead").replay(to="t")


CALLS = {
    "send_many": (raised(lambda db: db.producer().send_many("t", [b"v"] * 20_000)), "records are stored"),
    "dlq replay": (raised(replay), "are replayed"),
    "produce": (command("produce", "t", stdin=f"{LONG}\n" * 30), "lines of the input are stored"),
    "ingest": (command("ingest", "t", "IN", "--transaction-size", "5"), "records are stored"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_a_full_disk_ends_tells_how_much_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    call, words = CALLS[name]
    monkeypatch.setattr(dead_letters, "_TRANSACTION_SIZE", 2)
    run, parts = Writer.run, 0
    for room in range(1, 100):
        left = room
        caplog.clear()

        def run_while_there_is_room(writer: Writer, batch: list[UnitRequest]) -> None:
            nonlocal left
            if left == 0:
                raise out_of_room()
            left -= 1
            run(writer, batch)

        with eosdb.connect(tmp_path / f"{room}.db") as db:
            for topic in ("t", "dead"):
                db.admin.create_topic(topic)
            db.producer().send_many("dead", [b"letter"] * 6)
            with monkeypatch.context() as full:
                full.setattr(Writer, "run", run_while_there_is_room)
                told, says_nothing = call(db)
            is_done = "disk is full" not in told
            found = db.query("SELECT count(*) FROM committed_records WHERE topic = 't'").one()[0]
            if is_done:
                assert parts, "it has failed, but never in part"
                return
            assert (found > 0) <= (not says_nothing and "nothing was written" not in told)
            if found:
                parts += 1
                assert "writes fail" in caplog.text
                assert "nothing was written" not in caplog.text
                assert re.search(rf"\b{found:,}\b|\b{found}\b", told.partition(words)[0]), told
    raise AssertionError(f"{name} never ends")


def test_records_that_were_deleted_before_the_disk_was_full_are_named(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.admin.create_topic("t")
    for _ in range(10):
        db.producer().send_many("t", [b"v"] * 10)
    monkeypatch.setattr(retention, "_ROWS_PER_REQUEST", 10)
    run, calls = Writer.run, 0

    def run_once(writer: Writer, batch: list[UnitRequest]) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise out_of_room()
        run(writer, batch)

    with monkeypatch.context() as full:
        full.setattr(Writer, "run", run_once)
        with pytest.raises(eosdb.DatabaseFullError) as raised:
            db.broker.delete_records(TP, 100)
    start = db.broker.offsets(TP).log_start_offset
    assert 0 < start < 100
    assert f"the records below offset {start} are deleted" in str(raised.value)
