"""A turn in which several writes of one thread are parts of one unit (`Store.together`).

The turn can outlast the commit of that unit: the parts that follow form another unit.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from eosdb.errors import EosdbError, StorageError
from eosdb.store.file.failures import out_of_memory, translate
from eosdb.store.writing.unit import RedoCarefullyError, Unit

T = TypeVar("T")


class JointUnit:
    """One joint unit at a time, begun and ended by the store."""

    def __init__(self, unit: Unit, path: str) -> None:
        self.unit: Final = unit
        self._path = path
        self._thread: Final = threading.get_ident()
        self._failure: EosdbError | None = None
        self.parts = 0
        self.stands = False
        """Whether the first unit has been committed."""
        self.is_committed = False
        """Whether everything written so far has been committed, and no part has followed yet."""

    @property
    def is_ours(self) -> bool:
        """Whether the calling thread began it."""
        return self._thread == threading.get_ident()

    def run(self, function: Callable[[Unit], T]) -> T:
        """Run one part. If a part raises after it has written something, the whole unit ends, as with any
        SQLite error."""
        self.check()
        self.parts += 1
        before = self.unit.changes
        try:
            return function(self.unit)
        except (sqlite3.Error, MemoryError) as error:
            cause = error if isinstance(error, sqlite3.Error) else out_of_memory()
            self._failure = translate(cause, self._path)
            raise self._failure from error
        except Exception as error:
            redo = isinstance(error, RedoCarefullyError)
            if redo or self.unit.changes != before:
                self._failure = _to_be_undone()
            if redo and self._failure is not None:
                raise self._failure from error
            raise

    def write_waiting(self) -> None:
        """Write what is pending before the commit. Raises the error that ends the unit."""
        self.check()
        try:
            self.unit.write_waiting()
        except (RedoCarefullyError, MemoryError) as error:
            self._failure = _to_be_undone()
            raise self._failure from error

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    def fail(self, error: EosdbError) -> None:
        """End the unit with this error; nothing that it wrote is stored."""
        self._failure = error

    def check(self) -> None:
        """Raises the error that has ended the unit."""
        if self._failure is not None:
            raise self._failure


def _to_be_undone() -> StorageError:
    return StorageError("a part of a joint unit has to be rolled back")
