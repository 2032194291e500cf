"""How a command is given its file: `FILE` as its first word, `--db PATH` anywhere, or EOSDB_DB.

The first word is FILE if the command's own arguments are complete without it. If an argument may be omitted
or repeated (`topics describe [TOPIC]`, `consume TOPICS...`), the first word is FILE only if nothing else
names the file. If EOSDB_DB names it and the first word is a database, too, the command reports an error.

The Tab key completes names in that file, too. Completion prints no error, because the shell would show it
in the middle of the user's line: an unreadable file has no names.

A `Session` has the global options and the file, which is opened on demand.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import click

import eosdb
from eosdb.cli.output import FILE, QUIET, is_database, line, named_file
from eosdb.errors import DatabaseNotFoundError, EosdbError, ReadOnlyDatabaseError
from eosdb.model.values import Durability

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from eosdb import Database


@contextlib.contextmanager
def figures_served(
    port: int | None, text: Callable[[], str], host: str = "127.0.0.1"
) -> Iterator[None]:
    """Context manager: serve metrics for Prometheus until it exits; does nothing if `port` is None."""
    if port is None:
        yield
        return
    from eosdb.integrations.exposition import FigureServer

    with FigureServer(port, text, host) as server:
        shown = f"[{host}]" if ":" in host else host
        line(f"figures at http://{shown}:{server.port}/metrics", err=True)
        yield


@dataclass(frozen=True, slots=True)
class Session:
    """The global options, and the file of the command."""

    path: str | None
    is_named: bool = True
    """Whether the command line names the file; EOSDB_DB may, too."""
    read_only: bool = False
    principal: str = "User:ANONYMOUS"

    def at(self, path: str) -> Session:
        """The same options with another file."""
        return replace(self, path=path, is_named=True)

    def named_path(self) -> str:
        """The path of the file. Raises UsageError if nothing names one."""
        if self.path is None:
            raise click.UsageError(
                "name the database file: FILE before the other arguments, --db PATH, or EOSDB_DB",
                click.get_current_context(),
            )
        return self.path

    def check_may_write(self) -> None:
        """Raises ReadOnlyDatabaseError if --read-only was given."""
        if self.read_only:
            raise ReadOnlyDatabaseError(
                "this command writes, which --read-only forbids; run it without --read-only"
            )

    def open(
        self,
        *,
        create: bool = False,
        read_only: bool = False,
        adopt: bool | str = False,
        durability: Durability = "full",
        config: eosdb.BrokerConfig | None = None,
    ) -> eosdb.Database:
        """Open the database. Only `init` and --create create it."""
        path = self.named_path()
        if not read_only:
            self.check_may_write()
        try:
            return eosdb.connect(
                path,
                create=create,
                read_only=read_only,
                adopt=adopt,
                durability=durability,
                principal=self.principal,
                config=config,
            )
        except DatabaseNotFoundError as error:
            if not os.path.isdir(os.path.dirname(os.path.realpath(path))):
                raise
            options = {option.name for option in click.get_current_context().command.params}
            how = "--create, or " if "create" in options else ""
            raise DatabaseNotFoundError(
                f"{str(error).partition(';')[0]}; create it with {how}`eosdb init {shlex.quote(path)}`"
            ) from None

    def open_for_reading(self) -> eosdb.Database:
        """Open the database for a command that only reads, and may wait: it may end a dead producer's
        transaction, which holds back readers. Read-only with --read-only, and if it cannot be written."""
        if not self.read_only:
            config = eosdb.BrokerConfig(lock_timeout_ms=_LOCK_TIMEOUT_MS)
            with contextlib.suppress(EosdbError):
                return self.open(config=config)
        return self.open(read_only=True)


pass_session = click.make_pass_decorator(Session)


_LOCK_TIMEOUT_MS: Final = 200
"""A command that only reads waits no longer for the write lock."""


_NAMES: Final[dict[str, Callable[[Database], Iterable[str]]]] = {
    **dict.fromkeys(("topic", "topics", "to_topic"), lambda db: db.admin.list_topics()),
    "group": lambda db: db.broker.list_groups(),
    "transactional_id": lambda db: (it.transactional_id for it in db.broker.list_transactions()),
}
"""The parameters of commands that name something in the file."""


class _Name(click.types.StringParamType):
    """A parameter that names something in the file, such as a topic."""

    def __init__(self, names: Callable[[Database], Iterable[str]]) -> None:
        self._names = names

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        hidden = "" if incomplete.startswith("_") else "__"
        return [
            CompletionItem(name)
            for name in _names_in_file(ctx, self._names)
            if name.startswith(incomplete) and not (hidden and name.startswith(hidden))
        ]


def complete_names(params: Iterable[click.Parameter]) -> None:
    """Let the Tab key complete parameters that name something in the file."""
    for param in params:
        names = _NAMES.get(param.name or "")
        if names is not None and param.type is click.STRING:
            param.type = _Name(names)


def _names_in_file(ctx: click.Context, names: Callable[[Database], Iterable[str]]) -> list[str]:
    path = named_file(ctx)
    if path is None:
        return []
    disabled = logging.root.manager.disable
    logging.disable()
    try:
        with contextlib.suppress(Exception):
            config = eosdb.BrokerConfig(lock_timeout_ms=_LOCK_TIMEOUT_MS)
            principal = ctx.find_root().params.get("principal") or "User:ANONYMOUS"
            with eosdb.connect(path, read_only=True, principal=principal, config=config) as db:
                return sorted(names(db))
        return []
    finally:
        logging.disable(disabled)


FOOTER: Final = (
    "FILE is the database. --db PATH anywhere in the line, or EOSDB_DB, may name it instead."
)
_FOOTER_AMBIGUOUS: Final = "The first word is FILE only if neither does."


class _NoFile(str):
    """The value of the argument FILE if no word is FILE."""


def _use_file(context: click.Context, _: click.Parameter, path: str | None) -> None:
    if path is None or isinstance(path, _NoFile):
        return
    context.meta[FILE] = path
    if isinstance(context.obj, Session):
        context.obj = context.obj.at(path)


_FILE: Final = click.Argument(
    ["file"], required=False, type=click.Path(dir_okay=False), metavar="[FILE]",
    expose_value=False, callback=_use_file,
)  # fmt: skip
_DB: Final = click.Option(
    ["--db", "file_option"], type=click.Path(dir_okay=False), metavar="PATH", hidden=True,
    expose_value=False, callback=_use_file,
)  # fmt: skip


def _be_quiet(context: click.Context, _: click.Parameter, is_quiet: bool) -> None:
    if is_quiet:
        context.meta[QUIET] = True


quiet_option: Final = click.option(
    "-q", "--quiet", is_flag=True, expose_value=False, callback=_be_quiet,
    help="Show no progress. May also be given after the command.",
)  # fmt: skip
_QUIET: Final = click.Option(
    ["-q", "--quiet"], is_flag=True, hidden=True, expose_value=False, callback=_be_quiet
)


def _refuse_server(context: click.Context, _: click.Parameter, server: str | None) -> None:
    if server is not None and not context.resilient_parsing:
        raise click.UsageError(
            "--bootstrap-server: eosdb opens the file itself, also while `eosdb serve` runs; type: "
            f"{context.command_path} FILE …",
            context,
        )


_SERVER: Final = click.Option(
    ["--bootstrap-server"], hidden=True, expose_value=False, callback=_refuse_server, is_eager=True
)
_KAFKAS: Final = ("topic", "partition", "group", "transactional-id")
"""Arguments that Kafka's tools take as options: `--topic orders` is understood, too."""


