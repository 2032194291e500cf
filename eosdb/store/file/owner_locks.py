"""Locks that show that owners in this process are alive: group members, and producers with open
transactions.

One descriptor holds all of them.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from eosdb.errors import DatabaseClosedError, DatabaseLockedError, StorageError
from eosdb.system.lock_file import LOCK
from eosdb.system.road import OwnerFile, road


class OwnerLocks:
    def __init__(self, path: str) -> None:
        self._path: Final = path
        self._process: Final = os.getpid()
        self._lock = threading.Lock()
        self._file: OwnerFile | None = None
        self._is_closed = False

    def hold(self, number: int, count: int = 1) -> None:
        """Hold `count` locks from this number on until `release`, `close`, or the end of the process. The
        caller ensures that this object uses the numbers once. Raises DatabaseLockedError if another
        holder has one of them, DatabaseClosedError and StorageError."""
        try:
            with self._lock:
                if self._is_closed or self._process != os.getpid():
                    raise DatabaseClosedError(f"{self._path}: the database has been closed")
                if self._file is None:
                    self._file = road.owner_file(self._path)
                self._file.hold(number, count)
        except BlockingIOError:
            raise DatabaseLockedError(
                f"{self._path}: somebody else holds the lock of owner {number}"
            ) from None
        except OSError as error:
            raise StorageError(
                f"{self._path}: the lock of owner {number} cannot be acquired: {error.strerror}"
            ) from error

    def release(self, number: int, count: int = 1) -> None:
        """Release the locks, if held. Takes no Python lock, so a finalizer can call it."""
        if self._file is not None and not self._is_closed and self._process == os.getpid():
            self._file.drop(number, count)

    def close(self) -> None:
        self._is_closed = True
        if self._file is not None:
            with self._lock:
                self._file.close()


def is_owned(path: str, number: int) -> bool:
    """Whether any process holds this lock, for a reader of the database at `path`. True if unknown, as
    for a copy, which has no lock file."""
    try:
        return road.is_owned(path + LOCK, number)
    except OSError:
        return True
