"""The `eosdb` command: what all commands share, and the one place that turns errors into a line and a
status.

Exit status: 0 success, 1 refused or failed (one line on stderr), 2 usage, 130 Ctrl-C. Never a traceback
for what a user can cause.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import click

from eosdb import __version__
from eosdb.errors import ApiError, EosdbError

from . import output
from .log_lines import LEVELS, shown
from .registry import CommandsByName
from .session import Session
from .stopping import INTERRUPTED, raising_on_interrupt


class ErrorBoundary(CommandsByName):
    """Turns eosdb's errors, unreadable files and interrupts into one line and an exit status."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        _prepare_streams()
        try:
            return super().main(*args, **kwargs)
        except EosdbError as error:
            output.line(f"error: {_name(error)}: {error}", err=True)
        except UnicodeEncodeError as error:
            # Bytes that are not UTF-8 come from a shell as text that cannot be stored.
            shown = str(error.object)[:80].encode(errors="backslashreplace").decode()
            output.line(f"error: {shown}: this argument is not valid UTF-8", err=True)
        except BrokenPipeError:
            # The reader has seen enough; Python must not complain about it again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            output.line(f"error: {where}{error.strerror or error}", err=True)
        sys.exit(1)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        found = super().resolve_command(ctx, args)
        if not ctx.resilient_parsing and not {"-h", "--help"}.intersection(args):
            pass  # Now, while an interrupt cannot get lost in an import.
        raising_on_interrupt()
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            output.line(err=True)  # Closes the terminal's ^C.
            output.line("Aborted!", err=True)
            ctx.exit(INTERRUPTED)


def _prepare_streams() -> None:
    """Streams that the caller closed are empty; what is not text, or cannot be shown, is escaped."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 – the process's, to its end
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _name(error: EosdbError) -> str:
    return error.name if isinstance(error, ApiError) else type(error).__name__


@click.group(
    cls=ErrorBoundary,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--db",
    "path",
    envvar="EOSDB_DB",
    type=click.Path(dir_okay=False),
    help="The database file; EOSDB_DB may name it instead.",
)
@click.option("--read-only", is_flag=True, help="Refuse commands that write.")
@click.option(
    "--principal",
    envvar="EOSDB_PRINCIPAL",
    default="User:ANONYMOUS",
    show_default=True,
    help="Run as this principal (access control).",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    envvar="EOSDB_LOG",
    default="warning",
    show_default=True,
    help="What to say on stderr besides errors; EOSDB_LOG may name it instead.",
)
@click.option("-v", "--verbose", is_flag=True, help="The same as --log-level info.")
@click.version_option(__version__, prog_name="eosdb")
@click.pass_context
def main(
    context: click.Context,
    path: str | None,
    read_only: bool,
    principal: str,
    log_level: str,
    verbose: bool,
) -> None:
    """Kafka's exactly-once machinery in one SQLite file.

    \b
    Example:
      export EOSDB_DB=shop.db
      eosdb init
      eosdb topics create orders --partitions 4
      echo "hello" | eosdb produce orders
      eosdb consume orders --from-beginning
    """
    is_quieter = LEVELS.index(log_level) > LEVELS.index("info")
    context.with_resource(shown("info" if verbose and is_quieter else log_level))
    context.obj = Session(path, read_only, principal)
