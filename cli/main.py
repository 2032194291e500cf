"""The `eosdb` command: its commands and global options, and the only place that turns errors into one line
and an exit status.

Exit status: 0 success; 1 refused or failed (one line on stderr); 3 failed, but data is stored, may be
stored, or is stored in part (the line says which); 2 usage; 4 not eosdb's (`verify --untrusted`); 130
Ctrl-C; 143 SIGTERM. No input of a user ends in a traceback.

Log output goes to stderr: warnings, and more with --verbose or --log-level.

A command is a row of `GROUPS`; its module is imported on first use. The row repeats the beginning of its
help, so that `eosdb --help` and completion need not import every module, which takes 0.6 s of CPU.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from eosdb.errors import ApiError, EosdbError
from eosdb.model.words import printable

from . import output
from .file_command import Session, quiet_option
from .stopping import exit_status, is_normal_end, raising_on_interrupt

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


GROUPS: Final = {
    "Data": {
        "topics": ("data.topics", "Create, list, describe, alter and delete topics."),
        "produce": ("data.records", "Append each line of standard input to TOPIC."),
        "consume": ("data.records", "Print the records of TOPICS as a consumer sees them."),
        "ingest": ("data.ingest", "Append the lines of files to TOPIC exactly once."),
        "sql": ("operate.database", "Run a read-only SQL QUERY."),
        "views": ("data.views", "Create, list and drop typed views over JSON values."),
    },
    "Groups": {
        "groups": ("groups", "List, describe, reset and delete consumer groups."),
        "why": ("why", "List the problems in a file, most urgent first."),
        "dlq": ("dead_letters", "List, show and replay dead letters."),
        "scheduled": ("scheduled", "List and cancel records that are not due yet."),
        "transactions": ("transactions", "List, describe and end transactions."),
        "timeline": ("data.timeline", "Draw the transactions of TOPIC along offsets or time."),
    },
    "File": {
        "init": ("operate.database", "Create FILE if it does not exist, or upgrade it."),
        "info": ("operate.database", "Show sizes, counts and versions of the file."),
        "verify": ("operate.maintenance", "Compare every table with a replay of all events."),
        "inspect": ("inspect", "Show journal, log, snapshots; rebuild or move tables."),
        "housekeeping": ("operate.maintenance", "Run due maintenance, such as retention."),
        "compact": ("operate.maintenance", "Shrink the file: rewrite it without its free pages."),
        "backup": ("operate.maintenance", "Copy FILE to TARGET while others write to it."),
        "restore": ("operate.maintenance", "Restore the state after an event or at a time."),
        "publish": ("copies.publish", "Upload a snapshot of FILE to object storage."),
        "fetch": ("copies.publish", "Download the latest published snapshot at URL."),
        "export": ("copies.export", "Append new committed records to the table TARGET."),
    },
    "Operate": {
        "top": ("top.top", "Show the activity of a file, such as lag, live."),
        "ui": ("operate.ui", "Serve a web page that shows FILE, updated live."),
        "metrics": ("operate.metrics", "Print metrics for Prometheus, or serve them."),
        "acls": ("operate.acls", "Add, list and remove ACLs."),
        "users": ("operate.users", "Add, list and remove users of the server."),
    },
    "Kafka": {
        "serve": ("kafka.serve", "Serve FILE to Kafka's clients."),
        "relay": ("kafka.relay", "Relay committed records to or from FILE."),
        "migrate-to-kafka": ("kafka.migrate", "Move the topics of FILE to a Kafka cluster."),
    },
}
"""Heading in `eosdb --help`, name of the command, the module that defines it (as `delete_records` for
`delete-records`), and the beginning of its help, which must fit a line of 100 columns; a test compares."""

HIDDEN: Final = {
    "log": "inspect",
    "snapshots": "inspect",
    "journal": "inspect",
    "rebuild": "inspect",
    "migrate": "operate.database",
    "delete-records": "data.topics",
}
"""Hidden commands and their modules: there is a better name, or few people need them. They stay valid."""

COMMANDS: Final = {name: row for rows in GROUPS.values() for name, row in rows.items()}


class _Loaded(MutableMapping[str, click.Command]):
    """The commands of the table, each imported on first use."""

    def __init__(self) -> None:
        self._commands: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._commands:
            module = HIDDEN[name] if name in HIDDEN else COMMANDS[name][0]
            self._commands[name] = getattr(
                import_module(f"{__package__}.commands.{module}"), name.replace("-", "_")
            )
        return self._commands[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class CommandsByName(click.Group):
    """A group that lists its commands, in `--help` and for completion, without importing them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands = _Loaded()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. The error for one that only groups have, such as `fence`, names these."""
        if self.get_command(ctx, args[0]) is None:
            groups = ((name, getattr(one, "commands", ())) for name, one in self.commands.items())
            if found := [f"'{group} {args[0]}'" for group, names in groups if args[0] in names]:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(found)}?")
        return super().resolve_command(ctx, args)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Hide --help itself, so that the help fits on one screen."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.hidden = True
        return option

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width, names = max(map(len, GROUPS)), max(map(len, COMMANDS))
        formatter.write_paragraph()
        for heading, rows in GROUPS.items():  # Headings share lines: the list fits a screen.
            for name, (_, text) in rows.items():
                formatter.write(f"{heading:{width}}  {name:{names}}  {text}\n")
                heading = ""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [
            *(
                CompletionItem(name, help=click.Command(name, help=text).get_short_help_str())
                for name, (_, text) in sorted(COMMANDS.items())
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]


_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME: Final = "%Y-%m-%dT%H:%M:%S%z"
LEVELS: Final = ("debug", "info", "warning", "error")


class _HelpLines(logging.Formatter):
    """Formats a record as one line, and its traceback as lines; control characters are escaped."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(printable, super().formatException(ei).splitlines()))


