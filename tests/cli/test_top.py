"""`eosdb top` in a real pseudo-terminal: what it shows, what its keys do, and what it leaves behind."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.cli.commands.top import screen as top_screen
from eosdb.cli.commands.top import top as top_terminal
from eosdb.cli.commands.top.tables import TABLES, count
from tests.cli import screen
from tests.cli.conftest import Run
from tests.cli.screen import Screen
from tests.store.locked import SQLITE, held_by

pytestmark = [pytest.mark.process, pytest.mark.slow]

TP = TopicPartition("orders", 0)
HOSTILE = {
    "control": "a\x1b[2J\x07\n\rb",
    "right to left": "\u05d0\u05d1\u202e abc",
    "wide": "\u4e2d\u6587" * 40,
    "long": "x" * 249,
    "emoji": "\u2764\ufe0f" * 10,
}


SHELL = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen(sys.argv[1:], process_group=0)
os.tcsetpgrp(0, job.pid)
sys.exit(job.wait())
"""
"""Starts a job in the foreground, as a shell does: only such a one can be stopped."""


@pytest.fixture
def busy(db_path: Path) -> Iterator[eosdb.Database]:
    """Two topics, three groups, and a transaction that holds the LSO before three committed records."""
    with eosdb.connect(db_path, durability="normal") as db:
        for name in ("orders", "payments"):
            db.admin.create_topic(name)
        db.broker.append(TP, RecordBatch([Record(value=b"v")] * 50))
        for group, offset in (("billing", 10), ("audit", 50), ("mail", 45)):
            db.broker.offset_commit(group, {TP: OffsetAndMetadata(offset)})
        stuck = db.producer(transactional_id="stuck")
        stuck.init_transactions()
        stuck.begin_transaction()
        stuck.send("orders", b"v")
        stuck.flush()
        quick = db.producer(transactional_id="quick")
        quick.init_transactions()
        for _ in range(3):
            with quick.transaction():
                quick.send("orders", b"v")
        db.producer().send("orders", b"v", deliver_at=2**50).result()
        yield db


def start(db_path: Path, *arguments: str, columns: int = 80, lines: int = 24) -> Screen:
    return screen.eosdb("top", str(db_path), *arguments, columns=columns, lines=lines)


def names(text: str, *known: str) -> list[str]:
    """The names of these in the order in which lines end with them."""
    ends = [line.split()[-1] for line in text.splitlines() if line.split()]
    return [end for end in ends if end in known]


def test_it_shows_all_that_happens_and_the_keys_choose(busy: eosdb.Database, db_path: Path) -> None:
    with start(db_path, "-d", "600") as top:
        text = top.until("0 offsets/s")
        assert "3 groups, 2 behind" in text
        assert "partitions, 1 scheduled" in text
        assert "1 open transaction, 1 at the LSO (3 records held)" in text
        assert names(text, "billing", "mail", "audit") == ["billing", "mail", "audit"]
        assert any(
            line.split()[2:4] == ["1/1", "3"] for line in text.splitlines() if "stuck" in line
        )
        busy.broker.append(TopicPartition("payments", 0), RecordBatch([Record(value=b"v")] * 99))
        top.press(" ")
        top.until(lambda: names(top.text(), "orders", "payments") == ["payments", "orders"])
        top.press("/BILL\r")
        text = top.until("names that contain BILL")
        assert names(text, "billing", "mail", "orders") == ["billing"]
        top.press("\x1b")
        top.until("mail")
        top.press("1R")
        top.until(lambda: names(top.text(), "audit", "billing") == ["audit", "billing"])
        assert "TOPIC" not in top.text()
        top.press("\t\t")
        top.until(lambda: "OFFSETS" in top.text() and "GROUP" not in top.text())
        top.press("h")
        top.until("the column left or right")
        top.press("x")
        top.press("d0,5\r")
        top.until("expected seconds such as 0.5")
        top.press("d0.5\r")
        top.until("every 0.5 s")
        top.press("q")
        assert top.end() == 0
        assert top.is_as_before()


def test_it_fits_every_size_and_follows_it(busy: eosdb.Database, db_path: Path) -> None:
    with start(db_path, "-d", "600") as top:
        top.until("DEAD LETTERS [4] none")
        top.resize(120, 40)
        top.until("FURTHEST")
        top.resize(20, 4)
        top.until(lambda: "FURTHEST" not in top.text() and "eosdb top" in top.text())
        top.resize(80, 24)
        top.until("DEAD LETTERS [4] none")


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_name_breaks_the_screen(busy: eosdb.Database, db_path: Path, kind: str) -> None:
    name = HOSTILE[kind]
    busy.broker.offset_commit(name, {TP: OffsetAndMetadata(1)})
    with start(db_path, "-d", "600") as top:
        lines = top.until("DEAD LETTERS [4] none").splitlines()
        assert lines[0].startswith("eosdb top")
        assert [line.split()[0] for line in lines[6:9]] == ["49", "40", "5"]
        assert sum("[4]" in line for line in lines) == 1


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_the_terminal_is_as_before(
    busy: eosdb.Database, db_path: Path, which: signal.Signals
) -> None:
    with start(db_path) as top:
        top.until("DEAD LETTERS")
        if which is signal.SIGINT:
            top.press("\x03")
        else:
            os.kill(top.process.pid, which)
        assert top.end() == 128 + which
        assert top.is_as_before()
        assert b"Traceback" not in top.sent


