"""Ctrl-C and SIGTERM end a command, whatever it is doing, and the exit status tells which it was."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import IO

import pytest

import eosdb
from tests.maintenance.test_untrusted import altered
from tests.programs import ended

pytestmark = pytest.mark.process

Start = Callable[..., "subprocess.Popen[str]"]
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
both = pytest.mark.parametrize("number", STATUS)


@pytest.fixture(autouse=True)
def path(db_path: Path) -> Path:
    eosdb.connect(db_path).close()
    return db_path


def check(process: subprocess.Popen[str], number: signal.Signals) -> None:
    process.send_signal(number)
    _, complaint = process.communicate(timeout=120)
    assert (process.returncode, complaint.strip()) == (STATUS[number], "Aborted!")


def until_it_has_open(process: subprocess.Popen[str], path: Path, child: str | None = None) -> None:
    while process.poll() is None:
        for file in Path(f"/proc/{child or process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # It has been closed.
                if os.path.samefile(file, path):
                    return


@both
def test_a_query_that_never_ends_is_interrupted(start: Start, number: signal.Signals) -> None:
    process = start("sql", f"{ENDLESS} SELECT x FROM c WHERE x < 5000 OR x < 0", "--format", "csv")
    assert process.stdout is not None
    assert process.stdout.readline() == "x\n"
    check(process, number)


@both
def test_so_is_one_that_has_no_row_yet(path: Path, start: Start, number: signal.Signals) -> None:
    process = start("sql", f"{ENDLESS} SELECT max(x) FROM c")
    until_it_has_open(process, path)
    check(process, number)


@both
def test_the_check_of_a_file_from_elsewhere_ends_with_its_process(
    path: Path, start: Start, number: signal.Signals
) -> None:
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
    long = "'[' || replace(hex(zeroblob(25000000)), '00', '0,') || '0]'"
    altered(path, f"UPDATE eosdb_journal SET detail = {long}", table="eosdb_journal")
    process = start("verify", "--untrusted")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (others := children.read_text().split()):
        assert process.poll() is None
    until_it_has_open(process, path, others[0])
    check(process, number)
    assert not Path("/proc", others[0]).exists()


@both
def test_a_wait_for_the_write_lock_is_interrupted(
    path: Path, start: Start, number: signal.Signals
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        process = start("topics", "create", "t")
        until_it_has_open(process, path)
        check(process, number)


FOLLOWING = (
    "consume t --from-beginning --follow",
    "consume t --last 4000 --follow",
    "journal --last 4000 --follow",
)


def waiting_in(pipe: IO[str]) -> int:
    found = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, found)
    return found[0]


@both
@pytest.mark.parametrize("is_printing", [True, False])
@pytest.mark.parametrize("command", [*FOLLOWING, "top -b -d 3600"])
def test_what_follows_ends_well_at_whatever_instant_it_is_stopped(
    path: Path, start: Start, command: str, is_printing: bool, number: signal.Signals
) -> None:
    """While it waits for more, and while it prints into a pipe that nobody empties."""
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
        db.producer().send_many("t", ["v" * 50] * (4_000 if is_printing else 1))
        if is_printing:
            for name in range(300):
                db.admin.create_topic(f"{'long' * 50}-{name}")
    process = start(*command.split())
    assert process.stdout is not None
    while waiting_in(process.stdout) < (60_000 if is_printing else 1):
        assert process.poll() is None
    process.send_signal(number)
    _, complaint = process.communicate(timeout=120)
    assert (process.returncode, complaint) == (0, "")


@pytest.mark.real_start
@pytest.mark.parametrize(
    ("number", "ignored"),
    [
        (signal.SIGINT, None),
        (signal.SIGTERM, signal.SIGINT),  # A shell's `&` ignores SIGINT, and `nohup` SIGHUP.
        (signal.SIGTERM, signal.SIGHUP),
        (signal.SIGHUP, signal.SIGINT),
    ],
)
def test_a_file_that_follows_is_whole_when_it_is_stopped(
    path: Path, start: Start, tmp_path: Path, number: signal.Signals, ignored: signal.Signals | None
) -> None:
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
        db.producer().send_many("t", map(str, range(100)))
    before = ignored and signal.signal(ignored, signal.SIG_IGN)
    process = start("consume", "t", "--from-beginning", "--follow", "-o", str(tmp_path / "out"))
    if ignored:
        signal.signal(ignored, before)
    while not any(part.stat().st_size >= 290 for part in tmp_path.glob("out.*.part")):
        assert process.poll() is None
    if ignored:
        process.send_signal(ignored)
    process.send_signal(number)
    assert process.communicate() == ("", "")
    assert (process.returncode, (tmp_path / "out").read_text().split()) == (
        0, [str(number) for number in range(100)],
    )  # fmt: skip


TWICE = """
import signal
from eosdb.cli import stopping
stopping.leaving_on_interrupt()
stopping.raising_on_interrupt()
try:
    signal.raise_signal(signal.SIGTERM)
except KeyboardInterrupt:
    signal.raise_signal(signal.SIGTERM)
    print(stopping.exit_status(), flush=True)
    signal.raise_signal(signal.SIGINT)
    print("still there")
"""


def test_ctrl_c_while_a_command_cleans_up_ends_it_and_another_sigterm_does_not() -> None:
    done = ended([sys.executable, "-c", TWICE])
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "143\n")
