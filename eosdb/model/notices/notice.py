"""One kind of log line, and how it is logged.

A library configures no logging and has no handlers: it only names loggers below `eosdb`. For a program
without a logging configuration there is `_Lines`. It treats lines that differ only in numbers as one: the
1st, 10th, 100th and so on are printed, and a repeated one at the end of the program, unless a traceback
of an error has ended it. Whether logging is configured is checked for each line.

The fields of a LogRecord have the line's subjects. The code that had an effect logs it, after the effect
is durable and while the thread holds no lock: a slow handler delays no other thread, and one that raises
breaks no commit.
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
        return self.line if self.count == 1 else f"{self.line} ({self.count} such lines)"


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
        if hasattr(sys, "last_value"):  # Python has printed the traceback that ended the program
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
    """Print the record, unless the program has turned logging's last resort off."""
    if logging.lastResort is not None and record.levelno >= max(
        logging.lastResort.level, _lines.level
    ):
        _lines.handle(record)


_TEXT_MAX: Final = 200
_saying: Final = threading.local()
"""The actions that this thread is logging now: a handler that writes to an eosdb file does not repeat the
line."""


# decisions/0047: log lines are data, so documentation and code cannot differ.
@dataclass(frozen=True, slots=True)
class Notice:
    """A kind of log line: its logger, level, fields and sentence. `action` names the kind for programs,
    and is a field of every line; `fields` are the others. `sentence` is a %-format of `fields` and of
    values only for the message. Two notices share an action if an operator reacts to both in the same
    way."""

    room: str
    level: int
    action: str
    fields: tuple[str, ...]
    sentence: str
    meaning: str
    """For the documentation: the occasion of the line."""
    logger: logging.Logger = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "logger", logging.getLogger(self.room))

    @property
    def is_wanted(self) -> bool:
        """Whether the logger is enabled for it; to be checked before values that are expensive to
        compute."""
        return self.logger.isEnabledFor(self.level)

    def say(self, *, trace: BaseException | None = None, **values: object) -> None:
        """Log this notice with `values`, unless its level is disabled. Never raises. An exception given
        as `error` becomes its class's name in the field; the sentence may show it as `error_text` or
        `error_message`. `trace` is logged with its traceback. Do not call this while holding a lock that
        others wait for."""
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
            # As logging's own handlers treat their errors.
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
    """Lines to log as soon as no lock is held. Threads may share it."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: Final = deque[tuple[Notice, BaseException | None, dict[str, Any]]]()
        """In the order of logging."""

    def add(self, notice: Notice, *, trace: BaseException | None = None, **values: object) -> None:
        """Put off `notice.say(…)` until `tell`, with the values of now."""
        if notice.is_wanted:
            self.waiting.append((notice, trace, _with_texts(values)))

    def tell(self) -> None:
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
    """One line of foreign text, such as an exception's message: at most 200 characters, unprintable ones
    escaped."""
    shown = str(text)
    if len(shown) > _TEXT_MAX:
        shown = f"{shown[: _TEXT_MAX - 1]}…"
    return printable(shown)


def error_text(error: BaseException) -> str:
    """An exception in one line: its class and message."""
    message = one_line(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