class _ToStderr(logging.Handler):
    """Writes to the `sys.stderr` of the moment of each record, since tests and callers redirect it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(self.format(record), err=True)
        except Exception:
            self.handleError(record)


@contextlib.contextmanager
def shown(level: str) -> Iterator[None]:
    """Print eosdb's log records of this level and above to stderr, inside the block."""
    logger, handler = logging.getLogger("eosdb"), _ToStderr()
    handler.setFormatter(_HelpLines(_FORMAT, _TIME))
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
            # Surrogates stand for the bytes that are not UTF-8; such an argument cannot be stored.
            shown = str(error.object)[:80].encode(errors="backslashreplace").decode()
            output.line(f"error: {shown}: this argument is not valid UTF-8", err=True)
        except BrokenPipeError:
            output.silence(sys.stdout)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            output.line(f"error: {where}{error.strerror or error}", err=True)
        sys.exit(status)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        command = super().resolve_command(ctx, args)
        if not ctx.resilient_parsing and not {"-h", "--help"}.intersection(args):
            import eosdb.database  # noqa: F401 – commands must not import it later (cli/stopping.py)
        raising_on_interrupt()
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            try:
                return super().invoke(ctx)
            except (
                click.Abort
            ) as error:  # A prompt turns Ctrl-C into this error, as an answer of "no".
                if isinstance(error.__context__, KeyboardInterrupt):
                    raise KeyboardInterrupt from None
                raise
        except KeyboardInterrupt:
            if is_normal_end(ctx.meta):
                ctx.exit()
            output.line(err=True)  # Go to a new line after the terminal's ^C.
            output.line("Aborted!", err=True)
            ctx.exit(exit_status())


def _prepare_streams() -> None:
    """Replace closed streams by empty ones. Escape bytes that are not UTF-8 on input and output."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 – stays open until the process ends
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 – or the database's file gets its number
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _name(error: EosdbError) -> str:
    return error.name if isinstance(error, ApiError) else type(error).__name__


def _tell_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if not is_asked or context.resilient_parsing:
        return
    from . import version  # Imported late: it opens a connection.

    output.line(version.line())
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
