"""The writer mutex between processes: an advisory lock on a small file beside the database.

It is held around every write unit and every checkpoint of eosdb, so a commit never resets the WAL during
a checkpoint, and waiting is a kernel queue instead of SQLite's sleep-and-retry. Two byte ranges make it
fair: the process that waits for the writer byte holds the queue byte, so the last holder cannot overtake
it. The kernel releases the lock of a process that dies. Open-file-description locks also exclude two
databases of one process, and closing another descriptor does not drop them.

The file stores two facts: whether a sync has failed (decisions/0017), and when the last round of
housekeeping began. Its block is allocated when it is opened, because a full disk would have none left
later.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from collections.abc import Callable
from functools import partial
from io import FileIO
from typing import Final

from eosdb.errors import DatabaseLockedError, StorageError
from eosdb.model.threads import Thread
from eosdb.store.file import lock_holder
from eosdb.store.file.failures import system_calls, translate_system
from eosdb.store.file.lock_file import (
    byte_range,
    close_lock_file,
    is_locked,
    open_lock_file,
    owner_bytes,
)
from eosdb.store.file.owner_locks import OwnerLocks

# decisions/0002: the next writer holds the queue byte while it waits, so nobody overtakes it.
_QUEUE: Final = 0
_WRITER: Final = 1
_SYNC_FAILED_AT: Final = 8
"""The offset of that byte in the file, behind the locked ranges."""
_FAILED: Final = b"!"
_ROUND_AT: Final = 16
_LONG_AGO_MS: Final = 2 * 24 * 3600 * 1000
_TIME: Final = struct.Struct("<q")
_SIZE: Final = 4096


class WriterMutex:
    """One per database object. Not reentrant; threads of the object take turns before they call it."""

    def __init__(self, path: str, timeout_ms: int) -> None:
        self.path: Final = path
        self._timeout_ms = timeout_ms
        self.owner_locks: Final = OwnerLocks(path)
        self._use(open_lock_file(path))
        self._has_sync_failed = False
        """Whether a sync failed and that could not be stored in the file for other processes."""
        with contextlib.suppress(OSError):  # On a full disk the file can still be read.
            if os.fstat(self._descriptor).st_size < _SIZE:
                os.posix_fallocate(self._descriptor, 0, _SIZE)

    release: Callable[[], object]
    """Release the locks; no effect if none is held. It runs no Python code, so no signal can interrupt it
    (decisions/0018)."""

    def _use(self, file: FileIO) -> None:
        self.release = partial(fcntl.fcntl, file, fcntl.F_OFD_SETLK, _NOTHING)
        self._file = file
        self._descriptor = file.fileno()

    def acquire(self, timeout_ms: int | None = None) -> None:
        """Wait until this process is the only writer. The caller releases in any case. Raises
        DatabaseLockedError after `timeout_ms`, or after the object's default."""
        if _try_lock(self._file, _QUEUE):
            if _try_lock(self._file, _WRITER):
                _unlock(self._file, _QUEUE)
                return
            _unlock(self._file, _QUEUE)
        self._acquire_in_turn(self._timeout_ms if timeout_ms is None else timeout_ms)

    def close(self) -> None:
        """May be repeated."""
        self.owner_locks.close()
        self.release = _nothing
        self._descriptor = -1
        close_lock_file(self._file)

    def _acquire_in_turn(self, timeout_ms: int) -> None:
        """Wait in a separate thread, because a blocking lock call has no time-out."""
        waiter = _Waiter(self.path, self._exchange)
        try:
            waiter.start()
            granted = waiter.wait(timeout_ms / 1000)
        except BaseException:
            waiter.is_abandoned = True
            raise
        if not granted:
            holder = lock_holder.describe_holders(self.path, [_WRITER])
            raise DatabaseLockedError(
                f"somebody else has been writing for {timeout_ms} ms (lock file {self.path}"
                f"{f', held by {holder}' if holder else ''}); nothing was written, try again or raise "
                "lock_timeout_ms"
            )

    def _exchange(self, granted: FileIO) -> None:
        before = self._file
        self._use(granted)
        close_lock_file(before)

    # -- owners ---------------------------------------------------------------------------------

    def is_owned(self, number: int) -> bool:
        """Whether any process holds the lock of this number."""
        try:
            return is_locked(self._file, owner_bytes(fcntl.F_WRLCK, number))
        except (OSError, ValueError):  # The file was closed meanwhile; the next call will see that.
            return True

    # -- what every process must know -----------------------------------------------------------

    def has_sync_failed(self) -> bool:
        """Whether a sync has failed in any process and the WAL has not been made durable since."""
        with system_calls(self.path):
            flag = os.pread(self._descriptor, 1, _SYNC_FAILED_AT)
        return self._has_sync_failed or flag == _FAILED

    def note_sync(self, *, failed: bool) -> None:
        """Store whether a sync has failed, in the page cache that processes share: it need not survive a
        power cut, which ends the condition. If even that fails, at least this object remembers it."""
        self._has_sync_failed = failed
        try:
            os.pwrite(self._descriptor, _FAILED if failed else b"\0", _SYNC_FAILED_AT)
        except OSError as error:
            if not failed:  # After a failed sync the caller has an error already.
                self._has_sync_failed = True
                raise translate_system(error, self.path) from error

    def begin_round(self, now_ms: int, every_ms: int) -> tuple[bool, int]:
        """See `Store.begin_round`; the caller holds the mutex."""
        with system_calls(self.path):
            data = os.pread(self._descriptor, _TIME.size, _ROUND_AT)
        last_ms = int(_TIME.unpack(data)[0]) if len(data) == _TIME.size else 0
        is_known = 0 <= now_ms - last_ms < _LONG_AGO_MS
        if is_known and now_ms - last_ms < every_ms:
            return False, last_ms
        with system_calls(self.path):
            os.pwrite(self._descriptor, _TIME.pack(now_ms), _ROUND_AT)
        return is_known, now_ms

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of the open lock file."""
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino


def _nothing() -> None:
    return None


_NO_MEMORY: Final = "there is not enough memory; nothing was written, try again"


class _Waiter:
    """Waits for the lock on a new descriptor, and hands the descriptor over, or drops it if nobody waits
    any more. The handover runs in its own thread, which no signal interrupts."""

    def __init__(self, path: str, exchange: Callable[[FileIO], None]) -> None:
        self._path = path
        self._exchange = exchange
        self._lock = threading.Lock()
        self._finished = threading.Lock()
        """Released when the wait is over. Not an Event, because a signal could leave an Event locked."""
        self._finished.acquire()
        self._granted = False
        self._is_wanted = True
        self._failure = ""
        self.is_abandoned = False
        """Set before the waiting thread gives up, and checked after the handover."""

    def start(self) -> None:
        Thread("waiting for the writer lock", "eosdb-writer-lock", self._run).start()

    def wait(self, seconds: float) -> bool:
        """Whether the lock has been handed over; if not, it never will be."""
        self._finished.acquire(timeout=seconds)
        with self._lock:
            self._is_wanted = False
        if self._failure:
            raise StorageError(f"{self._path} cannot be locked: {self._failure}")
        return self._granted

    def _run(self) -> None:
        try:
            file = open_lock_file(self._path)
            _lock(file, _QUEUE)
            _lock(file, _WRITER)
            _unlock(file, _QUEUE)
            self._hand_over(file)
        except OSError as error:
            # Its text: the error's traceback would keep the descriptor open, and locked.
            self._failure = error.strerror or str(error)
        except MemoryError:
            self._failure = _NO_MEMORY
        finally:
            self._finished.release()

    def _hand_over(self, file: FileIO) -> None:
        with self._lock:
            if self.is_abandoned or not self._is_wanted:
                close_lock_file(file)
                return
            self._exchange(file)
            self._granted = True
            if self.is_abandoned:
                _unlock(file, _WRITER)


_WRITE_LOCK: Final = (byte_range(fcntl.F_WRLCK, _QUEUE), byte_range(fcntl.F_WRLCK, _WRITER))
_NO_LOCK: Final = (byte_range(fcntl.F_UNLCK, _QUEUE), byte_range(fcntl.F_UNLCK, _WRITER))
_NOTHING: Final = byte_range(fcntl.F_UNLCK, _QUEUE, 2)


def _try_lock(file: FileIO, byte: int) -> bool:
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _WRITE_LOCK[byte])
    except (BlockingIOError, PermissionError):
        return False
    return True


def _lock(file: FileIO, byte: int) -> None:
    fcntl.fcntl(file, fcntl.F_OFD_SETLKW, _WRITE_LOCK[byte])


def _unlock(file: FileIO, byte: int) -> None:
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, _NO_LOCK[byte])
