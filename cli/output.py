"""Output of commands: listings as table, JSON, JSON lines or CSV, and values of records.

A terminal gets a rich table; a pipe gets aligned text without decoration. Times are ISO 8601 in tables, and
milliseconds since the epoch in the formats for programs.

Long-running commands show their progress on a terminal: a bar on stderr, with the pace and the time left. A
log, a pipe and `--quiet` get no progress, so that every line on stderr is a message.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar, cast

import click

from eosdb.cli.stopping import is_normal_end
from eosdb.model.clock import SystemClock, format_time_ms
from eosdb.model.words import decoded, duration, printable
from eosdb.system.descriptors import head
from eosdb.system.lock_file import LOCK
from eosdb.system.road import road

if TYPE_CHECKING:
    from rich.console import Console


Report = Callable[..., None]
"""Takes the amount done, the total (None if unknown), and the number of units if amounts are in bytes."""
QUIET: Final = "eosdb.quiet"
FORMAT: Final = "eosdb.format"
FILE: Final = "eosdb.file"
"""The keys in `Context.meta` that --quiet, --format, and FILE or --db set."""
_BESIDE: Final = ("", "-wal", "-shm", "-journal", LOCK, *(LOCK + each for each in road.LOCK_FILES))
"""The suffixes of the database's files."""
_MAGIC: Final = b"SQLite format 3\0"


@dataclass(slots=True)
class Pace:
    """The text beside a bar. The rate is the mean since the first report, so it excludes preparations such
    as the check of the file's structure."""

    unit: str
    began: tuple[int, int, int] | None = None
    """Amount, units and time (ms) of the first report, or of the last one without progress."""

    def text(self, now_ms: int, done: int, total: int | None, count: int | None = None) -> str:
        """Text such as `1,200 records (30 %), 240 a second, 12 s left`."""
        units = done if count is None else count
        if self.began is None or (done, units) == self.began[:2]:
            self.began = done, units, now_ms
        first, before, began_ms = self.began
        elapsed_ms = max(now_ms - began_ms, 1)
        # `done` may exceed `total`, because the file may grow while it is read.
        share = f" ({100 * min(done, total) // total} %)" if total else ""
        pace = f"{units:,} {self.unit}{share}, {(units - before) * 1000 // elapsed_ms:,} a second"
        if total is None or done <= first:
            return pace
        left_ms = max(total - done, 0) * elapsed_ms // (done - first)
        return f"{pace}, {duration(-(-left_ms // 1000) * 1000)} left"


@contextlib.contextmanager
def progress(doing: str, unit: str = "") -> Iterator[Report]:
    """Show the progress of the work inside the block. Work that reports nothing shows the time it takes."""
    console = _console()
    if console is None:
        yield lambda done, total, count=None: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    status = TextColumn("{task.fields[status]}", markup=False)
    with Progress(text, BarColumn(), status, TimeElapsedColumn(), console=console) as bar:
        task, pace, clock = bar.add_task(doing, total=None, status=""), Pace(unit), SystemClock()

        def report(done: int, total: int | None, count: int | None = None) -> None:
            shown = pace.text(clock.monotonic_ms(), done, total, count)
            bar.update(task, completed=done, total=total, status=shown)

        yield report


def _console() -> Console | None:
    """The terminal behind stderr; None if it cannot redraw a bar, or --quiet was given."""
    context = click.get_current_context(silent=True)
    if (context and QUIET in context.meta) or sys.stderr is None or not sys.stderr.isatty():
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_interactive else None


F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("table", "json", "jsonl", "csv")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_TABLE_SAMPLE = 1_000
"""Rows that determine the column widths of a plain table; later rows may be wider."""


class Time(int):
    """Milliseconds since the epoch. Tables show an ISO 8601 time, other formats the number."""

    def __format__(self, spec: str) -> str:
        return "" if self < 0 else format_time_ms(int(self), "milliseconds")


def format_option(function: F) -> F:
    """Add `--format table|json|jsonl|csv` and `-o PATH` to a command, the same for every listing."""
    return click.option(
        "--format", type=click.Choice(FORMATS), default="table", show_default=True,
        expose_value=False, callback=choose_format,
        help="Output format; json is one array, jsonl one object per line.",
    )(file_option(function))  # fmt: skip