def test_it_can_be_stopped_and_goes_on(busy: eosdb.Database, db_path: Path) -> None:
    with Screen(
        sys.executable, "-c", SHELL,
        sys.executable, "-m", "eosdb.cli", "top", str(db_path), "-d", "600",
    ) as top:  # fmt: skip
        top.until("DEAD LETTERS")
        job = os.tcgetpgrp(top.keyboard)
        os.kill(job, signal.SIGTSTP)
        top.until(
            lambda: Path(f"/proc/{job}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        )
        top.until(top.is_as_before)
        os.kill(job, signal.SIGCONT)
        top.until(lambda: top.sent.endswith(b"\x1b[J") and not top.is_as_before())
        top.press("q")
        assert top.end() == 0
        assert top.is_as_before()


def test_a_file_that_goes_and_comes_back_is_followed(
    busy: eosdb.Database, db_path: Path, tmp_path: Path
) -> None:
    with eosdb.connect(tmp_path / "other.db") as other:
        other.admin.create_topic("another-one")
    with start(db_path, "-d", "0.1") as top:
        top.until("payments")
        busy.close()
        for suffix in ("", "-wal", "-shm"):  # A WAL must never be left for another file.
            Path(f"{db_path}{suffix}").unlink(missing_ok=True)
        assert "payments" in top.until("DatabaseNotFoundError")
        os.replace(tmp_path / "other.db", db_path)
        top.until(lambda: "another-one" in top.text() and "payments" not in top.text())


def test_it_holds_no_snapshot_between_two_readings(busy: eosdb.Database, db_path: Path) -> None:
    with start(db_path, "-d", "600") as top:
        top.until("0 offsets/s")
        busy.broker.append(TP, RecordBatch([Record(value=b"v" * 1_000)] * 900))
        assert busy.info()["wal_held_by"] == ""
        top.press(" ")
        top.until("903 records held")
        assert busy.info()["wal_held_by"] == ""


def test_a_batch_is_plain_text_with_every_row(busy: eosdb.Database, run: Run) -> None:
    for number in range(60):
        busy.broker.offset_commit(f"group-{number}", {TP: OffsetAndMetadata(number % 50)})
    written = run("top", "-b", "-n", "2", "-d", "0.6").output
    assert written.count("eosdb top") == 2
    assert all(f"group-{number}\n" in written for number in range(60))
    assert "\x1b" not in written
    assert "0 offsets/s" in written.split("eosdb top")[2]
    assert "\nGroup group-0 has no member and 50 records to read in orders/0." in written


def test_a_program_that_keeps_the_write_lock_is_named(
    busy: eosdb.Database, db_path: Path, run: Run
) -> None:
    with held_by(SQLITE, db_path):
        written = run("top", "-b", "-n", "1").output
    assert re.search(r"\nThe write lock of \S+ is held by process \d+ \(", written), written


def test_what_cannot_be_shown_is_one_line(run: Run, db_path: Path) -> None:
    refused = run("top")
    assert (refused.exit_code, "use -b" in refused.output or "-b writes" in refused.output) == (
        2,
        True,
    )
    missing = run("top", "-b", "-n", "1")
    assert missing.exit_code == 1
    assert missing.output.count("\n") == 1


def test_keys_are_what_terminals_send() -> None:
    typed = "a\x1b[A\x1b[5~\x1b[1;5C\x1bOB\x1b[Z\t\r\x7f\x1b"
    assert top_terminal.parsed(typed) == [
        "a", "up", "pageup", "down", "backtab", "tab", "enter", "backspace", "escape"
    ]  # fmt: skip


def test_the_sort_column_stays_among_those_that_are_shown() -> None:
    view = top_screen.View(table=1)
    for _ in range(20):
        view = top_screen.press(view, ">", 80, 24)
    assert view.sort[1] == len(TABLES[1].columns) - 1
    seen = set()
    for _ in range(20):
        view = top_screen.press(view, "<", 80, 24)
        seen.add(TABLES[1].columns[view.sort[1]].title)
    assert (view.sort[1], "PRODUCER" in seen) == (0, False)


def test_large_counts_are_short() -> None:
    assert [count(n) for n in (0, 999_999, 12_345_678)] == ["0", "999,999", "12.3M"]
