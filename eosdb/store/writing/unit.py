"""A unit of work: everything between BEGIN IMMEDIATE and COMMIT.

A unit has the connection, memos (caches) of rows, and `record`, the only way to change the state. `record`
inserts the event, then folds it into the materialized tables by the same `apply` that replay uses.

A unit defers its writes, since it saves the same few rows repeatedly. It writes only the last row saved
under a key, and inserts new rows with few statements. Before a statement that names a table, it writes that
table's deferred rows, so SQL always sees everything folded so far.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

from eosdb.events import encoding
from eosdb.events.kinds import BatchAppended, Event, MarkerWritten, TransactionStateChanged
from eosdb.model.damage import reads
from eosdb.model.notices.notice import Untold
from eosdb.store.schema.newest import Statement
from eosdb.store.writing.insertion import FoldedInsertion, Insertion
from eosdb.system.signals import is_of_a_signal

T = TypeVar("T")
Parameters = Sequence[object]
STEPS_PER_UNIT: Final = 500
"""The most partitions, groups or ids in one unit of housekeeping, so that other writers get their turn.
"""
Apply = Callable[["Folding", Event, int], None]
"""Folds the event at a journal position into the materialized tables."""

_Saved: TypeAlias = tuple[str, Callable[[Any], Any], Any]
"""A statement, the function that makes its row, and the value for that function."""
_WAITING_MAX: Final = 5_000
"""The most deferred rows of one table: bounds memory."""
_DELETES_RECORDS: Final = "DELETE FROM records"
_TABLE_IN_ITS_TRIGGER: Final = " partitions"

LAST_POSITION: Final = (
    "SELECT max(ifnull((SELECT max(position) FROM eosdb_journal), 0), "
    "ifnull((SELECT position FROM eosdb_baseline), 0))"
)
"""SQL. Includes the baseline's position: in a file restored to the baseline itself, no event is newer."""
_PASSED_MAX: Final = 100
"""After more events of other connections, all memos are dropped."""
_PASSED: Final = (
    "SELECT position, kind, iif(partition IS NULL, NULL, json_extract(detail, '$[0]')) FROM eosdb_journal "
    f"WHERE position > ? ORDER BY position LIMIT {_PASSED_MAX}"
)
BATCH: Final = frozenset({BatchAppended.__name__})
APPENDS: Final = BATCH | {MarkerWritten.__name__}
TRANSACTIONS: Final = APPENDS | {TransactionStateChanged.__name__}
_EVENT: Final = Insertion.plain(
    "eosdb_journal",
    ("position", "kind", "timestamp", "topic", "partition", "transactional_id", "detail", "checksum"),
)  # fmt: skip


class RedoCarefullyError(Exception):
    """A part of the unit must be rolled back but has no savepoint. The store catches this error and runs
    the unit again, with savepoints."""


class Memo:
    """A cache of rows that one package has read or written: a dataclass with slots, created on first use
    (`unit.memos[Kind]`). It is kept for later units. A rollback drops it, and so does another connection's
    event, unless it `survives` events of that kind."""

    __slots__: tuple[str, ...] = ()
    survives: ClassVar[frozenset[str]] = frozenset()
    """Kinds of events after which only the entries of the partitions that they name are stale."""

    def forget_partitions(self, ids: set[int]) -> None:
        """Drop the entries of these partitions."""

    def size(self) -> int:
        held = (getattr(self, name) for name in self.__slots__)
        return sum(len(values) for values in held if hasattr(values, "__len__"))


M = TypeVar("M", bound=Memo)


class Memos(dict[type[Memo], Memo]):
    """One memo of each kind, initially empty. Always look a memo up again: any later step may drop it."""

    if TYPE_CHECKING:  # For type checkers; at run time the dictionary's own method is faster.

        def __getitem__(self, kind: type[M]) -> M: ...

    def __missing__(self, kind: type[M]) -> M:
        memo = self[kind] = kind()
        return memo

    def size(self) -> int:
        return sum(memo.size() for memo in self.values())


class Folding(Protocol):
    """The part of a unit that projections use. A `Unit` folds into the live tables, a
    `baseline.BaselineFolding` into the baseline's."""

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

    def insert(self, insertion: FoldedInsertion, row: Sequence[object], /) -> None: ...

    def execute(self, statement: Statement, parameters: Parameters = ()) -> sqlite3.Cursor: ...

    def executemany(
        self, statement: Statement, parameters: Iterable[Parameters]
    ) -> sqlite3.Cursor: ...

    def change_views(self, statement: str) -> None: ...


