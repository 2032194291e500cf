"""A unit of work: what happens between BEGIN IMMEDIATE and COMMIT, seen from the inside.

"Transaction" alone always means Kafka's; SQLite's is a unit. A unit carries the connection, the memos of
state that has been read already, and `record`, the only way anything changes: insert the event, then fold
it into the materialized tables by the same `apply` that replay uses.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Hashable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Final, TypeVar

from eosdb.events.encoding import encode
from eosdb.events.kinds import Event
from eosdb.store.schema.row_checksum import row_checksum

T = TypeVar("T")
STEPS_PER_UNIT: Final = 500
"""The most partitions, groups or ids that one unit of due work handles: others want their turn."""
Apply = Callable[["Unit", Event, int], None]
"""Folds an event at a journal position into the materialized tables."""

_INSERT_EVENT: Final = (
    "INSERT INTO journal (position, kind, timestamp, topic, partition, transactional_id, detail, "
    "checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


class RedoCarefullyError(Exception):
    """One part of the unit must be undone; never leaves the store."""


class Memo:
    """What a room remembers of rows read or written before: a dataclass with slots, made on first use
    (`unit.memos[Kind]`). It outlives the unit unless somebody else writes the file, and is dropped when
    anything in a unit is undone."""

    __slots__: tuple[str, ...] = ()

    def size(self) -> int:
        """How many values are remembered."""
        held = (getattr(self, name) for name in self.__slots__)
        return sum(len(values) for values in held if isinstance(values, Sized))


M = TypeVar("M", bound=Memo)


class Memos(dict[type[Memo], Memo]):
    """One memo of each kind, empty at first. Do not keep a reference: any later step may drop it."""

    if TYPE_CHECKING:  # A dictionary's own look-up is twice as fast.

        def __getitem__(self, kind: type[M]) -> M: ...

    def __missing__(self, kind: type[M]) -> M:
        memo = self[kind] = kind()
        return memo

    def size(self) -> int:
        """How many values all of them remember."""
        return sum(memo.size() for memo in self.values())


class Unit:
    """The inside of a write unit."""

    __slots__ = (
        "_position", "careful", "connection", "execute", "executemany", "memos", "projection",
        "written_bytes",
    )  # fmt: skip

    def __init__(self, connection: sqlite3.Connection, apply: Apply) -> None:
        self.connection: Final = connection
        self.projection: Final = apply
        self.execute: Callable[..., sqlite3.Cursor] = connection.execute
        self.executemany: Callable[..., sqlite3.Cursor] = connection.executemany
        self.memos: Final = Memos()
        self._position: int | None = None
        """The last event's position, if it is known."""
        self.written_bytes = 0
        self.careful = True
        """Whether one part can be undone; if not, a part that must be makes the whole unit run again."""

    def forget(self) -> None:
        """Drop everything remembered: the file may say otherwise."""
        self.memos.clear()
        self._position = None

    def record(self, event: Event) -> int:
        """Make `event` a row of the journal and fold it. Returns its position."""
        position = self.last_position() + 1
        row = (position, *encode(event))
        self.execute(_INSERT_EVENT, (*row, row_checksum(*row)))
        self._position = position
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
        """Projection only: write a whole row, `row(value)`. Of several saved under one key only the
        newest matters."""
        self.execute(statement, row(value))

    def insert(self, table: str, statement: str, row: Sequence[object]) -> None:
        """Projection only: write a new row."""
        self.execute(statement, row)

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what the block wrote when it raises, and only that.

        A SQLite error is left to the unit as a whole: it may have ended the savepoint. Most parts that
        fail have written nothing yet, so a unit that is not careful sets no savepoint; it raises
        RedoCarefullyError where one was needed.
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
            self.forget()
            self.execute("ROLLBACK TO part")
            self.execute("RELEASE part")
            raise
        self.execute("RELEASE part")

    def last_position(self) -> int:
        """The position of the newest event; 0 when nothing has happened yet."""
        if self._position is not None:
            return self._position
        row = self.execute("SELECT COALESCE(MAX(position), 0) FROM journal").fetchone()
        return int(row[0])
