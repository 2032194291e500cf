"""What commands show of the log: warnings on stderr, in one format; more of it with --verbose."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Final

import click

from eosdb.model.words import printable

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME: Final = "%Y-%m-%dT%H:%M:%S%z"
LEVELS: Final = ("debug", "info", "warning", "error")


class _Lines(logging.Formatter):
    """One line, and those of a traceback: what names and messages bring along is escaped."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(printable, super().formatException(ei).splitlines()))


class _ToStderr(logging.Handler):
    """To wherever stderr leads when the line is written."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(self.format(record), err=True)
        except Exception:
            self.handleError(record)


@contextlib.contextmanager
def shown(level: str) -> Iterator[None]:
    """Show what eosdb logs, from this level on, during a command."""
    logger, handler = logging.getLogger("eosdb"), _ToStderr()
    handler.setFormatter(_Lines(_FORMAT, _TIME))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
