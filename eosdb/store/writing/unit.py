"""A unit of work: what happens between BEGIN IMMEDIATE and COMMIT, seen from the inside.

"Transaction" alone always means Kafka's; SQLite's is a unit. A unit carries the connection, the memos of
state that has been read already, and `record`, the only way anything changes: insert the event, then fold
it into the materialized tables by the same `apply` that replay uses.

A unit writes late (`waiting`): each row that it changes once, and what is new in few statements.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Final, TypeVar

from eosdb.events import lean
from eosdb.events.kinds import Event
from eosdb.events.lean import Lean
from eosdb.model.notices.notice import Untold
from eosdb.store.schema.row_checksum import row_checksum
from eosdb.store.writing.insertion import Insertion
from eosdb.store.writing.waiting import Waiting

T = TypeVar("T")
Parameters = Sequence[object] | Mapping[str, object]
STEPS_PER_UNIT: Final = 500
"""The most partitions, groups or ids that one unit of due work handles: others want their turn."""
Apply = Callable[["Unit", Event | Lean, int], Event]
"""Folds an event at a journal position into the materialized tables, and returns it with what its row
leaves out."""

LAST_POSITION: Final = (
    "SELECT max(ifnull((SELECT max(position) FROM journal), 0), "
    "ifnull((SELECT position FROM eosdb_baseline), 0))"
)
"""The baseline is beyond the journal in a file that was restored to the baseline itself."""
_EVENT: Final = Insertion.plain(
    "journal",
    (
        "position",
        "kind",
        "timestamp",
        "topic",
        "partition",
        "transactional_id",
        "detail",
        "checksum",
    ),
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
        "_connection", "_position", "_waited", "_waiting", "careful", "memos", "projection",
        "said", "untold", "written_bytes",
    )  # fmt: skip

    def __init__(
        self, connection: sqlite3.Connection, apply: Apply, untold: Untold | None = None
    ) -> None:
        self._connection: Final = connection
        self.projection: Final = apply
        self.memos: Final = Memos()
        self._waiting = Waiting(connection)
        self._waited = 0
        """How often something was left to wait."""
        self._position: int | None = None
        """The last event's position, if it is known."""
        self.written_bytes = 0
        self.said: Final = set[Hashable]()
        """What has been logged already and need not be again while the file is open."""
        self.untold: Final = untold or Untold()
        """What to say when nobody waits for the unit any more."""
        self.careful = True
        """Whether one part can be undone, for which everything is written at once; if not, a part that must
        be undone makes the whole unit run again."""

    @property
    def connection(self) -> sqlite3.Connection:
        """For what goes past the unit's own methods; everything that waits is written first."""
        self.write_waiting()
        return self._connection

    def forget(self) -> None:
        """Drop everything remembered: the file may say otherwise."""
        self.memos.clear()
        self._position = None

    def discard(self) -> None:
        """The unit has been undone: what waits is not written, and what is remembered is wrong."""
        self._waiting.discard()
        self.forget()

    def record(self, event: Event, expected: Event | None = None) -> int:
        """Make `event` a row of the journal, without what is as `expected`, and fold it. Returns its
        position."""
        position = self.last_position() + 1
        row = (position, *lean.write(event, expected))
        self.insert(_EVENT, (*row, row_checksum(*row)))
        self._position = position
        # decisions/0001: the event first, and tables through its projection alone, as in a rebuild.
        self.projection(self, event, position)
        return position

    # decisions/0025: live path and replay write late, through the same rows that wait.
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
        if self.careful:
            self._connection.execute(statement, row(value))
            return
        self._waited += 1
        self._waiting.save(table, key, statement, row, value)

    def insert(self, insertion: Insertion, row: Sequence[object]) -> None:
        """Write a new row of the log, or in a projection one of a table that is folded."""
        if self.careful:
            self._connection.execute(insertion.statement(1, len(row)), row)
            return
        self._waited += 1
        self._waiting.insert(insertion, row)

    def select(
        self,
        table: str,
        statement: str,
        parameters: Parameters,
        concerns: Callable[[Sequence[object]], bool],
    ) -> sqlite3.Cursor:
        """Run a SELECT from this table alone, which nobody saves to; its new rows wait on unless one of
        them concerns it."""
        if any(concerns(row) for _, row in self._waiting.new_rows(table)):
            return self.execute(statement, parameters)
        return self._connection.execute(statement, parameters)

    def execute(self, statement: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        """Run a statement, which sees everything saved so far."""
        if self._waiting.tables:
            self._see(statement)
        return self._connection.execute(statement, parameters)

    def executemany(self, statement: str, parameters: Iterable[Parameters]) -> sqlite3.Cursor:
        """The same for many rows of parameters."""
        if self._waiting.tables:
            self._see(statement)
        return self._connection.executemany(statement, parameters)

    def _see(self, statement: str) -> None:
        with self._redone_carefully():
            self._waiting.write_named_in(statement)

    def write_waiting(self) -> None:
        """Write everything that waits, before the unit is committed. Raises RedoCarefullyError for a row
        that does not fit: alone, its request gets its own error."""
        if self._waiting.tables:
            with self._redone_carefully():
                self._waiting.write_all()

    @contextlib.contextmanager
    def _redone_carefully(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise RedoCarefullyError from error

    @property
    def changes(self) -> int:
        """Grows with everything that is written or waits."""
        return self._connection.total_changes + self._waited

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what the block wrote when it raises, and only that.

        A SQLite error is left to the unit as a whole: it may have ended the savepoint. Most parts that
        fail have written nothing yet, so a unit that is not careful sets no savepoint; it raises
        RedoCarefullyError where one was needed.
        """
        if not self.careful:
            before = self.changes
            try:
                yield
            except sqlite3.Error:
                raise
            except Exception as error:
                if self.changes != before:
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
        row = self.execute(LAST_POSITION).fetchone()
        return int(row[0])


@contextlib.contextmanager
def late(connection: sqlite3.Connection, apply: Apply) -> Iterator[Unit]:
    """A unit for projections in the block, as the live path's; everything is written at the end, unless the
    block raises. Raises sqlite3.Error."""
    unit = Unit(connection, apply)
    unit.careful = False
    try:
        yield unit
        unit.write_waiting()
    except RedoCarefullyError as error:
        assert error.__cause__ is not None
        raise error.__cause__ from None
