"""Reading the journal back: the events in the one order in which they happened."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from eosdb.errors import CorruptDatabaseError
from eosdb.events import Event, decode

_SELECT: Final = (
    "SELECT position, kind, timestamp, topic, partition, transactional_id, detail "
    "FROM journal ORDER BY position"
)


def events(connection: sqlite3.Connection) -> Iterator[tuple[int, Event]]:
    """Every event with its position, oldest first; memory stays flat.

    Raises CorruptDatabaseError for a row that is no event.
    """
    for position, *row in connection.execute(_SELECT):
        try:
            event = decode(*row)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptDatabaseError(
                f"journal position {position}: this is no event eosdb knows ({error!r})"
            ) from error
        yield position, event
