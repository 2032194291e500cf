"""Locks that show that owners in this process are alive: group members and holders of open transactions.
All of them are on one descriptor."""

from __future__ import annotations

import fcntl
import os
import threading
from io import FileIO
from typing import Final

from eosdb.errors import DatabaseClosedError, DatabaseLockedError, StorageError
from eosdb.store.file.lock_file import close_lock_file, open_lock_file, owner_bytes


class OwnerLocks:
    """One per database object. Can be shared by threads."""

    def __init__(self, path: str) -> None:
        self._path: Final = path
        self._process: Final = os.getpid()
        self._lock = threading.Lock()
        self._file: FileIO | None = None
        self._is_closed = False

    def hold(self, number: int, count: int = 1) -> None:
        """Hold `count` locks from this number on until `release`, `close`, or the end of the process.

        The caller makes sure that nothing else in this object uses the numbers. Raises
        DatabaseLockedError if another holder has one of them, DatabaseClosedError and StorageError.
        """
        try:
            with self._lock:
                if self._is_closed or self._process != os.getpid():
                    raise DatabaseClosedError(f"{self._path}: the database has been closed")
                if self._file is None:
                    self._file = open_lock_file(self._path)
                locks = owner_bytes(fcntl.F_WRLCK, number, count)
                fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, locks)
        except (BlockingIOError, PermissionError):
            raise DatabaseLockedError(
                f"{self._path}: somebody else holds the lock of owner {number}"
            ) from None
        except OSError as error:
            raise StorageError(
                f"{self._path}: the lock of owner {number} cannot be acquired: {error.strerror}"
            ) from error

    def release(self, number: int, count: int = 1) -> None:
        """Release the locks; no effect if they are not held. Takes no Python lock, so a finalizer can
        call it."""
        if self._file is not None and not self._is_closed and self._process == os.getpid():
            locks = owner_bytes(fcntl.F_UNLCK, number, count)
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, locks)

    def close(self) -> None:
        """Release all locks. Can be called again."""
        self._is_closed = True
        if self._file is not None:
            with self._lock:
                close_lock_file(self._file)