class FileCommand(click.Command):
    """A command on a file; its function is called with the `Session` first."""

    def __init__(self, name: str | None, *, callback: Callable[..., Any], **options: Any) -> None:
        super().__init__(name, callback=pass_session(callback), **options)
        complete_names(self.params)
        own = {option for param in self.params for option in param.opts}
        arguments = [param for param in self.params if isinstance(param, click.Argument)]
        self._named = {
            option: argument
            for argument in arguments
            for name in _KAFKAS
            if (option := f"--{name}") not in own
            and (argument.name or "").replace("_", "-").removesuffix("s") == name
        }
        self.params = [_FILE, *self.params, _DB, _QUIET, _SERVER]
        self._arguments = arguments

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # The shell is completing a command line.
            is_named = named_file(ctx) is not None or "--db" in args
            if args and (not is_named or is_database(args[0])):
                ctx.meta[FILE] = args[0]
                return super().parse_args(ctx, args)
            return super().parse_args(ctx, [_NoFile(), *args] if is_named else args)
        args, named = self._taken_out(_each_of_files(args))
        given, words, at = self._words(ctx, args)
        if self._begins_with_file(ctx, given, words, len(named)):
            later = next(filter(is_database, words[1:]), None)
            if later is not None and not os.path.exists(words[0]):
                raise click.UsageError(
                    f"there is no file {words[0]!r}, but {later!r} is one: FILE comes first", ctx
                )
            return super().parse_args(ctx, [*args[:at], words[0], *named, *args[at + 1 :]])
        return super().parse_args(ctx, [_NoFile(), *named, *args])

    def _taken_out(self, args: list[str]) -> tuple[list[str], list[str]]:
        """The line without Kafka's options for our arguments, and these options' values, in order."""
        rest, values = [], dict[click.Argument, str]()
        words = iter(args)
        for word in words:
            option, equals, value = word.partition("=")
            if option in self._named and (equals or (value := next(words, ""))):
                values[self._named[option]] = value
            else:
                rest.append(word)
        return rest, [values[each] for each in self._arguments if each in values]

    def _words(self, ctx: click.Context, args: list[str]) -> tuple[dict[str, Any], list[str], int]:
        """The options' values by name, the words that are no options, and the index of the first."""
        own: list[click.Parameter] = [p for p in self.params if isinstance(p, click.Option)]
        parser = click.Command(self.name, params=own).make_parser(ctx)
        given, words, _ = parser.parse_args(list(args))
        parser.allow_interspersed_args = False
        return given, words, len(args) - len(parser.parse_args(list(args))[1])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        is_ambiguous = any(not each.required or each.nargs == -1 for each in self._arguments)
        formatter.write_paragraph()
        formatter.write_text(f"{FOOTER} {_FOOTER_AMBIGUOUS}" if is_ambiguous else FOOTER)

    def _begins_with_file(
        self, ctx: click.Context, given: dict[str, Any], words: list[str], named: int
    ) -> bool:
        """Whether the first word that is no option is FILE. `named` arguments were given as options."""
        arguments = self._arguments
        behind = given.get(_DB.name or "")
        session: Session = ctx.obj
        if len(words) <= max(sum(argument.required for argument in arguments) - named, 0):
            # If it is the database, another argument is missing, and the error should name that.
            is_named = behind is not None or session.path is not None
            return bool(words) and not is_named and is_database(words[0])
        if not _could_be(words, arguments[named:]):
            if behind is not None:
                raise click.UsageError(
                    f"the file is named twice: {words[0]!r} and --db {behind!r}", ctx
                )
            return True
        if session.is_named or behind is not None:
            return False
        if session.path is None:
            if not os.path.exists(words[0]):
                raise click.UsageError(
                    f"name the database file: there is no file {words[0]!r}; put FILE before "
                    "the other arguments, or use --db PATH or EOSDB_DB",
                    ctx,
                )
            return True
        if is_database(words[0]):
            raise click.UsageError(
                f"{words[0]!r} is a database, but EOSDB_DB names {session.path!r}: write --db {words[0]!r} "
                f"to open the first, or --db {session.path!r} before it to pass it as an argument",
                ctx,
            )
        return False


def _each_of_files(args: Iterable[str]) -> list[str]:
    """The line with `--files` before each database of a pattern that the shell has expanded."""
    found: list[str] = []
    for word in args:
        follows = found[-2:-1] == ["--files"] and is_database(word) and is_database(found[-1])
        found += ["--files", word] if follows else [word]
    return found


class FileGroup(click.Group):
    """A group of commands on a file; `--db` may also come before the command's name. Kafka's tools have
    options for such commands, such as --list; the error for them names the command."""

    command_class = FileCommand

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.params += [_DB, _SERVER]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for name in self.commands:
            if f"--{name}" in args and not set(args) & self.commands.keys():
                raise click.UsageError(
                    f"--{name} is no option but a command: {ctx.command_path} {name} FILE …", ctx
                )
        return super().parse_args(ctx, args)


def _could_be(words: Sequence[str], arguments: Sequence[click.Argument]) -> bool:
    """Whether the words fit the arguments: not too many, and numbers where numbers are expected."""
    if len(words) > len(arguments) and not any(argument.nargs == -1 for argument in arguments):
        return False
    return all(
        word.lstrip("-").isdecimal() or not isinstance(argument.type, click.types.IntParamType)
        for word, argument in zip(words, arguments, strict=False)
    )
