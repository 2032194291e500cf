"""Marks, by which a program that stores offsets elsewhere checks that the file still has the same
history.

A mark is the file's id, the newest event's position, and a digest of that event. A replaced file has
another id. A restored older copy has no event at that position or, if it has grown since, another one. A
schema revision that rewrites events would invalidate existing marks.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Final, NamedTuple

from eosdb.errors import InvalidRequestError
from eosdb.store import journal
from eosdb.store.schema import file_id

_DIGEST_CHARS: Final = 16
_NO_EVENT: Final = "0" * _DIGEST_CHARS


class Mark(NamedTuple):
    file_id: str
    position: int
    digest: str | None

    def __str__(self) -> str:
        return f"{self.file_id}.{self.position}.{self.digest}"


def mark(connection: sqlite3.Connection) -> Mark:
    position = journal.last_position(connection)
    return Mark(file_id.read(connection), position, _event(connection, position))


def parse(text: str) -> Mark:
    """Raises InvalidRequestError for text that is not a mark."""
    try:
        known_id, position, digest = text.split(".")
        return Mark(known_id, int(position), digest)
    except ValueError:
        raise InvalidRequestError(
            f"got {text!r:.80}, expected a mark: a file's id, a position and a digest, with points between"
        ) from None


def departure(connection: sqlite3.Connection, known_mark: str) -> str | None:
    """Return why the mark is not of this file's history; None if it is, as far as the journal goes back."""
    known_id, position, digest = parse(known_mark)
    mine = file_id.read(connection)
    if mine != known_id:
        return f"this is another file: its id is {mine}, not {known_id}"
    if (last := journal.last_position(connection)) < position:
        return f"this is an older copy of the file: it ends with event {last}, not {position}"
    found = _event(connection, position)
    if found not in (digest, None):
        return f"this was an older copy of the file: it has another event {position} now"
    return None


def _event(connection: sqlite3.Connection, position: int) -> str | None:
    """The digest of the event at a position; None if the journal does not go back so far."""
    if position == 0:
        return _NO_EVENT
    event = journal.at(connection, position)
    if event is None:
        return None
    return hashlib.sha256(repr(event).encode()).hexdigest()[:_DIGEST_CHARS]
