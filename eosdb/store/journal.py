"""Reads the journal: events in the order in which they were recorded, and marks of the history.

A program that stores offsets elsewhere keeps a mark with them: the file's id, the newest event's position,
and a digest of that event and of its life. With the mark it can check later that the file still has the
same history. A replaced file has another id. A restored older copy has no event at that position or, if it
has grown since, another life there (decisions/0094), which is known even after the event was trimmed. A
schema revision that rewrites events would invalidate existing marks.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, NamedTuple

from eosdb.errors import CorruptDatabaseError, InvalidRequestError
from eosdb.events import encoding
from eosdb.events.kinds import Event
from eosdb.model.reports import JournalEntry
from eosdb.store.schema import file_id
from eosdb.store.schema.row_checksum import row_checksum
from eosdb.store.writing.unit import LAST_POSITION

COLUMNS: Final = "position, kind, timestamp, topic, partition, transactional_id, detail"
_SELECT: Final = (
    f"SELECT {COLUMNS}, checksum FROM eosdb_journal WHERE position > ? ORDER BY position"
)
_OF_ID: Final = f"SELECT {COLUMNS} FROM journal WHERE transactional_id = ? ORDER BY position"
_AT: Final = f"SELECT {COLUMNS} FROM eosdb_journal WHERE position = ?"
_FIRST_AFTER: Final = "SELECT min(position) FROM eosdb_journal WHERE position > ?"
_PAGE: Final = 1_000
_SPAN: Final = 100_000
"""The most positions that one page scans, so that a rarely matching filter holds no snapshot for long."""


def events(
    connection: sqlite3.Connection,
    on_altered: Callable[[int], None] | None = None,
    *,
    after: int = 0,
) -> Generator[tuple[int, Event], None, None]:
    """Yield position and event for every event after a position, oldest first, with bounded memory.
    `on_altered` is called with the position of each event with a wrong checksum. Raises
    CorruptDatabaseError for a row that is not an event."""
    for *row, checksum in connection.execute(_SELECT, (after,)):
        if on_altered is not None and checksum != row_checksum(*row):
            on_altered(row[0])
        yield event_of(row)


def event_of(row: Sequence[Any]) -> tuple[int, Event]:
    """Return position and event of a row of `COLUMNS`. Raises CorruptDatabaseError."""
    try:
        return row[0], encoding.read(row[1:])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptDatabaseError(
            f"journal position {row[0]}: this is not an event that this eosdb knows ({error!r})"
        ) from error


def of_transactional_id(
    connection: sqlite3.Connection, transactional_id: str
) -> Iterator[JournalEntry]:
    """Yield every event of the transactional id, oldest first."""
    return (JournalEntry(*row) for row in connection.execute(_OF_ID, (transactional_id,)))


def page(
    connection: sqlite3.Connection,
    after: int,
    kinds: Sequence[str],
    topic: str | None,
    transactional_id: str | None,
) -> tuple[list[JournalEntry], int]:
    """Return the next page of events that match every filter, and the position to continue from. At the end
    of the journal that position is `after`."""
    (first,) = connection.execute(_FIRST_AFTER, (after,)).fetchone()
    last = min(last_position(connection), max(first or 0, after) + _SPAN)
    conditions, values = ["position > ? AND position <= ?"], list[object]([after, last])
    if kinds:
        conditions.append(f"kind IN ({', '.join('?' * len(kinds))})")
        values.extend(kinds)
    for column, wanted in (("topic", topic), ("transactional_id", transactional_id)):
        if wanted is not None:
            # The unary plus keeps SQLite from using the column's index: rows must come by position.
            conditions.append(f"+{column} = ?")
            values.append(wanted)
    entries = [
        JournalEntry(*row)
        for row in connection.execute(
            f"SELECT {COLUMNS} FROM journal WHERE {' AND '.join(conditions)} "
            f"ORDER BY position LIMIT {_PAGE}",
            values,
        )
    ]
    return entries, entries[-1].position if len(entries) == _PAGE else max(last, after)


def at(connection: sqlite3.Connection, position: int) -> JournalEntry | None:
    """Return the event at the position; None if it is not in the journal."""
    row = connection.execute(_AT, (position,)).fetchone()
    return None if row is None else JournalEntry(*row)


def last_position(connection: sqlite3.Connection) -> int:
    """Return the position of the newest event; 0 if there is none."""
    (position,) = connection.execute(LAST_POSITION).fetchone()
    return int(position)


_HALF: Final = 8
_UNKNOWN: Final = "0" * _HALF
"""Half a digest: no event, an event that has been trimmed, or the first life."""
_LIFE_AT: Final = (
    "SELECT life_id, position FROM eosdb_lives WHERE position <= ? ORDER BY position DESC LIMIT 1"
)


class Mark(NamedTuple):
    file_id: str
    position: int
    digest: str
    """One half is of the event at the position, the other half of its life."""

    def __str__(self) -> str:
        return f"{self.file_id}.{self.position}.{self.digest}"


def mark(connection: sqlite3.Connection) -> Mark:
    position = last_position(connection)
    digest = _event(connection, position) + _life(connection, position)[0]
    return Mark(file_id.read(connection), position, digest)


def parse_mark(text: str) -> Mark:
    """Parse a mark's text. Raises InvalidRequestError for other text."""
    try:
        known_id, position, digest = text.split(".")
        return Mark(known_id, int(position), digest)
    except ValueError:
        raise InvalidRequestError(
            f"got {text!r:.80}, expected a mark: a file's id, a position and a digest, separated by points"
        ) from None


def departure(connection: sqlite3.Connection, known_mark: str) -> str | None:
    """Return why the mark does not belong to this file's history; None if it does."""
    known_id, position, digest = parse_mark(known_mark)
    mine = file_id.read(connection)
    if mine != known_id:
        return f"this is another file: its id is {mine}, not {known_id}"
    if (last := last_position(connection)) < position:
        return f"this is an older copy of the file: it ends with event {last}, not {position}"
    life, began = _life(connection, position)
    if digest[_HALF:] != life:
        return (
            f"this is an older copy of the file, written since: event {position} belongs to another life, "
            f"which began with event {began}"
        )
    known, found = digest[:_HALF], _event(connection, position)
    if found not in (known, _UNKNOWN) and known != _UNKNOWN:
        return f"this is an older copy of the file, written since: it has another event {position}"
    return None


def _event(connection: sqlite3.Connection, position: int) -> str:
    event = at(connection, position)
    return _UNKNOWN if event is None else _digest(repr(event))


def _life(connection: sqlite3.Connection, position: int) -> tuple[str, int]:
    """Return the digest of the life to which the position belongs, and where it began."""
    life_id, began = connection.execute(_LIFE_AT, (position,)).fetchone() or ("", 0)
    return _digest(life_id) if life_id else _UNKNOWN, began


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HALF]
