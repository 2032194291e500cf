"""What commands show of the log: warnings on stderr, in one format; more of it with --verbose."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

import click

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME: Final = "%Y-%m-%dT%H:%M:%S%z"
LEVELS: Final = ("debug", "info", "warning", "error")


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
    handler.setFormatter(logging.Formatter(_FORMAT, _TIME))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
