"""A unit of work: everything between BEGIN IMMEDIATE and COMMIT.

"Transaction" alone always means Kafka's; SQLite's is a unit. A unit carries the connection, the memos of
state that has been read already, and `record`, the only way to change anything: insert the event, then
fold it into the materialized tables by the same `apply` that replay uses.

A unit defers its writes, since it saves the same few rows again and again: of those under one key the last
is written, and new rows go out in few statements. They are written before a statement that names their
table, so SQL always sees what has been folded so far, and callers need not care.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Sized
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from eosdb.events import lean
from eosdb.events.kinds import Event
from eosdb.events.lean import Lean
from eosdb.model.notices.notice import Untold
from eosdb.store.schema.row_checksum import row_checksum
from eosdb.store.schema.statement import Statement
from eosdb.store.writing.insertion import FoldedInsertion, Insertion

T = TypeVar("T")
Parameters = Sequence[object]
STEPS_PER_UNIT: Final = 500
"""The most partitions, groups or ids that one unit of housekeeping handles, so that other writers get
their turn."""
Apply = Callable[["Folding", Event | Lean, int], Event]
"""Folds the event at a journal position into the materialized tables, and returns it completed with what
its row leaves out."""

_Saved: TypeAlias = tuple[str, Callable[[Any], Any], Any]
"""A statement, and what makes its row of which value."""
_WAITING_MAX: Final = 5_000
"""The most deferred rows of one table, so that memory stays bounded."""
_DELETES_RECORDS: Final = "DELETE FROM records"
_TABLE_IN_ITS_TRIGGER: Final = " partitions"

LAST_POSITION: Final = (
    "SELECT max(ifnull((SELECT max(position) FROM journal), 0), "
    "ifnull((SELECT position FROM eosdb_baseline), 0))"
)
"""Includes the baseline's position, which is beyond the journal in a file that was restored to the
baseline itself."""
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
    """One part of the unit must be rolled back; never leaves the store."""


class Memo:
    """A cache of rows that one package has read or written: a dataclass with slots, created on first use
    (`unit.memos[Kind]`). It outlives the unit unless another connection writes to the file, and is
    dropped when anything in a unit is rolled back."""

    __slots__: tuple[str, ...] = ()

    def size(self) -> int:
        """Return the number of cached values."""
        held = (getattr(self, name) for name in self.__slots__)
        return sum(len(values) for values in held if isinstance(values, Sized))


M = TypeVar("M", bound=Memo)


class Memos(dict[type[Memo], Memo]):
    """One memo of each kind, initially empty. Do not keep a reference: any later step may drop the memo."""

    if TYPE_CHECKING:  # A dictionary's own look-up is twice as fast.

        def __getitem__(self, kind: type[M]) -> M: ...

    def __missing__(self, kind: type[M]) -> M:
        memo = self[kind] = kind()
        return memo

    def size(self) -> int:
        """Return the number of cached values in all memos."""
        return sum(memo.size() for memo in self.values())


class Folding(Protocol):
    """What projections see of a unit: statements that know the baseline's tables, and no others.

    A `Unit` folds into the live tables, a `baseline.BaselineFolding` into the baseline's.
    """

    @property
    def memos(self) -> Memos: ...

    def forget(self) -> None: ...

    def save(
        self,
        table: str,
        key: Hashable,
        statement: Statement,
        row: Callable[[T], Sequence[object]],
        value: T,
    ) -> None: ...

    def insert(self, insertion: FoldedInsertion, row: Sequence[object]) -> None: ...

    def execute(self, statement: Statement, parameters: Parameters = ()) -> sqlite3.Cursor: ...

    def executemany(
        self, statement: Statement, parameters: Iterable[Parameters]
    ) -> sqlite3.Cursor: ...

    def change_views(self, statement: str) -> None: ...


class Unit:
    """An open write unit."""

    __slots__ = (
        "_connection", "_inserts", "_position", "_saves", "_tables", "_waited", "careful", "memos",
        "projection", "said", "untold", "written_bytes",
    )  # fmt: skip

    def __init__(
        self, connection: sqlite3.Connection, apply: Apply, untold: Untold | None = None
    ) -> None:
        self._connection: Final = connection
        self.projection: Final = apply
        self.memos: Final = Memos()
        self._saves: defaultdict[str, dict[Hashable, _Saved]] = defaultdict(dict)
        self._inserts: defaultdict[str, list[tuple[Insertion, Sequence[object]]]] = defaultdict(
            list
        )
        self._tables: Final[dict[str, None]] = {}
        """Tables with deferred rows, in the order of the first row of each."""
        self._waited = 0
        """The number of deferred writes."""
        self._position: int | None = None
        """The last event's position, if it has been read."""
        self.written_bytes = 0
        self.said: Final = set[Hashable]()
        """Notices that need not be logged again while the file is open."""
        self.untold: Final = untold or Untold()
        """Notices to log when no other thread waits for the unit any more."""
        self.careful = True
        """Whether one part can be rolled back, for which everything is written at once. If not, a part
        that must be rolled back makes the whole unit run again."""

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection itself, for code that bypasses the unit's methods; deferred writes are written
        first."""
        self.write_waiting()
        return self._connection

    def forget(self) -> None:
        """Drop all memos: the file may have changed."""
        self.memos.clear()
        self._position = None

    def discard(self) -> None:
        """Drop deferred writes and memos after a rollback."""
        self._saves.clear()
        self._inserts.clear()
        self._tables.clear()
        self.forget()

    def record(self, event: Event, expected: Event | None = None) -> int:
        """Append `event` to the journal, leaving out what equals `expected`, and fold it. Returns its
        position."""
        position = (self.last_position() if self._position is None else self._position) + 1
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
        """For projections: write a whole row, `row(value)`. Of several rows saved under one key only the
        last is written."""
        if self.careful:
            self.execute(statement, row(value))
            return
        self._waited += 1
        self._tables[table] = None
        waiting = self._saves[table]
        before = waiting.get(key)
        # An INSERT that still waits stays one, with the newer row.
        waiting[key] = (statement if before is None else before[0], row, value)
        if len(waiting) > _WAITING_MAX:
            self._write(table)

    def insert(self, insertion: Insertion, row: Sequence[object]) -> None:
        """Insert a new record or event, or in a projection a new row of a materialized table."""
        if self.careful:
            self.execute(insertion.statement(1), row)
            return
        self._waited += 1
        table = insertion.table
        self._tables[table] = None
        waiting = self._inserts[table]
        waiting.append((insertion, row))
        if len(waiting) > _WAITING_MAX:
            self._write(table)

    def select(
        self,
        table: str,
        statement: str,
        parameters: Parameters,
        concerns: Callable[[Sequence[object]], bool],
    ) -> sqlite3.Cursor:
        """Run a SELECT on this table alone, to which nothing is written with `save`; deferred new rows
        stay deferred unless one of them concerns the query."""
        if any(concerns(row) for _, row in self._inserts.get(table, ())):
            return self.execute(statement, parameters)
        return self._connection.execute(statement, parameters)

    def execute(self, statement: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        """Run a statement, which sees all earlier writes of the unit."""
        if self._tables:
            self._see(statement)
        return self._connection.execute(statement, parameters)

    def executemany(self, statement: str, parameters: Iterable[Parameters]) -> sqlite3.Cursor:
        """The same for many rows of parameters."""
        if self._tables:
            self._see(statement)
        return self._connection.executemany(statement, parameters)

    def change_views(self, statement: str) -> None:
        """For projections: create or drop a typed view."""
        self.execute(statement)

    def _see(self, statement: str) -> None:
        """Write the deferred rows of every table that the statement or its triggers name."""
        if _DELETES_RECORDS in statement:
            statement += _TABLE_IN_ITS_TRIGGER
        self._write_all([table for table in self._tables if table in statement])

    def write_waiting(self) -> None:
        """Write all deferred rows before the commit. Raises RedoCarefullyError for a row that violates a
        constraint: run alone, its request gets its own error."""
        self._write_all([*self._tables])

    def _write_all(self, tables: Iterable[str]) -> None:
        try:
            for table in tables:
                self._write(table)
        except sqlite3.IntegrityError as error:
            raise RedoCarefullyError from error

    def _write(self, table: str) -> None:
        """Write the deferred rows of one table, new rows first."""
        self._tables.pop(table, None)
        execute = self._connection.execute
        inserts = self._inserts.pop(table, None)
        if inserts:
            for insertion, group in itertools.groupby(inserts, itemgetter(0)):
                for statement, values in insertion.statements([row for _, row in group]):
                    execute(statement, values)
        saves = self._saves.pop(table, None)
        if not saves:
            return
        if len(saves) < 3:
            for statement, row, value in saves.values():
                execute(statement, row(value))
            return
        of_statement: dict[str, list[Sequence[object]]] = {}
        for statement, row, value in saves.values():
            of_statement.setdefault(statement, []).append(row(value))
        for statement, rows in of_statement.items():
            self._connection.executemany(statement, rows)

    def part(self, function: Callable[[Unit], T]) -> T:
        """Run one part of the unit: when it raises, nothing of it is stored, but the rest may be.

        Most parts that fail have not written anything yet, so a unit that is not careful sets no savepoint;
        it raises RedoCarefullyError if one was needed.
        """
        if self.careful:
            with self.savepoint():
                return function(self)
        before = self._connection.total_changes + self._waited
        try:
            return function(self)
        except sqlite3.Error:
            raise
        except Exception as error:
            if self._connection.total_changes + self._waited != before:
                raise RedoCarefullyError from error
            raise

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Roll back what the block has written in a careful unit, and only that, when it raises. An SQLite
        error is left to the unit as a whole, because it may have ended the savepoint."""
        self.execute("SAVEPOINT part")
        try:
            yield
        except sqlite3.Error:
            raise
        except Exception:
            self.forget()
            # SQLite rolls back everything when it has no memory.
            if self._connection.in_transaction:
                self.execute("ROLLBACK TO part")
                self.execute("RELEASE part")
            raise
        self.execute("RELEASE part")

    def last_position(self) -> int:
        """Return the position of the newest event; 0 if there is none."""
        if self._position is not None:
            return self._position
        row = self.execute(LAST_POSITION).fetchone()
        return int(row[0])


@contextlib.contextmanager
def late(connection: sqlite3.Connection, apply: Apply) -> Iterator[Unit]:
    """Yield a unit that folds events with deferred writes, as the live path does; they are written at the
    end unless the block raises. Raises sqlite3.Error."""
    unit = Unit(connection, apply)
    unit.careful = False
    try:
        yield unit
        unit.write_waiting()
    except RedoCarefullyError as error:
        assert error.__cause__ is not None
        raise error.__cause__ from None
