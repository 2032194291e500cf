"""`eosdb inspect rebuild`, `backup` and `restore`: what they make, and what they are refused."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import eosdb
from eosdb.store.schema.newest import SCHEMA_VERSION
from eosdb.store.schema.row_checksum import row_checksum
from tests.readers import dump_state

pytestmark = pytest.mark.slow

Run = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def _records(run: Run) -> None:
    run("init")
    run("topics", "create", "orders")
    run("produce", "orders", stdin="one\ntwo\n")


def values(path: Path) -> list[bytes]:
    with eosdb.connect(path, read_only=True) as db:
        return [value for (value,) in db.query("SELECT value FROM committed_records").rows]


def test_rebuild_mends_what_verify_finds(run: Run, db_path: Path) -> None:
    connection = sqlite3.connect(db_path)
    connection.execute("UPDATE partitions SET log_end_offset = 99")
    connection.commit()
    connection.close()
    found = run("verify")
    assert (found.exit_code, found.stderr.count("\n")) == (1, 1)
    assert "partitions" in found.stdout
    assert "`eosdb inspect rebuild`" in found.stderr
    result = run("rebuild")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("rebuilt from ")
    assert run("verify").exit_code == 0


def test_a_file_of_a_newer_schema_can_be_backed_up(run: Run, db_path: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(db_path)
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    (row,) = connection.execute("SELECT file_id, first_release, place FROM eosdb_file").fetchall()
    columns = (row[0], SCHEMA_VERSION + 1, *row[1:])
    connection.execute(
        "UPDATE eosdb_file SET read_version = ?, checksum = ?", (columns[1], row_checksum(*columns))
    )
    connection.commit()
    connection.close()
    before = dump_state(db_path)
    target = tmp_path / "copy.db"
    result = run("backup", str(target))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "exists already" in run("backup", str(target)).stderr
    assert dump_state(target) == before
    copy = sqlite3.connect(target)
    assert copy.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 1,)
    needed = copy.execute("SELECT read_version FROM eosdb_file").fetchone()
    assert needed == (SCHEMA_VERSION + 1,)
    copy.close()


def test_a_backup_is_the_same_file_and_is_never_overwritten(
    run: Run, db_path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "copy.db"
    result = run("backup", str(target))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"copied to {target}: {target.stat().st_size} bytes, ")
    assert dump_state(target) == dump_state(db_path)
    for command in (("backup", str(target)), ("restore", str(target), "--position", "1")):
        again = run(*command)
        assert again.exit_code == 1
        assert again.stderr.startswith("error: IllegalStateError: ")
        assert again.stderr.count("\n") == 1


@pytest.mark.parametrize("target", ["", "no folder/copy.db", "."])
def test_a_target_that_cannot_be_is_one_line(run: Run, target: str) -> None:
    result = run("backup", target)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_restore_goes_back_to_a_position_or_a_time(run: Run, db_path: Path, tmp_path: Path) -> None:
    with eosdb.connect(db_path) as db:
        position = db.info()["journal_position"]
        noon = 1_700_000_000_000
        run("produce", "orders", stdin="three\n")
    by_position = run("restore", str(tmp_path / "p.db"), "--position", str(position))
    assert by_position.exit_code == 0, by_position.stderr
    assert f"as it was after position {position}, " in by_position.stdout
    assert values(tmp_path / "p.db") == [b"one", b"two"]
    assert values(db_path) == [b"one", b"two", b"three"]
    for number, time in enumerate((str(noon), "2023-11-14T22:13:20", "2023-11-15")):
        result = run("restore", str(tmp_path / f"{number}.db"), "--timestamp", time)
        assert "timestamp: got 2023-11-1" in result.stderr
    assert run("restore", str(tmp_path / "now.db"), "--timestamp", "2999-01-01").exit_code == 0
    assert values(tmp_path / "now.db") == [b"one", b"two", b"three"]


@pytest.mark.parametrize("arguments", [
    (), ("--position", "1", "--timestamp", "1"), ("--position", "-1"), ("--position", "x"),
    ("--timestamp", "yesterday"), ("--timestamp", "2026-02-30"), ("--timestamp", "-5"),
    ("--timestamp", "9" * 30), ("--timestamp", "1969-12-31"),
], ids=" ".join)  # fmt: skip
def test_times_and_positions_that_are_none_are_wrong_usage(
    run: Run, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    result = run("restore", str(tmp_path / "then.db"), *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert not (tmp_path / "then.db").exists()


def test_a_time_before_the_first_event_is_refused(run: Run, db_path: Path, tmp_path: Path) -> None:
    result = run("restore", str(tmp_path / "then.db"), "--timestamp", "2001-01-01T00:00")
    assert result.exit_code == 1
    assert "which is before the first event, at " in result.stderr
    assert not (tmp_path / "then.db").exists()
    assert run("restore", str(tmp_path / "empty.db"), "--position", "0").exit_code == 0


def test_a_position_beyond_the_journal_is_refused(run: Run, tmp_path: Path) -> None:
    for position in ("999", "9" * 30):
        result = run("restore", str(tmp_path / "then.db"), "--position", position)
        assert result.exit_code == 1
        assert result.stderr.startswith("error: INVALID_REQUEST: position: got ")


def test_compact_says_how_much_smaller_the_file_is(run: Run, db_path: Path) -> None:
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("large")
        db.producer(max_request_size=2_000_000).send("large", b"x" * 900_000)
        db.admin.delete_topic("large")
    size = db_path.stat().st_size
    result = run("compact")
    after = db_path.stat().st_size
    assert after < size - 800_000
    assert re.fullmatch(rf"compacted from {size} to {after} bytes, \d\.\d s\n", result.stdout)
    with sqlite3.connect(db_path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM records").fetchone()
        held = run("compact").stdout.splitlines()[1]
    assert held.startswith(f"this process {os.getpid()} ")


@pytest.mark.process
@pytest.mark.parametrize("command", [("backup", "copy.db"), ("compact",)], ids=" ".join)
def test_an_interrupted_copy_leaves_nothing_and_changes_nothing(
    command: tuple[str, ...], run: Run, start: Start, db_path: Path, tmp_path: Path
) -> None:
    with eosdb.connect(db_path, durability="off") as db:
        producer = db.producer(batch_size=1_000_000)
        for _ in range(400):
            producer.send("orders", b"x" * 1_000_000)
        producer.flush()
    size = db_path.stat().st_size
    process = start(command[0], *(str(tmp_path / name) for name in command[1:]))
    while process.poll() is None and not list(tmp_path.glob("*unfinished*")):
        pass
    process.send_signal(signal.SIGINT)
    out, complaint = process.communicate()
    assert (process.returncode, out, complaint.strip()) == (130, "", "Aborted!")
    assert not [*tmp_path.glob("*unfinished*"), *tmp_path.glob("copy.db*")]
    assert db_path.stat().st_size == size
    assert len(values(db_path)) == 402
