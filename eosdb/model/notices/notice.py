"""Defines a kind of log line, and logs it.

A library configures no logging and adds no handlers: it only has loggers below `eosdb`. If a program has
not configured logging, `_Lines` prints warnings. Lines that differ only in numbers count as the same line:
the 1st, 10th, 100th and so on are printed. A repeated line is printed again at the end of the program,
unless that ends with a traceback. Each line checks whether logging is configured.

A LogRecord has the notice's values as fields. An effect is logged after it is durable, and while the thread
holds no lock: a slow handler delays no other thread, and one that raises breaks no commit.
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

from eosdb.model.words import printable, shortened
from eosdb.system.signals import is_of_a_signal

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
    """Prints log lines to stderr, in place of `logging.lastResort`."""

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
        if hasattr(sys, "last_value"):  # The output should end with the program's traceback.
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
    """Print the record, unless the program has disabled `logging.lastResort` or its level is too low."""
    if logging.lastResort is not None and record.levelno >= max(
        logging.lastResort.level, _lines.level
    ):
        _lines.handle(record)


_TEXT_MAX: Final = 200
_saying: Final = threading.local()
"""The actions that this thread is logging now: a handler that writes to an eosdb file does not repeat the
line."""


# decisions/0047: each kind of log line is an object, from which the documentation is generated.
@dataclass(frozen=True, slots=True)
class Notice:
    """A kind of log line: its logger, level, fields and sentence. `action` is a name for programs and a
    field of every line; `fields` are the other fields. `sentence` is a %-format with `fields`, and with
    values that only the message has. Notices share an action if an operator reacts to them in the same
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
        """Whether the logger is enabled for this level. Check it before computing expensive values."""
        return self.logger.isEnabledFor(self.level)

    def say(self, *, trace: BaseException | None = None, **values: object) -> None:
        """Log this notice with `values`, unless its level is disabled. Never raises. If `error` is an
        exception, the field has the name of its class; the sentence may also use `error_text` and
        `error_message`. `trace` is logged with its traceback. Do not call this while holding a lock that
        other threads need."""
        if not self.is_wanted:
            return
        values = _with_texts(values)
        mine: set[str] = _saying.__dict__.setdefault("actions", set())
        if self.action in mine:
            return
        try:
            mine.add(self.action)  # Behind a call outside, an interrupt would leave it.
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
        except Exception as error:
            if is_of_a_signal(error):
                raise
            # As in logging's own handlers, an error is printed or ignored.
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()
        finally:
            mine.discard(self.action)

    def text(self, **values: object) -> str:
        """Return the message without logging it, for a caller that shows it elsewhere."""
        return self.sentence % _with_texts(values)

    def traced(self, error: BaseException) -> BaseException | None:
        """Return the error if this logger is set to DEBUG, so that its traceback is logged; else None."""
        return error if self.logger.isEnabledFor(logging.DEBUG) else None


class Untold:
    """A queue of notices, to log as soon as no lock is held. Threads may share it."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: Final = deque[tuple[Notice, BaseException | None, dict[str, Any]]]()
        """In the order of logging."""

    def add(self, notice: Notice, *, trace: BaseException | None = None, **values: object) -> None:
        """Queue the notice with the current values; `tell` logs it."""
        if notice.is_wanted:
            self.waiting.append((notice, trace, _with_texts(values)))

    def tell(self) -> None:
        while self.waiting:
            try:
                notice, trace, values = self.waiting.popleft()
            except IndexError:
                return  # Another thread has taken the last one.
            notice.say(trace=trace, **values)


def _with_texts(values: dict[str, object]) -> dict[str, object]:
    error = values.get("error")
    if not isinstance(error, BaseException):
        return values
    texts = {"error_text": error_text(error), "error_message": one_line(error)}
    return {**values, **texts, "error": type(error).__name__}


def one_line(text: object) -> str:
    """Return text from elsewhere, such as an exception's message, as one line: at most 200 characters,
    without the middle, since reasons stand at the end, and unprintable ones escaped."""
    return printable(shortened(str(text), _TEXT_MAX))


def error_text(error: BaseException) -> str:
    """Return an exception's class and message in one line."""
    message = one_line(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
