"""One kind of log line, and how it is logged.

A library configures no logging and has no handlers: it names loggers below `eosdb`; the program decides,
and for one that has decided nothing there is `_Lines`. Lines that differ in numbers alone are one line
there, printed when it comes for the 1st, the 10th, the 100th time, and so on, and at the end of the program
if it came again since, but not behind the traceback of an error that ended it. Whether logging is
configured is asked for each line.
What a line is about is also in fields of its LogRecord. A line is logged by the code that had the effect,
after that effect is durable, and while the thread holds nothing that others wait for: a slow handler keeps
no lock, and one that raises breaks no commit.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import sys
import threading
import traceback
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from eosdb.model.words import printable

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


_TEXT_MAX: Final = 200
_saying: Final = threading.local()
"""The actions that this thread is logging at the moment: a handler that writes to an eosdb file does not
make the same line again."""


# decisions/0047: log lines are data, so the documentation and the code cannot differ.
@dataclass(frozen=True, slots=True)
class Notice:
    """A kind of log line: its logger, level, fields and sentence.

    `action` names the kind for programs, and is a field of every line; `fields` are the others. `sentence`
    is a %-format of `fields` and of values that only the message shows. Two notices share an action where
    an operator does the same about both.
    """

    room: str
    level: int
    action: str
    fields: tuple[str, ...]
    sentence: str
    meaning: str
    """For the documentation: when it is logged."""
    logger: logging.Logger = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "logger", logging.getLogger(self.room))

    @property
    def is_wanted(self) -> bool:
        """Whether the logger is enabled for it; asked where its values cost something to compute."""
        return self.logger.isEnabledFor(self.level)

    def say(self, *, trace: BaseException | None = None, **values: object) -> None:
        """Log this notice, its sentence and fields filled with `values`, unless its level is disabled.
        Never raises.

        An exception given as `error` becomes its class's name in the field, and the sentence may show it as
        `error_text` or `error_message`. `trace` is logged with its traceback. Do not call this while
        holding a lock that others wait for.
        """
        if not self.is_wanted:
            return
        values = _with_texts(values)
        mine: set[str] = _saying.__dict__.setdefault("actions", set())
        if self.action in mine:
            return
        mine.add(self.action)
        try:
            fields = {"action": self.action, **{name: values[name] for name in self.fields}}
            arguments = (values,) if values else ()
            if self.logger.hasHandlers():
                self.logger.log(
                    self.level, self.sentence, *arguments,
                    exc_info=trace, extra=fields, stacklevel=2,
                )  # fmt: skip
                return
            cause = None if trace is None else (type(trace), trace, trace.__traceback__)
            record = self.logger.makeRecord(
                self.room, self.level, "", 0, self.sentence, arguments, cause, extra=fields
            )
            if self.logger.filter(record):
                handle(record)
        except Exception:
            # As logging's own handlers do with what goes wrong in them.
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()
        finally:
            mine.discard(self.action)

    def text(self, **values: object) -> str:
        """The message alone, for a caller that shows it elsewhere."""
        return self.sentence % _with_texts(values)

    def traced(self, error: BaseException) -> BaseException | None:
        """The error, to be logged with its traceback, if this logger is set to DEBUG; else None."""
        return error if self.logger.isEnabledFor(logging.DEBUG) else None


class Untold:
    """Lines to log as soon as nothing is held that others wait for. Threads may share it."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: Final = deque[tuple[Notice, BaseException | None, dict[str, Any]]]()
        """In the order of logging; false when empty."""

    def add(self, notice: Notice, *, trace: BaseException | None = None, **values: object) -> None:
        """Put off `notice.say(…)` until `tell`. The values are taken now."""
        if notice.is_wanted:
            self.waiting.append((notice, trace, _with_texts(values)))

    def tell(self) -> None:
        """Log every line that waits."""
        while self.waiting:
            try:
                notice, trace, values = self.waiting.popleft()
            except IndexError:
                return  # Another thread logs it.
            notice.say(trace=trace, **values)


def _with_texts(values: dict[str, object]) -> dict[str, object]:
    error = values.get("error")
    if not isinstance(error, BaseException):
        return values
    texts = {"error_text": error_text(error), "error_message": one_line(error)}
    return {**values, **texts, "error": type(error).__name__}


def one_line(text: object) -> str:
    """Text from elsewhere, such as an exception's message, for use within a line: at most 200 characters,
    unprintable ones escaped."""
    shown = str(text)
    if len(shown) > _TEXT_MAX:
        shown = f"{shown[: _TEXT_MAX - 1]}…"
    return printable(shown)


def error_text(error: BaseException) -> str:
    """An exception in one line: its class and message."""
    message = one_line(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
