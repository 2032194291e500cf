"""`eosdb top`: the activity of a file on a terminal, refreshed like `top`.

`Reader` holds no snapshot between two readings, and survives errors and the replacement of the file.
`Terminal` has the alternate screen and single key presses. It restores the previous state however the
program ends, and paints each line at its own position with wrapping off: none overflows into another.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any, Final, NoReturn

import click
from rich.console import Console
from rich.text import Text

import eosdb
from eosdb.cli import output
from eosdb.cli.file_command import FileCommand, Session
from eosdb.cli.output import cell
from eosdb.cli.stopping import until_stopped
from eosdb.errors import EosdbError
from eosdb.model.clock import SystemClock
from eosdb.model.closing import Closeable
from eosdb.model.overview import Overview, between
from eosdb.model.values import TopicPartition

from . import screen as top_screen
from .screen import DELAY_MAX, DELAY_MIN, View
from .tables import Reading

# Each line has a fixed position, no wrapping, and names at its end, so a name cannot displace anything.
# rich's screen does not guarantee this, so only its styles are used.
_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE: Final = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_SEQUENCES: Final = {
    "[A": "up", "[B": "down", "[5~": "pageup", "[6~": "pagedown", "[H": "home", "[F": "end",
    "[1~": "home", "[4~": "end", "[7~": "home", "[8~": "end", "[Z": "backtab", "OA": "up",
    "OB": "down", "OH": "home", "OF": "end",
}  # fmt: skip
_SINGLE: Final = {
    "\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\x08": "backspace",
    "\x0c": "resize", "\x03": "q",
}  # fmt: skip
_STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """Raised by a signal that ends the program."""

    def __init__(self, which: int) -> None:
        super().__init__(which)
        self.which = which


class Terminal:
    """Takes over standard input and output, and restores the terminal."""

    def __init__(self) -> None:
        self._keys = sys.stdin.fileno()
        self._screen = sys.stdout
        self._woken, self._wake = -1, -1
        self._before: list[Any] = []
        self._typed = ""

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Context manager: take over the terminal, and restore it on exit."""
        self._before = termios.tcgetattr(self._keys)
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        handlers = dict.fromkeys(_STOPS, self._stop)
        before = {which: signal.signal(which, handler) for which, handler in handlers.items()}
        before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._suspend)
        before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: None)
        waker = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        try:
            self._enter()
            yield
        finally:
            for which in _STOPS:
                signal.signal(which, signal.SIG_IGN)
            signal.set_wakeup_fd(waker)
            # The terminal may be gone, after a hangup.
            with contextlib.suppress(OSError, termios.error):
                self._leave()
            for which, handler in before.items():
                signal.signal(which, handler)
            os.close(self._woken)
            os.close(self._wake)

    def size(self) -> tuple[int, int]:
        """Return the number of columns and lines."""
        size = shutil.get_terminal_size((80, 24))
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(self._screen.fileno())
        return max(size.columns, 1), max(size.lines, 1)

    def paint(self, lines: Sequence[Text]) -> None:
        """Replace the content of the screen by these lines."""
        width, height = self.size()
        painted = [
            f"\x1b[{number};1H{line}\x1b[0m\x1b[K"
            for number, line in enumerate(_in_colour(lines[:height], width), 1)
        ]
        self._screen.write("".join(painted) + "\x1b[J")
        self._screen.flush()

    def keys(self, timeout_s: float) -> list[str]:
        """Wait for a key or the timeout, and return the keys pressed; `resize` asks for a repaint."""
        readable, _, _ = select.select([self._keys, self._woken], [], [], max(timeout_s, 0))
        pressed = []
        if self._woken in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 512)
            pressed.append("resize")
        if self._keys in readable:
            data = os.read(self._keys, 1024)
            pressed += parsed(data.decode(errors="replace")) if data else ["q"]
        return pressed

    def _enter(self) -> None:
        tty.setcbreak(self._keys)
        self._screen.write(_ENTER)
        self._screen.flush()

    def _leave(self) -> None:
        try:
            self._screen.write(_LEAVE)
            self._screen.flush()
        finally:
            termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)

    def _stop(self, which: int, _: FrameType | None) -> NoReturn:
        raise Stopped(which)

    def _suspend(self, *_: object) -> None:
        self._leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # The process stops in the line above, and continues here after SIGCONT.
        signal.signal(signal.SIGTSTP, self._suspend)
        self._enter()


def parsed(typed: str) -> list[str]:
    """Parse terminal input into keys: characters, and names such as `up`."""
    keys = []
    while typed:
        if typed[0] != "\x1b":
            keys.append(_SINGLE.get(typed[0], typed[0]))
            typed = typed[1:]
            continue
        typed = typed[1:]
        sequence = next((s for s in _SEQUENCES if typed.startswith(s)), None)
        if sequence is not None:
            keys.append(_SEQUENCES[sequence])
            typed = typed[len(sequence) :]
        elif typed[:1] in ("[", "O"):
            # The sequence is unknown; skip it up to its final character.
            end = next((i for i, c in enumerate(typed[1:], 1) if "@" <= c <= "~"), len(typed))
            typed = typed[end + 1 :]
        else:
            keys.append("escape")
    return keys


def _in_colour(lines: Sequence[Text], width: int) -> list[str]:
    """Render the lines with the escapes of this terminal, cropped to its width."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False)
    with console.capture() as capture:
        for line in lines:
            console.print(line, no_wrap=True, overflow="crop", crop=True, soft_wrap=False)
    return capture.get().split("\n")[:-1]


_STEADY_MS: Final = 500
"""The least time (ms) over which a rate is computed; over shorter times, rates would fluctuate."""
_COUNTED_MAX: Final = 10_000
"""If more offsets than this wait for a transaction, markers are counted as records."""


class FigureReader(Closeable):
    """Reads a file's figures (`read`). `note` is the last error, or tells that the file was replaced."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._db: eosdb.Database | None = None
        self._inode: tuple[int, int] | None = None
        self._base: Overview | None = None
        self._last: Overview | None = None
        self.note = ""

    def read(self) -> Reading | None:
        """Do `take`, or return None if the file cannot be read: `note` has the reason, the next call
        retries."""
        try:
            self.note = ""
            return self.take()
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

    def take(self) -> Reading:
        """Take a reading. Raises the errors of `connect`, and of the reading."""
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
            worries=self._db.why(overview),
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
    """The number of records that an open transaction holds back, by partition."""
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
    _on_screen(session, view, iterations)


def _in_batches(session: Session, view: View, iterations: int | None) -> None:
    until_stopped()
    clock = SystemClock()
    done = 0
    with FigureReader(session) as reader:
        reading = reader.take()
        while True:
            output.lines(top_screen.batch(reading, reader.note, view))
            sys.stdout.flush()
            done += 1
            if iterations is not None and done >= iterations:
                return
            clock.sleep_ms(round(view.delay_s * 1000))
            reading = reader.read() or reading


def _on_screen(session: Session, view: View, iterations: int | None) -> None:
    clock = SystemClock()
    terminal = Terminal()
    with FigureReader(session) as reader:
        reading = reader.take()
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
