"""What a program that watches many files must know of each: one look, on one connection.

`eosdb.connect` makes a whole database object around a connection. Who looks at ten thousand files needs to
know only which file each is, what is in it, and whether offsets kept elsewhere still belong to it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable
from typing import NamedTuple

from eosdb.admin import consistent_cut
from eosdb.config import BrokerConfig
from eosdb.coordinator.authorizer import Authorizer
from eosdb.store import history
from eosdb.store.file import forking
from eosdb.store.file.failures import translated
from eosdb.store.schema.migrate import open_file

_CONFIG = BrokerConfig()


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
    with forking.at_work():
        _, connection = open_file(
            file,
            create=False,
            migrate=False,
            read_only=True,
            lock_timeout_ms=_CONFIG.lock_timeout_ms,
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
