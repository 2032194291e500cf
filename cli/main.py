"""The `eosdb` command: the global options, and the only place that turns errors into one line and an exit
status.

Exit status: 0 success, 1 refused or failed (one line on stderr), 3 the same, though what was to be stored
is stored, or may be, or in part (the line says which), 2 usage, 4 not eosdb's (`verify --untrusted`), 130
Ctrl-C, 143 SIGTERM. No input of a user ends in a traceback.

Log output goes to stderr: warnings, and more with --verbose or --log-level.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

import click
from click.core import ParameterSource

from eosdb import __version__
from eosdb.errors import ApiError, EosdbError
from eosdb.model.words import printable
from eosdb.system.road import road

from . import output
from .file_command import quiet_option
from .registry import CommandsByName
from .session import Session
from .stopping import exit_status, is_normal_end, raising_on_interrupt

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


_MAY_BE_STORED: Final = 3


class ErrorBoundary(CommandsByName):
    """Turns eosdb's errors, unreadable files and interrupts into one line and an exit status."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        _prepare_streams()
        status = 1
        try:
            return super().main(*args, **kwargs)
        except EosdbError as error:
            told = ""
            if error.outcome != "not written":
                status, told = _MAY_BE_STORED, f" (outcome: {error.outcome})"
            output.line(f"error: {_name(error)}: {error}{told}", err=True)
        except UnicodeEncodeError as error:
            # An argument with invalid UTF-8 reaches Python as surrogates, which cannot be stored.
            shown = str(error.object)[:80].encode(errors="backslashreplace").decode()
            output.line(f"error: {shown}: this argument is not valid UTF-8", err=True)
        except BrokenPipeError:
            # The reader closed the pipe; without this, Python would report it again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            output.line(f"error: {where}{error.strerror or error}", err=True)
        sys.exit(status)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        command = super().resolve_command(ctx, args)
        if not ctx.resilient_parsing and not {"-h", "--help"}.intersection(args):
            import eosdb.database  # noqa: F401 – all that opening a file needs (cli/stopping.py)
        raising_on_interrupt()
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if is_normal_end(ctx.meta):
                ctx.exit()
            output.line(err=True)  # Closes the terminal's ^C.
            output.line("Aborted!", err=True)
            ctx.exit(exit_status())


def _prepare_streams() -> None:
    """Replace closed streams by empty ones; escape bytes that are not UTF-8 on input and output."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 – the process's, to its end
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _name(error: EosdbError) -> str:
    return error.name if isinstance(error, ApiError) else type(error).__name__


def _tell_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if not is_asked or context.resilient_parsing:
        return
    from eosdb.native import accelerator  # Imported here, because it opens a connection.

    native = accelerator.road()
    is_used = "with the accelerator" if native is True else f"without the accelerator: {native}"
    output.line(
        f"eosdb, version {__version__}, {is_used}{', portable' if road.IS_PORTABLE else ''}"
    )
    context.exit()


@click.group(
    cls=ErrorBoundary,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--db", "path", envvar="EOSDB_DB", type=click.Path(dir_okay=False), metavar="PATH",
    help="The database file; EOSDB_DB sets it, too.",
)  # fmt: skip
@click.option("--read-only", is_flag=True, help="Refuse commands that write.")
@click.option(
    "--run-as", "principal", metavar="PRINCIPAL", envvar="EOSDB_PRINCIPAL", default="User:ANONYMOUS",
    show_default=True,
    help="Principal for access control.",
)  # fmt: skip
@click.option(
    "--log-level", type=click.Choice(LEVELS), metavar="LEVEL", envvar="EOSDB_LOG", default="warning",
    show_default=True,
    help="Log level on stderr; -v is info.",
)  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, hidden=True)
@quiet_option
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_tell_version,
    help="Show the version, and whether the accelerator is used.",
)  # fmt: skip
@click.pass_context
def main(
    context: click.Context,
    path: str | None,
    read_only: bool,
    principal: str,
    log_level: str,
    verbose: bool,
) -> None:
    """Kafka's exactly-once machinery in one SQLite file: `eosdb info shop.db`."""
    is_quieter = LEVELS.index(log_level) > LEVELS.index("info")
    context.with_resource(shown("info" if verbose and is_quieter else log_level))
    is_named = context.get_parameter_source("path") is ParameterSource.COMMANDLINE
    context.obj = Session(path, is_named, read_only, principal)
