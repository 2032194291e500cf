"""Log output of commands: warnings on stderr; more with --verbose or --log-level."""

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
    """Formats a record as one line, and its traceback as lines; control characters are escaped."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(printable, super().formatException(ei).splitlines()))


class _ToStderr(logging.Handler):
    """Writes to the current stderr, which may be redirected meanwhile."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(self.format(record), err=True)
        except Exception:
            self.handleError(record)


@contextlib.contextmanager
def shown(level: str) -> Iterator[None]:
    """Print eosdb's log records of this level and above to stderr, inside the block."""
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