class Unit:
    """An open write unit: records events, folds them, and defers its writes until they are needed."""

    __slots__ = (
        "_connection", "_inserts", "_position", "_saves", "_schema", "_waited", "careful", "memos",
        "projection", "said", "untold", "written_bytes",
    )  # fmt: skip

    def __init__(
        self, connection: sqlite3.Connection, apply: Apply, untold: Untold | None = None
    ) -> None:
        self._connection: Final = connection
        self.projection: Final = apply
        self.memos: Final = Memos()
        self._saves: Final = defaultdict[str, dict[Hashable, _Saved]](dict)
        """The deferred saves of each table."""
        self._inserts: Final = defaultdict[Insertion, list[Sequence[object]]](list)
        self._waited = 0
        self._position: int | None = None
        """The last event's position, if known."""
        self._schema: int | None = None
        """SQLite's number of the schema, when `catch_up` last saw it."""
        self.written_bytes = 0
        self.said: Final = set[Hashable]()
        """Notices that need not be logged again while the file is open."""
        self.untold: Final = untold or Untold()
        """Notices to log when no thread waits for the unit any more."""
        self.careful = True
        """Whether each part has a savepoint and writes at once, so it can be rolled back alone. Otherwise
        the whole unit runs again."""

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, for code that bypasses the unit's methods; deferred writes are written first."""
        self.write_waiting()
        return self._connection

    def forget(self) -> None:
        """Drop all memos: the file may have changed."""
        self.memos.clear()
        self._position = None

    # decisions/0090: events of other connections tell which cached rows are stale.
    def catch_up(self) -> None:
        """Drop the memos that commits of other connections made stale, according to their events; drop all
        if that is uncertain."""
        position, schema = self._position, self._schema
        (self._schema,) = self.execute("PRAGMA schema_version").fetchone()
        rows = []
        # A rebuild writes no event, but recreates the tables, which changes `schema_version`.
        if position is not None and schema == self._schema:
            with contextlib.suppress(sqlite3.DatabaseError):  # A damaged row may not be JSON.
                rows = self.execute(_PASSED, (position,)).fetchall()
        # A gap in the positions means that history was deleted.
        if not rows or rows[-1][0] - len(rows) != position or len(rows) == _PASSED_MAX:
            self.forget()
            return
        kinds, ids = {kind for _, kind, _ in rows}, {id_ for _, _, id_ in rows}
        for memo in [*self.memos.values()]:
            if kinds <= memo.survives:
                memo.forget_partitions(ids)
            else:
                del self.memos[type(memo)]
        self._position = rows[-1][0]

    def discard(self) -> None:
        self._saves.clear()
        self._inserts.clear()
        self.forget()

    def record(self, event: Event) -> int:
        """Append `event` to the journal, and fold it. Returns its position."""
        position = (self.last_position() if self._position is None else self._position) + 1
        self.insert(_EVENT, (position, *encoding.encode(event)))
        self._position = position
        # decisions/0001: only projections of events write to tables, so that a rebuild gives the same rows.
        self.projection(self, event, position)
        return position

    # decisions/0025: live writes and replay both defer writes with this method.
    def save(
        self,
        table: str,
        key: Hashable,
        statement: str,
        row: Callable[[T], Sequence[object]],
        value: T,
    ) -> None:
        """For projections: write the row `row(value)`, perhaps later. Only the last row saved under a key
        is written."""
        if self.careful:
            self.execute(statement, row(value))
            return
        self._waited += 1
        waiting = self._saves[table]
        before = waiting.get(key)
        assert before is None or before[1] is row, table
        # A deferred INSERT remains an INSERT, but with the newer row.
        waiting[key] = (statement if before is None else before[0], row, value)
        if len(waiting) > _WAITING_MAX:
            self._write(table)

    def insert(self, insertion: Insertion, *rows: Sequence[object]) -> None:
        """Insert new records or events, or in a projection a new row of a materialized table."""
        if self.careful:
            for row in rows:
                for statement, values in insertion.statements([row]):
                    self.execute(statement, values)
            return
        self._waited += len(rows)
        waiting = self._inserts[insertion]
        waiting += rows
        if len(waiting) > _WAITING_MAX:
            self._write(insertion.table)

    def select(
        self,
        insertion: Insertion,
        statement: str,
        parameters: Parameters,
        concerns: Callable[[Sequence[object]], bool],
    ) -> sqlite3.Cursor:
        """Run a SELECT that reads only the insertion's table, which `save` never writes. Deferred rows stay
        deferred unless one of them `concerns` the query."""
        assert insertion.table not in self._saves, insertion.table
        if any(map(concerns, self._inserts.get(insertion, ()))):
            return self.execute(statement, parameters)
        return self._connection.execute(statement, parameters)

    def execute(self, statement: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        """Run a statement, which sees all earlier writes of the unit."""
        if self._inserts or self._saves:
            self._see(statement)
        return self._connection.execute(statement, parameters)

    def executemany(self, statement: str, parameters: Iterable[Parameters]) -> sqlite3.Cursor:
        """Run a statement for many rows of parameters; it sees all earlier writes."""
        if self._inserts or self._saves:
            self._see(statement)
        return self._connection.executemany(statement, parameters)

    def change_views(self, statement: str) -> None:
        """For projections: create or drop a typed view."""
        self.execute(statement)

    def _see(self, statement: str) -> None:
        """Write the deferred rows of every table that the statement or its triggers name."""
        if _DELETES_RECORDS in statement:
            statement += _TABLE_IN_ITS_TRIGGER
        self._write(statement)

    def write_waiting(self) -> None:
        """Write all deferred rows before the commit. Raises RedoCarefullyError for a row that violates a
        constraint: then each request runs in a savepoint and gets its own error."""
        self._write()
        assert not self._saves, self._saves.keys()
        assert not self._inserts, self._inserts.keys()

    def _write(self, names: str | None = None) -> None:
        """Write the deferred rows, new rows first: of all tables, or of the tables named in `names`."""
        try:
            execute = self._connection.cursor().execute  # One cursor for all statements is faster.
            for insertion in [of for of in self._inserts if names is None or of.table in names]:
                for statement, values in insertion.statements(self._inserts.pop(insertion)):
                    execute(statement, values)
            for table in [table for table in self._saves if names is None or table in names]:
                saves = self._saves.pop(table).values()
                if len(saves) < 3:
                    for statement, row, value in saves:
                        execute(statement, row(value))
                    continue
                of_statement: dict[str, list[Sequence[object]]] = {}
                for statement, row, value in saves:
                    of_statement.setdefault(statement, []).append(row(value))
                for statement, some in of_statement.items():
                    self._connection.executemany(statement, some)
        except sqlite3.IntegrityError as error:
            raise RedoCarefullyError from error

    def part(self, function: Callable[[Unit], T]) -> T:
        """Run one part of the unit. If it raises, only its own writes are undone. Most parts fail before
        they write, so only a careful unit sets a savepoint. Other units raise RedoCarefullyError if a part
        fails after it has written."""
        if self.careful:
            with self.savepoint():
                return function(self)
        before = self._connection.total_changes + self._waited
        try:
            return function(self)
        except sqlite3.Error:
            raise
        except Exception as error:
            is_changed = self._connection.total_changes + self._waited != before
            if is_changed and not is_of_a_signal(error):
                raise RedoCarefullyError from error
            raise

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo the block's writes if it raises; only for a careful unit. After an SQLite error the whole
        unit is rolled back, because the savepoint may have ended."""
        assert self.careful, "other units defer their writes"
        self.execute("SAVEPOINT part")
        try:
            yield
        except sqlite3.Error:
            raise
        except Exception:
            self.forget()
            # When memory runs out, SQLite rolls back the whole unit.
            if self._connection.in_transaction:
                self.execute("ROLLBACK TO part")
                self.execute("RELEASE part")
            raise
        self.execute("RELEASE part")

    @property
    def known_position(self) -> int:
        """The position of the newest event; 0 if it is not known without a query."""
        return self._position or 0

    @reads("journal")
    def last_position(self) -> int:
        """Return the position of the newest event; 0 if there is none."""
        if self._position is not None:
            return self._position
        row = self.execute(LAST_POSITION).fetchone()
        return int(row[0])


@contextlib.contextmanager
def late(connection: sqlite3.Connection, apply: Apply) -> Iterator[Unit]:
    """Yield a unit that defers its writes like the live path, and writes them at the end unless the block
    raises. Raises sqlite3.Error."""
    unit = Unit(connection, apply)
    unit.careful = False
    try:
        yield unit
        unit.write_waiting()
    except RedoCarefullyError as error:
        assert error.__cause__ is not None
        raise error.__cause__ from None
