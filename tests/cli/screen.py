"""A terminal in which a test runs a program: a pseudo-terminal, and what a real one would show of it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

import pyte

DEADLINE_S = 60.0


class Screen:
    """A running command and its screen. Close it, or use it in a `with` block."""

    def __init__(self, *command: str, columns: int = 80, lines: int = 24) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.sent = b""
        """All that the command has written."""
        self.keyboard, self.terminal = pty.openpty()
        self.resize(columns, lines)
        self.settings = termios.tcgetattr(self.terminal)
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            command,
            stdin=self.terminal,
            stdout=self.terminal,
            stderr=self.terminal,
            env=environment,
            preexec_fn=_lead_the_terminal,
        )

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)
        os.close(self.keyboard)
        os.close(self.terminal)

    def resize(self, columns: int, lines: int) -> None:
        """As when somebody draws the window larger; the program gets SIGWINCH."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, size)
        self.screen.resize(lines, columns)

    def press(self, keys: str) -> None:
        os.write(self.keyboard, keys.encode())

    def text(self) -> str:
        return "\n".join(self.screen.display)

    def read(self, seconds: float = 0.1) -> None:
        """Take in what the command writes within this time."""
        ready, _, _ = select.select([self.keyboard], [], [], seconds)
        if ready:
            data = os.read(self.keyboard, 65_536)
            self.sent += data
            self._stream.feed(data)

    def until(self, is_so: str | Callable[[], Any]) -> str:
        """Wait for a text on the screen, or for a condition; the screen's text then."""
        deadline = time.monotonic() + DEADLINE_S
        while not (is_so in self.text() if isinstance(is_so, str) else is_so()):
            assert time.monotonic() < deadline, f"{is_so!r} never came:\n{self.text()}"
            self.read()
        return self.text()

    def end(self) -> int:
        """Wait until the command has ended; its exit status."""
        self.until(lambda: self.process.poll() is not None)
        while select.select([self.keyboard], [], [], 0)[0]:
            self.read(0)
        return self.process.returncode

    def is_as_before(self) -> bool:
        """Whether the terminal's settings are those from before, the cursor is visible, lines wrap, and the
        first screen is shown."""
        modes = self.sent.rfind(b"\x1b[?1049l") > self.sent.rfind(b"\x1b[?1049h")
        shown = self.sent.rfind(b"\x1b[?25h") > self.sent.rfind(b"\x1b[?25l")
        wraps = self.sent.rfind(b"\x1b[?7h") > self.sent.rfind(b"\x1b[?7l")
        return modes and shown and wraps and termios.tcgetattr(self.terminal) == self.settings


def eosdb(*arguments: str, columns: int = 80, lines: int = 24) -> Screen:
    """The command `eosdb` in a terminal."""
    return Screen(sys.executable, "-m", "eosdb.cli", *arguments, columns=columns, lines=lines)


def _lead_the_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