def choose_format(context: click.Context, _: click.Parameter | None, form: str) -> None:
    """The callback of --format: from now on `rows` prints in this format."""
    context.meta[FORMAT] = form


def is_format(form: str) -> bool:
    """Whether --format has this value."""
    return bool(click.get_current_context().meta[FORMAT] == form)


def file_option(function: F) -> F:
    """Add `-o PATH` to a command: its output is written to a file, atomically."""

    @functools.wraps(function)
    def command(*args: Any, output_file: str | None, **kwargs: Any) -> Any:
        if output_file is None:
            return function(*args, **kwargs)
        with _whole_file(output_file):
            return function(*args, **kwargs)

    return click.option(
        "-o",
        "--output",
        "output_file",
        type=click.Path(dir_okay=False),
        metavar="PATH",
        help="Write the output to this file, atomically.",
    )(cast(F, command))


@contextlib.contextmanager
def _whole_file(path: str) -> Iterator[None]:
    """Redirect standard output to a file that replaces `path` when the block ends, unless it raises. The
    new file has the old one's mode; a symlink stays, and leads to the new file. A device or a pipe, such
    as /dev/null, is written directly: a rename would replace it."""
    if os.path.exists(path) and not os.path.isfile(path):
        with (
            open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as file,
            contextlib.redirect_stdout(file),
        ):
            yield
        return
    target = os.path.realpath(path)
    _check_is_no_database(path, target)
    part = f"{target}.{os.getpid()}.part"
    old = os.stat(target) if os.path.exists(target) else None
    new = os.open(
        part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if old else 0o666
    )
    with open(new, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        try:
            if old is not None:
                os.fchmod(new, old.st_mode & 0o7777)
            with contextlib.redirect_stdout(file):
                try:
                    yield
                except KeyboardInterrupt:
                    if not is_normal_end(click.get_current_context().meta):
                        raise
            file.flush()
            road.sync(file.fileno())
            os.replace(part, target)
        except BaseException:
            os.unlink(part)
            raise


def _check_is_no_database(path: str, target: str) -> None:
    """Raises UsageError for an output file that is a database, or a file that SQLite or eosdb keeps beside
    one."""
    own = named_file(click.get_current_context()) or ""
    for suffix in _BESIDE:
        database = target.removesuffix(suffix) if target.endswith(suffix) else target
        is_own = os.path.exists(target) and os.path.exists(own + suffix)
        if is_database(database) or (own and is_own and os.path.samefile(own + suffix, target)):
            raise click.UsageError(
                f"-o {path}: this is a database, or a file beside one; give another path"
            )


def named_file(context: click.Context) -> str | None:
    """The path of the file from the command line (FILE or --db), or else from EOSDB_DB."""
    path = context.meta.get(FILE) or context.find_root().params.get("path")
    return path if isinstance(path, str) else None


def is_database(path: str) -> bool:
    """Whether the file is there, and begins as SQLite's files do."""
    try:
        return head(path, len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def rows(columns: Sequence[str], data: Iterable[Sequence[object]]) -> None:
    """Print rows in the format of --format, as they arrive. A table waits for the first rows, which
    determine its widths."""
    if is_format("json"):
        _json(columns, data)
    elif is_format("jsonl"):
        for item in _items(columns, data):
            click.echo(item)
    elif is_format("csv"):
        text = cell if sys.stdout.isatty() else shown
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(text, columns))
        for row in data:
            writer.writerow(map(text, row))
    elif sys.stdout.isatty():
        _rich(columns, data)
    else:
        _plain(columns, data)


def listing(
    columns: Sequence[str],
    things: Iterable[Any],
    /,
    **others: str | Callable[[Any], object],
) -> None:
    """Print a row for each object. The column `producerId` or `PRODUCER-ID` shows the attribute
    `producer_id`. `others` names another attribute for a column, such as `group.lag.held_back` (None if the
    object has no group), or a function of the object. Booleans are printed as Kafka's tools do."""
    names = [_HUMP.sub("_", column).replace("-", "_").lower() for column in columns]
    cells = [others.get(name, name) for name in names]

    def value(thing: Any, of: str | Callable[[Any], object]) -> object:
        if not isinstance(of, str):
            return of(thing)
        for name in of.split("."):
            thing = None if thing is None else getattr(thing, name)
        return yes(thing) if isinstance(thing, bool) else thing

    rows(columns, ([value(thing, of) for of in cells] for thing in things))


def known(number: int, unknown: str = "None") -> int | str:
    """The number, or for -1 the text that Kafka's tools print."""
    return unknown if number < 0 else number


def yes(is_so: bool) -> str:
    """A boolean as Kafka's tools print it."""
    return "true" if is_so else "false"


def shown(value: object) -> str:
    """A value as text; bytes that are not UTF-8 as an SQL literal, X'…'."""
    if isinstance(value, bytes):
        return decoded(value)
    return "" if value is None else str(value)


def cell(value: object) -> str:
    """A value as text for a table or picture; line ends and terminal control characters are escaped."""
    return printable(f"{value}" if isinstance(value, Time) else shown(value))


def line(text: object = "", *, err: bool = False) -> None:
    """Print one line; line ends and terminal control characters in it are escaped. A message on stderr that
    cannot be written is lost."""
    if err:
        done(text, err=True)
    else:
        click.echo(printable(str(text)))


def done(text: object, *, err: bool = False) -> None:
    """Print a line that says what was done. If it cannot be written it is lost: the command has succeeded
    all the same."""
    try:
        click.echo(printable(str(text)), err=err)
    except OSError:
        silence(sys.stderr if err else sys.stdout)


def silence(stream: TextIO) -> None:
    """Let a stream that cannot be written lead nowhere. Python would report it again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def due(found: Iterable[tuple[str, str]]) -> None:
    """Print due work on standard error: for each name, the change that the next write to the file makes."""
    for name, what in found:
        if what:
            line(f"{name}: {what}", err=True)


def lines(text: str, indent: str = "") -> None:
    """Print text of several lines, escaped. Users' text is indented, so it cannot forge our lines."""
    for part in text.removesuffix("\n").split("\n"):
        line(indent + part)


def exact(text: str) -> None:
    """Print text: to a program unchanged, to a terminal escaped."""
    lines(text) if sys.stdout.isatty() else click.echo(text, nl=False)


def value(data: bytes | None) -> None:
    """Print the value of a record: to a program unchanged, to a terminal escaped."""
    click.echo(cell(data) if sys.stdout.isatty() else data or b"")


def _json(columns: Sequence[str], data: Iterable[Sequence[object]]) -> None:
    opening = "["
    for item in _items(columns, data):
        click.echo(f"{opening}\n  {item}", nl=False)
        opening = ","
    click.echo("[]" if opening == "[" else "\n]")


def _items(columns: Sequence[str], data: Iterable[Sequence[object]]) -> Iterator[str]:
    """Each row as a JSON object in one line, with terminal control characters as JSON escapes."""
    names = _distinct(columns)
    for row in data:
        item = dict(zip(names, map(_json_value, row), strict=True))
        text = json.dumps(item, ensure_ascii=False)
        if not text.isprintable():
            text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
        yield text


def _distinct(columns: Sequence[str]) -> list[str]:
    """Make the member names of an object distinct: a second `a` becomes `a_2`, so that no value is lost."""
    names: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def _json_value(value: object) -> object:
    if isinstance(value, bytes):
        return shown(value)
    # SQLite has infinity, but JSON has not.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _plain(columns: Sequence[str], data: Iterable[Sequence[object]]) -> None:
    texts = ([cell(value) for value in row] for row in data)
    sample = list(islice(texts, _TABLE_SAMPLE))
    headings = [cell(column) for column in columns]
    widths = [max(map(len, cells)) for cells in zip(headings, *sample, strict=True)]
    for row in chain([headings], sample, texts):
        cells = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        click.echo(cells.rstrip())


def _rich(columns: Sequence[str], data: Iterable[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(Text(cell(column)), overflow="fold")
    for row in data:
        table.add_row(*(Text(cell(value)) for value in row))
    Console().print(table)


def facts(items: dict[str, object]) -> None:
    """Print names and values, one pair per line; as JSON, an array of one object, like any listing."""
    if is_format("table"):
        rows(("FACT", "VALUE"), items.items())
    else:
        rows(tuple(items), [tuple(items.values())])
