"""One kind of thing that eosdb says through `logging`, and how it is said.

A library configures no logging and has no handlers: it names loggers below `eosdb`; the program decides.
What a notice is about is in fields of the LogRecord. It is said where the effect is, once it stands, and
while nothing is held that others wait for: a handler that is slow keeps no lock, and one that raises breaks
no commit.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from eosdb.model.words import printable

_TEXT_MAX: Final = 200
_saying: Final = threading.local()
"""What this thread is saying just now: a handler that writes to an eosdb file is not told of that, too."""


# decisions/0047: what is said is data, so the documentation and the code cannot differ.
@dataclass(frozen=True, slots=True)
class Notice:
    """Something that may be said: where, how loud, and with which fields.

    `action` names it for programs and is the field of that name; `fields` are the others.
    """

    room: str
    level: int
    action: str
    fields: tuple[str, ...]
    meaning: str
    """For the documentation: when it is said."""
    logger: logging.Logger = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "logger", logging.getLogger(self.room))

    @property
    def is_wanted(self) -> bool:
        """Whether anybody listens; for callers that would have to find out what to say."""
        return self.logger.isEnabledFor(self.level)

    def say(
        self, message: str, *args: object, trace: BaseException | None = None, **fields: Any
    ) -> None:
        """Say it, unless nobody listens. Never raises what a handler or a filter raises.

        Call it while nothing is held that others wait for. `trace` is shown with its traceback.
        """
        if not self.logger.isEnabledFor(self.level):
            return
        mine: set[str] = _saying.__dict__.setdefault("actions", set())
        if self.action in mine:
            return
        mine.add(self.action)
        try:
            self.logger.log(
                self.level,
                message,
                *args,
                exc_info=trace,
                extra={"action": self.action, **fields},
                stacklevel=2,
            )
        except Exception:
            # As logging's own handlers do with what goes wrong in them.
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()
        finally:
            mine.discard(self.action)

    def traced(self, error: BaseException) -> BaseException | None:
        """The error, if its traceback is wanted: where this logger is set to DEBUG."""
        return error if self.logger.isEnabledFor(logging.DEBUG) else None


class Untold:
    """What is to be said as soon as nothing is held that others wait for. Threads may share it."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: Final = deque[tuple[Notice, str, tuple[object, ...], dict[str, Any]]]()
        """In order; false when there is nothing."""

    def add(self, notice: Notice, message: str, *args: object, **fields: Any) -> None:
        """As `Notice.say`, later."""
        if notice.is_wanted:
            self.waiting.append((notice, message, args, fields))

    def tell(self) -> None:
        """Say everything that waits."""
        while self.waiting:
            try:
                notice, message, args, fields = self.waiting.popleft()
            except IndexError:
                return  # Another thread says it.
            notice.say(message, *args, **fields)


def one_line(text: object) -> str:
    """What somebody else wrote, such as an exception's message, as a part of one line: at most 200
    characters, with everything escaped that does not print."""
    shown = str(text)
    if len(shown) > _TEXT_MAX:
        shown = f"{shown[: _TEXT_MAX - 1]}…"
    return printable(shown)


def error_text(error: BaseException) -> str:
    """An exception in one line: its class, and what it says."""
    said = one_line(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
