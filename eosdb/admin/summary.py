"""Summarises a file for programs that watch ten thousand of them: its identity and content, and whether
offsets that are stored elsewhere are still valid. One connection is enough; `eosdb.connect` creates a whole
database object around it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from eosdb.admin import consistent_cut
from eosdb.coordinator.authorizer import Authorizer
from eosdb.errors import EosdbError
from eosdb.log import topics
from eosdb.model.clock import SystemClock
from eosdb.model.config import BrokerConfig
from eosdb.store import journal
from eosdb.store.file import forking
from eosdb.store.file.failures import translated
from eosdb.store.schema.migrate import open_file

_CONFIG: Final = BrokerConfig()
_CLOCK: Final = SystemClock()
LONG_AGO_NS: Final = 60_000_000_000
"""A file whose times are older than this was not changed recently, even if the clock of its file server is
off by almost as much."""

SINK_BATCH: Final = "SELECT 1 FROM eosdb_sinks WHERE sink_id = ? AND batch_id >= ?"
"""Returns a row if the file knows this batch of a sink, or a later one. Old batches are forgotten."""


class Stamp(NamedTuple):
    """The file system's facts about a file and its write-ahead log; an empty log counts as no log."""

    database: tuple[int, ...]
    wal: tuple[int, ...] | None

    @property
    def newest_ns(self) -> int:
        return max(*self.database[-2:], *(self.wal or ())[-2:])


def stamp_of(path: str) -> Stamp | None:
    """Return a file's stamp; None if the file or the file system's facts about it do not exist."""
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
    """The summary of a file from one snapshot."""

    file_id: str
    """The file id, which exact copies share, wherever they are."""
    position: int
    """The position of the newest event; of two copies of a file the one with the higher position is
    newer."""
    mark: str
    """The history's mark, as `admin.log.history_mark` returns it."""
    cut: consistent_cut.Cut
    """The consistent cut, as `Admin.consistent_cut` returns it."""
    departures: dict[str, str]
    """The results of `admin.log.history_departure` for those given marks that belong to another history."""
    topic_ids: dict[str, str]
    """The ids of the topics in `cut`, by name; empty if they are unknown (in a snapshot's manifest)."""


def look(
    path: str | os.PathLike[str],
    marks_of: Callable[[str], Iterable[str]] = lambda file_id: (),
    *,
    principal: str = "User:ANONYMOUS",
) -> FileSummary:
    """Summarise a file; raises the errors of `eosdb.connect(path, read_only=True)`. `marks_of` returns the
    marks that the caller has for a file id."""
    file = os.path.realpath(path)
    authorizer = Authorizer(principal)
    # decisions/0036: if nobody writes the file during the read, no lock and no -shm file are needed.
    if (before := _at_rest(file)) is not None:
        with contextlib.suppress(EosdbError):
            result = _look(file, authorizer, marks_of, at_rest=True)
            if _at_rest(file) == before:
                return result
    return _look(file, authorizer, marks_of, at_rest=False)


def _at_rest(file: str) -> Stamp | None:
    """Return the stamp of a file that has had no WAL for a while; None for any other file.

    So two equal stamps show that no program wrote in between: a writer first creates a WAL, and a
    checkpoint changes the file's times, if the clock has ticked since they were set.
    """
    stamp = stamp_of(file)
    if stamp is None or stamp.wal is not None:
        return None
    is_old = stamp.newest_ns < _CLOCK.time_ms() * 1_000_000 - LONG_AGO_NS
    return stamp if is_old else None


def _look(
    file: str, authorizer: Authorizer, marks_of: Callable[[str], Iterable[str]], *, at_rest: bool
) -> FileSummary:
    with translated(file), snapshot(file, at_rest=at_rest) as connection:
        return of(connection, authorizer, marks_of)


@contextlib.contextmanager
def snapshot(file: str, *, at_rest: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a snapshot of a file, on a connection of its own."""
    with forking.at_work():
        connection = open_file(
            file, create=False, migrate=False, read_only=True,
            lock_timeout_ms=_CONFIG.lock_timeout_ms, at_rest=at_rest,
        ).reader  # fmt: skip
        assert connection is not None
        with contextlib.closing(connection):
            connection.execute("BEGIN")
            yield connection


def of(
    connection: sqlite3.Connection,
    authorizer: Authorizer,
    marks_of: Callable[[str], Iterable[str]] = lambda file_id: (),
) -> FileSummary:
    """Summarise the file on the caller's snapshot."""
    mark = journal.mark(connection)
    cut = consistent_cut.read(connection, authorizer)
    named = {tp.topic for tp in cut}
    return FileSummary(
        mark.file_id,
        mark.position,
        str(mark),
        cut,
        {
            known_mark: why
            for known_mark in marks_of(mark.file_id)
            if (why := journal.departure(connection, known_mark)) is not None
        },
        {
            metadata.name: str(metadata.topic_id)
            for metadata in topics.metadata(connection)
            if metadata.name in named
        },
    )


def id_in(mark: str) -> str:
    """Return the file id in a mark. Raises InvalidRequestError for text that is not a mark."""
    return journal.parse_mark(mark).file_id
