"""Log lines of a program that has not configured logging.

Python prints the bare message then, without its logger and level, each as often as it is logged. Here a
line has both, and lines that differ in numbers alone are one, which is counted: it is printed when it comes
for the 1st, the 10th, the 100th time, and so on, and at the end of the program if it came again since,
but not behind the traceback of an error that ended it: that is the last word, as anywhere in Python.
Whether logging is configured is asked for each line, so a program may do it at any time.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import sys
import threading
from dataclasses import dataclass
from typing import Final

_MOST_KINDS: Final = 1_000
_NUMBER: Final = re.compile(r"\d+")


@dataclass(slots=True)
class _Repeated:
    line: str
    count: int = 1
    shown: int = 1

    @property
    def counted(self) -> str:
        return self.line if self.count == 1 else f"{self.line} ({self.count} times)"


class _Lines(logging.Handler):
    """Prints to stderr, as logging's own last resort does."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._kinds: dict[str, _Repeated] = {}
        self._lines = threading.RLock()
        atexit.register(self._tell_the_rest)
        os.register_at_fork(after_in_child=self._forget)

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{record.levelname} {record.name}: {self.format(record)}"
        with self._lines:
            kind = _NUMBER.sub("0", line)
            if (repeated := self._kinds.get(kind)) is None:
                repeated = _Repeated(line)
                if len(self._kinds) < _MOST_KINDS:
                    self._kinds[kind] = repeated
            else:
                repeated.line, repeated.count = line, repeated.count + 1
                if repeated.count < 10 * repeated.shown:
                    return
                repeated.shown = repeated.count
            _write(repeated.counted)

    def _tell_the_rest(self) -> None:
        if hasattr(sys, "last_value"):  # Python has printed the traceback of what ended the program
            return
        with self._lines:
            for repeated in self._kinds.values():
                if repeated.count > repeated.shown:
                    _write(repeated.counted)
            self._kinds.clear()

    def _forget(self) -> None:
        self._lines = threading.RLock()
        self._kinds.clear()


def _write(line: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


_lines: Final = _Lines()


def handle(record: logging.LogRecord) -> None:
    """Print the record, unless the program has switched logging's last resort off."""
    if logging.lastResort is not None and record.levelno >= max(
        logging.lastResort.level, _lines.level
    ):
        _lines.handle(record)
