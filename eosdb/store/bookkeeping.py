"""What a store keeps beside its two doors: whether it may be used, counts and times of its commits, the
locks of owners, and what is to be said of all that when nobody waits for it any more."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Final

from eosdb.errors import (
    DatabaseClosedError,
    DatabaseFullError,
    IllegalStateError,
    ReadOnlyDatabaseError,
    StorageError,
)
from eosdb.model.notices import catalog
from eosdb.model.reports import CommitTimes
from eosdb.store.file.failures import is_failed_sync
from eosdb.store.file.mutex import WriterMutex
from eosdb.store.file.open_files import OpenFiles
from eosdb.store.file.owner_locks import OwnerLocks
from eosdb.store.writing.timings import Timings
from eosdb.store.writing.writer import Counts

_OF_THE_FILE: Final = (DatabaseFullError, ReadOnlyDatabaseError, StorageError)


class Bookkeeping:
    """The part of a `Store` that is about what has happened."""

    path: str
    read_only: bool
    _process: int
    _files: OpenFiles
    _counts: Counts
    _timings: Timings
    _mutex: WriterMutex | None
    _closed: bool
    _is_failing = False
    """Whether the file, or its disk, has refused the last write."""

    # -- whether it may be used -----------------------------------------------------------------

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyDatabaseError(f"{self.path} was opened with read_only=True")
        self._check_not_closed()

    def check_open(self) -> None:
        """Raises DatabaseClosedError, IllegalStateError in a forked child, and StorageError when the file
        has been moved or replaced."""
        self._check_not_closed()
        self._files.check_database()

    def _check_not_closed(self) -> None:
        if self._closed:
            raise self._closed_error()
        if self.forked:
            raise IllegalStateError(
                f"{self.path} was opened before this process was forked; a child opens it anew"
            )

    @property
    def forked(self) -> bool:
        """Whether the file is the parent process's, which alone may use and release it."""
        return self._process != os.getpid()

    def _closed_error(self) -> DatabaseClosedError:
        return DatabaseClosedError(f"{self.path} has been closed")

    # -- counts ---------------------------------------------------------------------------------

    @property
    def has_written(self) -> bool:
        """Whether a unit of this object has changed anything."""
        return self._counts.has_written

    @property
    def rows_written(self) -> int:
        """How many rows the units of this object have inserted, changed or deleted."""
        return self._counts.rows

    def counts(self) -> Mapping[str, float]:
        """Units committed, those that were fsynced, and how many requests shared one."""
        return self._counts.snapshot()

    def commit_times(self) -> CommitTimes:
        """How long COMMIT has taken, with its fsync, and how long writers have waited for the lock."""
        return self._timings.times()

    # -- owners ---------------------------------------------------------------------------------

    def owner_locks(self) -> OwnerLocks:
        """The locks held until they are released, the file is closed, or the process dies. Raises
        ReadOnlyDatabaseError and DatabaseClosedError."""
        self._check_writable()
        assert self._mutex is not None
        return self._mutex.owner_locks

    def is_owned(self, number: int) -> bool:
        """Whether somebody holds the lock of this number, in any process: also this object. A reader
        cannot know, and is told so."""
        return self._mutex is None or self._mutex.is_owned(number)

    # -- failures, and what is said -------------------------------------------------------------

    def note(self, error: BaseException | None) -> None:
        """Tell every process if what failed on a user's connection was a sync."""
        if is_failed_sync(error) and self._mutex is not None and not self._closed:
            self._mutex.note_sync(failed=True)

    def _note_outcome(self, errors: Sequence[BaseException]) -> None:
        """Writes have ended so; that the file refuses them is said once."""
        failed = [e for e in errors if isinstance(e, _OF_THE_FILE)]
        if failed and not self._is_failing:
            self._is_failing = True
            self._timings.untold.add(catalog.WRITES_FAIL, file=self.path, error=failed[0])
        elif self._is_failing and not errors:
            self._is_failing = False
            self._timings.untold.add(catalog.WRITES_AGAIN, file=self.path)

    def _tell(self) -> None:
        """Say what there is to say. Call it while nothing is held that others wait for."""
        if self._timings.untold.waiting:
            with contextlib.suppress(
                Exception
            ):  # What a program does with its log is no failed write.
                self._timings.untold.tell()
