"""What the parts of the demo share: the table of checks, programs that are started and killed, and a look
into the file beside them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

import eosdb

PARTITIONS = 4
HERE = Path(__file__).parent
CONSOLE = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
STEPS = (
    "write the flights as NDJSON",
    "ingest them by a program that is killed twice",
    "ingest a file by two programs at once: the second fences the first",
    "find the late ones by a program that is killed twice",
    "sum delays by a Spark stream that is killed twice, while more flights arrive",
    "compare what all readers see with pandas",
    "draw the pictures, and verify the file",
)
KILLS: list[tuple[int, str]] = []
"""The time (epoch ms) and the name of each program that was killed."""


@dataclass
class Checks:
    """What was checked, and whether it held."""

    rows: list[tuple[str, str, str, bool]] = field(default_factory=list)

    def equal(self, what: str, found: object, expected: object) -> None:
        seen, due = (str(v) if len(str(v)) < 40 else "…" for v in (found, expected))
        self.rows.append((what, seen, due, found == expected))

    @property
    def ok(self) -> bool:
        return all(row[-1] for row in self.rows)

    def show(self) -> None:
        table = Table(title="What was checked", title_justify="left")
        for column in ("check", "found", "expected", ""):
            table.add_column(column)
        for what, found, expected, held in self.rows:
            table.add_row(what, found, expected, "[green]ok" if held else "[bold red]WRONG")
        CONSOLE.print(table)


_status = CONSOLE.status("")


@contextlib.contextmanager
def step(number: int) -> Iterator[None]:
    """One of STEPS: a line that moves while it is under way, and at the end how long it took."""
    text, began = f"{number}/{len(STEPS)} {STEPS[number - 1]}", time.monotonic()
    _status.update(f"{text} …")
    with _status:
        yield
    CONSOLE.print(f"{text}: {time.monotonic() - began:.1f} s")


def say(text: str) -> None:
    CONSOLE.print(f"    {text}", markup=False)


def progress(done: int, of: int, what: str) -> None:
    """The line that moves."""
    _status.update(f"    {done:,} of {of:,} {what}")


class Program:
    """A program of Python in a session of its own, so that what it has started is killed with it. The end
    of its standard input tells it that it may end, also when this process is gone."""

    def __init__(self, *command: object) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # Lives as long.
        self._process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdin=subprocess.PIPE, stderr=self._errors, start_new_session=True,
        )  # fmt: skip

    def is_running(self) -> bool:
        """Whether it is still there after a hundredth of a second."""
        try:
            self._process.wait(timeout=0.01)
        except subprocess.TimeoutExpired:
            return True
        return False

    def kill(self, name: str) -> int:
        """It, and what it has started. Returns the signal by which it ended."""
        if self._process.poll() is None:
            KILLS.append((time.time_ns() // 1_000_000, f"{name} killed"))
            os.killpg(self._process.pid, signal.SIGKILL)
        return -self.end(expected=-signal.SIGKILL)

    def end(self, expected: int = 0) -> int:
        """Let it come to its end. Returns its exit status, and shows its last words if that is another."""
        self._process.communicate()
        if self._process.returncode != expected:
            say(self.complaint()[-2_000:])
        return self._process.returncode

    def complaint(self) -> str:
        """What it has written to its standard error."""
        self._errors.seek(0)
        return self._errors.read().strip()


# -- what is there -----------------------------------------------------------------------------


def stable_records(db: eosdb.Database, topic: str) -> int:
    """Offsets below the last stable offsets: records, and the markers among them."""
    return sum(
        db.broker.offsets(eosdb.TopicPartition(topic, i)).last_stable_offset
        for i in range(PARTITIONS)
    )


def committed(path: Path, topic: str) -> int:
    with eosdb.connect(path, read_only=True) as db:
        query = "SELECT count(*) FROM committed_records WHERE topic = ?"
        ((count,),) = db.query(query, (topic,)).rows
    return int(count)
