"""`eosdb top`: the activity of a file on a terminal, refreshed like `top`.

`Reader` holds no snapshot between two readings, and survives errors and the replacement of the file.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Final

import click

import eosdb
from eosdb.cli import output
from eosdb.cli.file_command import FileCommand
from eosdb.cli.output import cell
from eosdb.cli.session import Session
from eosdb.cli.stopping import until_stopped
from eosdb.errors import EosdbError
from eosdb.model.clock import SystemClock
from eosdb.model.closing import Closeable
from eosdb.model.overview import Overview, between
from eosdb.model.values import TopicPartition

from . import screen as top_screen
from .screen import DELAY_MAX, DELAY_MIN, Reading, View

_STEADY_MS: Final = 500
"""The least time over which a rate is computed; shorter ones would fluctuate."""
_COUNTED_MAX: Final = 10_000
"""If more offsets than this wait for a transaction, markers are counted as records."""


class Reader(Closeable):
    """`read` takes a reading; `note` is the last error, or says that the file was replaced."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._db: eosdb.Database | None = None
        self._inode: tuple[int, int] | None = None
        self._base: Overview | None = None
        self._last: Overview | None = None
        self.note = ""

    def first(self) -> Reading:
        """Take the first reading. Raises the errors of `connect`."""
        return self._read()

    def read(self) -> Reading | None:
        """Take a reading. Returns None if the file cannot be read: `note` has the reason, the next call
        retries."""
        try:
            self.note = ""
            return self._read()
        except (EosdbError, OSError) as error:
            self.note = _text_of(error)
            try:
                self.close()
            except (EosdbError, OSError) as second:
                self.note = _text_of(second)
            return None

    def close(self) -> None:
        opened, self._db = self._db, None
        if opened is not None:
            opened.close()

    def _read(self) -> Reading:
        if self._db is not None and _inode(self._db.path) != self._inode:
            self.close()
            self.note = "the file has been replaced: this is the new one"
        if self._db is None:
            self._db = self._session.open(read_only=True)
            self._inode = _inode(self._db.path)
        overview = self._db.admin.overview()
        if self._last is None or overview.now_ms - self._last.now_ms >= _STEADY_MS:
            self._base, self._last = self._last, overview
        base = self._base
        return Reading(
            overview=overview,
            rates=None if base is None else between(base, overview),
            waiting=_waiting(self._db, overview),
        )


def _inode(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _text_of(error: EosdbError | OSError) -> str:
    if isinstance(error, OSError):
        return cell(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return cell(f"{type(error).__name__}: {error}")


def _waiting(db: eosdb.Database, overview: Overview) -> dict[TopicPartition, int]:
    """Count the records that wait in each partition whose LSO a transaction holds."""
    offsets = {partition.topic_partition: partition.offsets for partition in overview.partitions}
    waiting = {}
    for holder in overview.holders():
        tp = holder.topic_partition
        behind = offsets[tp].log_end_offset - offsets[tp].last_stable_offset
        if behind <= _COUNTED_MAX // max(len(overview.transactions), 1):
            behind = db.admin.diagnose(tp).waiting_committed
        waiting[tp] = behind
    return waiting


_FIRST_S: Final = 0.6
"""Delay of the second reading, which gives the first rates."""


@click.command(cls=FileCommand)
@click.option(
    "-d", "--delay", "delay_s", type=click.FloatRange(DELAY_MIN, DELAY_MAX), default=2.0,
    show_default=True, metavar="SECONDS", help="Time between two readings.",
)  # fmt: skip
@click.option(
    "-n", "--iterations", "iterations", type=click.IntRange(min=1), metavar="COUNT",
    help="Stop after this many readings.",
)  # fmt: skip
@click.option(
    "-b", "--batch", is_flag=True, help="Print plain text with all rows, for files and pipes."
)
def top(session: Session, delay_s: float, iterations: int | None, batch: bool) -> None:
    """Show the activity of a file, such as lag, live: groups, open transactions and the records behind
    them, topics by rate, dead letters, and the growth of the file and its WAL.

    Only reads, and holds no lock or snapshot between two readings. Press h for the keys.

    \b
    Example:
      eosdb top shop.db
      eosdb top shop.db -b -n 2 -d 10 > shop.txt
    """
    view = View(delay_s=delay_s)
    if batch:
        _in_batches(session, view, iterations)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("standard input or output is not a terminal; use -b for plain text")
    try:
        import termios  # noqa: F401 – missing on some systems
    except ModuleNotFoundError:
        raise click.UsageError("this system cannot read single keys (no termios); use -b") from None
    _on_screen(session, view, iterations)


def _in_batches(session: Session, view: View, iterations: int | None) -> None:
    until_stopped()
    clock = SystemClock()
    done = 0
    with Reader(session) as reader:
        reading = reader.first()
        while True:
            output.lines(top_screen.batch(reading, reader.note, view))
            sys.stdout.flush()
            done += 1
            if iterations is not None and done >= iterations:
                return
            clock.sleep_ms(round(view.delay_s * 1000))
            reading = reader.read() or reading


def _on_screen(session: Session, view: View, iterations: int | None) -> None:
    from .terminal import Stopped, Terminal

    clock = SystemClock()
    terminal = Terminal()
    with Reader(session) as reader:
        reading = reader.first()
        done, due = 1, clock.monotonic_ms() + round(min(view.delay_s, _FIRST_S) * 1000)
        try:
            with terminal.held():
                while True:
                    lines, view = top_screen.frame(reading, reader.note, view, *terminal.size())
                    terminal.paint(lines)
                    for key in terminal.keys((due - clock.monotonic_ms()) / 1000):
                        view = top_screen.press(view, key, *terminal.size())
                        if view.quit:
                            return
                    now = clock.monotonic_ms()
                    if view.refresh or now >= due:
                        if iterations is not None and done >= iterations:
                            return
                        reading = reader.read() or reading
                        done += 1
                        due = clock.monotonic_ms() + round(view.delay_s * 1000)
                        view = replace(view, refresh=False)
        except Stopped as stopped:
            sys.exit(128 + stopped.which)
