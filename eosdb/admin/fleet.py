"""One query over many files: `eosdb.fleet(paths).query(sql)`.

SQLite attaches at most ten files, so the rows are copied: file by file, each from its own snapshot, into a
temporary database on disk. Only the columns that the query names are copied. One file is open at a time.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from eosdb.admin.summary import snapshot
from eosdb.errors import DatabaseNotFoundError, InvalidRequestError
from eosdb.model.answers import Parameters, QueryResult
from eosdb.model.progress import Progress, report_progress
from eosdb.model.validation import check_file, check_text
from eosdb.store import queries
from eosdb.store.file.connection import hearing
from eosdb.store.file.failures import translate
from eosdb.store.schema.guard import quoted

Path = str | os.PathLike[str]
_SCRATCH: Final = "the temporary database"
_Columns = list[tuple[str, str]]
_ALL: Final = re.compile(r"(?<!count\()\*|\bnatural\b", re.I)
"""SQL that reads columns without naming them."""


def fleet(paths: Path | Iterable[Path]) -> Fleet:
    """Return the files to query together. Takes paths, folders (their `*.db`) and patterns such as
    `devices/*.db`. Raises DatabaseNotFoundError for a path or pattern without a file."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    for path in given or ["no path"]:
        if not files_at(check_file("paths", path)):
            raise DatabaseNotFoundError(
                f"{path}: found no file; expected a file, a folder with *.db files, or a pattern "
                "that matches a file"
            )
    return Fleet(tuple(dict.fromkeys(file for path in given for file in files_at(os.fspath(path)))))


def files_at(path: str) -> list[str]:
    """Return the file itself, or the files of a folder or pattern, in order, without hidden files."""
    if os.path.isdir(path):
        path = os.path.join(glob.escape(path), "*.db")
    return [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))


@dataclass(frozen=True, slots=True)
class Fleet:
    """Files that are queried together, built by `eosdb.fleet`."""

    paths: tuple[str, ...]

    def query(
        self, sql: str, parameters: Parameters = (), *, on_progress: Progress | None = None
    ) -> QueryResult:
        """Run one read-only SQL statement over the rows of all files, each on its own snapshot. Every view
        and table begins with a column `file`, the path. `on_progress` counts files.

        The columns that the statement names are first copied into a temporary database, for which the disk
        needs room. Raises InvalidRequestError like `Database.query`, and for a file that lacks a view or
        column of the first file; and the errors of `connect` for a file that cannot be read.
        """
        queries.check(check_text("sql", sql))
        values = queries.bindable(parameters)
        # decisions/0089: without a name, SQLite makes a temporary file and deletes it when this is closed.
        scratch = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        try:
            with _snapshot(self.paths[0]) as first:
                used, views = _used(first, sql), queries.typed_views(first)
            with queries.refusals(_SCRATCH):
                for table, columns in used.items():
                    declared = "".join(f", {quoted(name)} {kind}" for name, kind in columns)
                    scratch.execute(f"CREATE TABLE {quoted(table)} (file{declared})")
            types = _types(scratch, views, sql)
            report_progress(on_progress, lambda report: _fill(scratch, self.paths, used, report))
            scratch.execute("PRAGMA query_only=ON")
        except BaseException:
            scratch.close()
            raise
        names, rows = queries.answer(scratch, _SCRATCH, sql, values)
        return QueryResult(names, rows, lambda: types)


@contextlib.contextmanager
def _snapshot(path: str) -> Iterator[sqlite3.Connection]:
    with queries.refusals(path), snapshot(path) as reader, hearing(reader):
        yield reader


def _used(reader: sqlite3.Connection, sql: str) -> dict[str, _Columns]:
    """The views and tables that the statement may use, with the columns it may use."""
    relations = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    return {
        table: [it for it in _columns(reader, table) if _ALL.search(sql) or _names(sql, it[0])]
        for (table,) in reader.execute(relations).fetchall()
        if _names(sql, table)
    }


def _names(sql: str, name: str) -> bool:
    """Whether the statement may contain the name; True for a name that SQL might have to escape."""
    word = rf"(?<![\w$]){re.escape(name)}(?![\w$])"
    return not name.isidentifier() or re.search(word, sql, re.I) is not None


def _columns(reader: sqlite3.Connection, table: str) -> _Columns:
    """The columns with their types, except ANY, which for a column would turn text into numbers."""
    found = reader.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
    return [(name, "" if kind == "ANY" else kind) for name, kind in found]


def _types(scratch: sqlite3.Connection, views: _Columns, sql: str) -> list[str]:
    scratch.execute("BEGIN")
    try:
        return queries.types_in(scratch, views, sql, "file, ")
    except sqlite3.Error:
        return []  # The query itself runs later and reports this error.
    finally:
        scratch.execute("ROLLBACK")


def _fill(
    scratch: sqlite3.Connection, paths: Sequence[str], used: dict[str, _Columns], report: Progress
) -> None:
    scratch.execute("BEGIN")
    for done, path in enumerate(paths):
        report(done, len(paths))
        with _snapshot(path) as reader:
            for table, columns in used.items():
                there = {name.lower() for name, _ in _columns(reader, table)}
                if not there or not there >= {name.lower() for name, _ in columns}:
                    raise InvalidRequestError(
                        f"{path}: {table} is missing, or lacks columns that it has in {paths[0]}; create "
                        "it in the same way, or leave the file out"
                    )
                names = "".join(f", {quoted(name)}" for name, _ in columns)
                marks = ", ".join("?" * (1 + len(columns)))
                into = f"{quoted(table)} (file{names}) VALUES ({marks})"
                rows = reader.execute(f"SELECT ? AS file{names} FROM {quoted(table)}", (path,))
                try:
                    scratch.executemany(f"INSERT INTO {into}", rows)
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL:
                        raise translate(error, _SCRATCH) from error  # The disk is full.
                    raise
    scratch.execute("COMMIT")
    report(len(paths), len(paths))
