"""What a program that watches many files must know of each: one look, on one connection.

`eosdb.connect` makes a whole database object around a connection. Who looks at ten thousand files needs to
know only which file each is, what is in it, and whether offsets kept elsewhere still belong to it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from eosdb.admin import consistent_cut
from eosdb.clock import SystemClock
from eosdb.config import BrokerConfig
from eosdb.coordinator.authorizer import Authorizer
from eosdb.errors import EosdbError
from eosdb.store import history
from eosdb.store.file import forking
from eosdb.store.file.failures import translated
from eosdb.store.schema.migrate import open_file

_CONFIG: Final = BrokerConfig()
_CLOCK: Final = SystemClock()
_A_WHILE_MS: Final = 60_000
"""Times that are so much older than this machine's clock are old, even if a share's clock goes wrong."""


class FileSummary(NamedTuple):
    """A file at one instant."""

    file_id: str
    """Stays with the file and its exact copies, wherever they are."""
    position: int
    """Of the newest event: of two copies of a file the higher is the newer one."""
    mark: str
    """`Admin.history_mark`."""
    cut: consistent_cut.Cut
    """`Admin.consistent_cut`."""
    departures: dict[str, str]
    """`Admin.history_departure` of the marks that were asked about and do not belong to this history."""


def look(
    path: str | os.PathLike[str],
    marks_of: Callable[[str], Iterable[str]] = lambda file_id: (),
    *,
    principal: str = "User:ANONYMOUS",
) -> FileSummary:
    """Look at a file as `eosdb.connect(path, read_only=True)` would, with its errors. `marks_of` names the
    marks that are remembered of the file with this id."""
    file = os.path.realpath(path)
    authorizer = Authorizer(principal)
    # decisions/0036: a file that nobody wrote during the look needs no lock, and no files beside it.
    if (before := _at_rest(file)) is not None:
        with contextlib.suppress(EosdbError):
            found = _look(file, authorizer, marks_of, at_rest=True)
            if _at_rest(file) == before:
                return found
    return _look(file, authorizer, marks_of, at_rest=False)


def _at_rest(file: str) -> tuple[int, ...] | None:
    """What the file system says of a file that has had no log for a while; None of any other.

    Whoever writes makes a log first. Whoever brings it into the file changes the file's times, if they are
    older than their ticks are long.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            if os.stat(f"{file}-wal").st_size:
                return None
        status = os.stat(file)
    except OSError:
        return None
    newest_ms = max(status.st_mtime_ns, status.st_ctime_ns) // 1_000_000
    if newest_ms > _CLOCK.time_ms() - _A_WHILE_MS:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _look(
    file: str,
    authorizer: Authorizer,
    marks_of: Callable[[str], Iterable[str]],
    *,
    at_rest: bool,
) -> FileSummary:
    with forking.at_work():
        _, connection = open_file(
            file,
            create=False,
            migrate=False,
            read_only=True,
            lock_timeout_ms=_CONFIG.lock_timeout_ms,
            at_rest=at_rest,
        )
        assert connection is not None
        with translated(file), contextlib.closing(connection):
            connection.execute("BEGIN")
            return of(connection, authorizer, marks_of)


def of(
    connection: sqlite3.Connection,
    authorizer: Authorizer,
    marks_of: Callable[[str], Iterable[str]] = lambda file_id: (),
) -> FileSummary:
    """The same, inside the caller's transaction."""
    mark = history.mark(connection)
    return FileSummary(
        mark.file_id,
        mark.position,
        str(mark),
        consistent_cut.read(connection, authorizer),
        {
            known: why
            for known in marks_of(mark.file_id)
            if (why := history.departure(connection, known)) is not None
        },
    )


def id_in(mark: str) -> str:
    """The id of the file that a mark is of. Raises InvalidRequestError for text that is not a mark."""
    return history.parse(mark).file_id
