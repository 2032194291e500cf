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
from eosdb.coordinator.authorizer import Authorizer
from eosdb.errors import EosdbError
from eosdb.log import topics
from eosdb.model.clock import SystemClock
from eosdb.model.config import BrokerConfig
from eosdb.store import history
from eosdb.store.file import forking
from eosdb.store.file.failures import translated
from eosdb.store.schema.migrate import open_file

_CONFIG: Final = BrokerConfig()
_CLOCK: Final = SystemClock()
LONG_AGO_NS: Final = 60_000_000_000
"""A file whose times are older by this machine's clock has been left alone, even if the clock of a share
that it lies on goes wrong by most of this."""


class Stamp(NamedTuple):
    """What the file system says of a file and its write-ahead log; an empty log is as none."""

    database: tuple[int, ...]
    wal: tuple[int, ...] | None

    @property
    def newest_ns(self) -> int:
        return max(*self.database[-2:], *(self.wal or ())[-2:])


def stamp_of(path: str) -> Stamp | None:
    """None if there is no such file, or the file system does not say."""
    try:
        database = _times(os.stat(path))
        try:
            wal = os.stat(f"{path}-wal")
        except FileNotFoundError:
            return Stamp(database, None)
    except OSError:
        return None
    return Stamp(database, _times(wal) if wal.st_size else None)


def _times(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
    )  # fmt: skip


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
    topic_ids: dict[str, str]
    """By name, those of the topics in `cut`; empty where they are not known (a snapshot's manifest)."""


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


def _at_rest(file: str) -> Stamp | None:
    """The stamp of a file that has had no log for a while; None of any other.

    Whoever writes makes a log first. Whoever brings it into the file changes the file's times, if they are
    older than their ticks are long.
    """
    stamp = stamp_of(file)
    if stamp is None or stamp.wal is not None:
        return None
    is_old = stamp.newest_ns < _CLOCK.time_ms() * 1_000_000 - LONG_AGO_NS
    return stamp if is_old else None


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
    cut = consistent_cut.read(connection, authorizer)
    named = {tp.topic for tp in cut}
    return FileSummary(
        mark.file_id,
        mark.position,
        str(mark),
        cut,
        {
            known: why
            for known in marks_of(mark.file_id)
            if (why := history.departure(connection, known)) is not None
        },
        {one.name: str(one.topic_id) for one in topics.metadata(connection) if one.name in named},
    )


def id_in(mark: str) -> str:
    """The id of the file that a mark is of. Raises InvalidRequestError for text that is not a mark."""
    return history.parse(mark).file_id
