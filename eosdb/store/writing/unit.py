"""A unit of work: what happens between BEGIN IMMEDIATE and COMMIT, seen from the inside.

"Transaction" alone always means Kafka's; SQLite's is a unit. A unit carries the connection, the
memo of state that has been read already, and `record`, the one way in which anything changes:
insert the event, then fold it into the materialized tables by the same `apply` that replay uses.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, TypeVar

from eosdb.events.encoding import encode
from eosdb.events.kinds import Event
from eosdb.store.schema.row_checksum import row_checksum

T = TypeVar("T")
STEPS_PER_UNIT: Final = 500
"""So many of what is due, be it partitions, groups or ids, one unit takes on: others want their turn."""
Apply = Callable[["Unit", Event, int], None]
"""Folds an event at a journal position into the materialized tables."""

_INSERT_EVENT: Final = (
    "INSERT INTO journal (position, kind, timestamp, topic, partition, transactional_id, detail, "
    "checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


class RedoCarefullyError(Exception):
    """A part of the unit must be undone alone; never leaves the store."""


class Unit:
    """The inside of a write unit.

    `memo` holds values that were read or written before, by keys that start with the name of their
    table; it outlives a unit as long as nobody else has written the file and is emptied on a
    rollback.
    """

    __slots__ = (
        "careful", "connection", "execute", "executemany", "memo", "projection", "written_bytes",
    )  # fmt: skip

    def __init__(self, connection: sqlite3.Connection, apply: Apply) -> None:
        self.connection: Final = connection
        self.projection: Final = apply
        self.execute: Callable[..., sqlite3.Cursor] = connection.execute
        self.executemany: Callable[..., sqlite3.Cursor] = connection.executemany
        self.memo: Final[dict[Hashable, Any]] = {}
        self.written_bytes = 0
        self.careful = True
        """Whether parts can be undone alone; if not, one that must be has the whole unit run again."""

    def record(self, event: Event) -> int:
        """Make `event` a row of the journal and fold it. Returns its position."""
        position = self.last_position() + 1
        row = (position, *encode(event))
        self.execute(_INSERT_EVENT, (*row, row_checksum(*row)))
        self.memo["journal"] = position
        # decisions/0001: the event first, and tables through its projection alone, as in a rebuild.
        self.projection(self, event, position)
        return position

    def save(
        self,
        table: str,
        key: Hashable,
        statement: str,
        row: Callable[[T], Sequence[object]],
        value: T,
    ) -> None:
        """Projection only: write a whole row, `row(value)`. Of what is saved under one key of the table
        the newest alone matters."""
        self.execute(statement, row(value))

    def insert(self, table: str, statement: str, row: Sequence[object]) -> None:
        """Projection only: write a row that is not there yet."""
        self.execute(statement, row)

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what the block wrote when it raises, and only that.

        An error of SQLite's own is left to the unit as a whole: it may have ended the savepoint. Most
        parts that fail have written nothing yet, so a unit that is not careful sets no savepoint;
        raises RedoCarefullyError where one was needed.
        """
        if not self.careful:
            before = self.connection.total_changes
            try:
                yield
            except sqlite3.Error:
                raise
            except Exception as error:
                if self.connection.total_changes != before:
                    raise RedoCarefullyError from error
                raise
            return
        self.execute("SAVEPOINT part")
        try:
            yield
        except sqlite3.Error:
            raise
        except Exception:
            self.memo.clear()
            self.execute("ROLLBACK TO part")
            self.execute("RELEASE part")
            raise
        self.execute("RELEASE part")

    def last_position(self) -> int:
        """The position of the newest event; 0 when nothing has happened yet."""
        position: int | None = self.memo.get("journal")
        if position is None:
            (position,) = self.execute("SELECT COALESCE(MAX(position), 0) FROM journal").fetchone()
        return position
