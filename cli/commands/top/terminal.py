"""The terminal of `eosdb top`: the alternate screen and single key presses. The previous state is restored
however the program ends or is suspended.

Each line is painted at its own position with wrapping off, so that no line can overflow into another.
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
from types import FrameType
from typing import Any, Final, NoReturn

from rich.console import Console
from rich.text import Text

# Each line is painted at its own place, with wrapping off and names last: no name, whatever it holds, can
# reach another line or move a figure. That is why rich gives the styles, and not the screen.
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
    """Takes over standard input and output."""

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
            # After a hangup there is no terminal to restore.
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
        # Execution resumes here on SIGCONT.
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
            # Skip an unknown escape sequence up to its final character.
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
