"""A unit that several writes of one thread are parts of (`Store.together`)."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from eosdb.errors import EosdbError, StorageError
from eosdb.store.failures import translate
from eosdb.store.unit import RedoCarefullyError, Unit

T = TypeVar("T")


class JointUnit:
    """One at a time; begun and ended by the store."""

    def __init__(self, unit: Unit, path: str) -> None:
        self._unit = unit
        self._path = path
        self._thread: Final = threading.get_ident()
        self._failure: EosdbError | None = None
        self.parts = 0

    @property
    def is_ours(self) -> bool:
        """Whether the calling thread began it."""
        return self._thread == threading.get_ident()

    def run(self, function: Callable[[Unit], T]) -> T:
        """One part. A part that raises when it has written something ends the whole unit, as an error of
        SQLite's own does."""
        self.check()
        self.parts += 1
        before = self._unit.connection.total_changes
        try:
            return function(self._unit)
        except (sqlite3.Error, RedoCarefullyError) as error:
            self._failure = self._as_ours(error)
            raise self._failure from error
        except EosdbError as error:
            if self._unit.connection.total_changes != before:
                self._failure = error
            raise

    def _as_ours(self, error: Exception) -> EosdbError:
        if isinstance(error, sqlite3.Error):
            return translate(error, self._path)
        cause = error.__cause__
        return cause if isinstance(cause, EosdbError) else StorageError(str(cause))

    def check(self) -> None:
        """Raises the error that has ended the unit."""
        if self._failure is not None:
            raise self._failure
