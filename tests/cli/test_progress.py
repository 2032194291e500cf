"""Progress of long work: lines where nobody looks, a bar on a terminal, and never a word on stdout."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import eosdb
from eosdb import ManualClock
from eosdb.cli.progress import progress

Run = Callable[..., Result]


def test_a_line_every_five_seconds_with_rate_and_time_left(
    clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress(clock, "verify", "events") as report:
        clock.advance(60_000)  # What goes before the work itself is no part of its rate.
        report(0, 4_000_000)
        capsys.readouterr()
        for done in range(400_000, 4_000_001, 400_000):
            clock.advance(2_000)
            report(done, 4_000_000)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "verify: 1,200,000 of 4,000,000 events (30 %), 200,000 a second, 14 s left",
        "verify: 2,400,000 of 4,000,000 events (60 %), 200,000 a second, 8 s left",
        "verify: 3,600,000 of 4,000,000 events (90 %), 200,000 a second, 2 s left",
    ]


def test_short_work_says_nothing(clock: ManualClock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(clock, "backup", "pages") as report:
        report(0, 0)
        report(0, 10)
        clock.advance(4_999)
        report(10, 10)
    assert capsys.readouterr() == ("", "")


def test_units_may_be_other_than_what_the_share_is_of(
    clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `ingest` has it: records are counted, bytes are what there is to do; some were done before."""
    with progress(clock, "in.csv", "records") as report:
        report(5_000, 10_000, 0)
        clock.advance(10_000)
        report(7_500, 10_000, 50)
        clock.advance(10_000)
        report(12_000, 10_000, 140)
    assert capsys.readouterr().err.splitlines() == [
        "in.csv: 50 records (75 %), 5 a second, 10 s left",
        "in.csv: 140 records (100 %), 7 a second, 0 s left",
    ]


def test_without_a_total_there_is_neither_a_share_nor_an_end(
    clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress(clock, "in.gz", "records") as report:
        report(0, None, 0)
        clock.advance(5_000)
        report(9_999, None, 50)
    assert capsys.readouterr().err == "in.gz: 50 records, 10 a second\n"


def on_a_terminal(*arguments: str) -> tuple[str, str, int]:
    """What a command writes to stdout, and to a terminal of 90 columns as its stderr; its status."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 90, 0, 0))
    command = [sys.executable, "-m", "eosdb.cli", *arguments]
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=slave, text=True, env=environment
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            data = os.read(master, 65_536)
        except OSError:  # Linux says so when the other end is closed.
            break
        if not data:
            break
        shown += data
    os.close(master)
    out, _ = process.communicate()
    return out, shown.decode(), process.returncode


@pytest.mark.process
def test_a_bar_on_a_terminal(run: Run, db_path: Path, tmp_path: Path) -> None:
    run("init")
    run("topics", "create", "t")
    (tmp_path / "[red]in.txt").write_text("x\n" * 500)
    out, shown, status = on_a_terminal(
        "--db", str(db_path), "ingest", "t", str(tmp_path / "[red]in.txt"),
        "--transaction-size", "10",
    )  # fmt: skip
    assert (out, status) == ("", 0), shown
    assert "[red]in.txt " in shown
    assert "━" in shown
    assert "500 records (100 %), " in shown
    assert " a second, 0 s left" in shown
    out, shown, status = on_a_terminal("--db", str(db_path), "verify")
    with eosdb.connect(db_path, read_only=True) as db:
        events = db.info()["journal_position"]
    assert (out.startswith(f"ok: {events} events, "), status) == (True, 0), out
    assert f"{events} events (100 %), " in shown


@pytest.mark.process
def test_a_closed_stderr_is_no_traceback(run: Run, db_path: Path, tmp_path: Path) -> None:
    run("init")
    run("topics", "create", "t")
    (tmp_path / "in.txt").write_text("x\n")
    command = f"{sys.executable} -m eosdb.cli --db {db_path} ingest t {tmp_path}/in.txt 2>&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert done.returncode == 0
    assert run("consume", "t", "--from-beginning").stdout == "x\n"
