"""The writer mutex between processes, and locks of living owners, on a small file beside the database.

Owners are group members, and producers with open transactions. Every write unit and every checkpoint of
eosdb holds the mutex, so a commit never resets the WAL during a checkpoint. Waiting is a kernel queue
instead of SQLite's sleep-and-retry. A second lock, the queue lock, makes it fair: the next writer holds it
while waiting, so the last writer cannot overtake.

The kernel releases the lock of a dead process. A lock belongs to an open descriptor, so it also excludes
two databases of one process, and closing another descriptor does not drop it.

The file stores three facts: whether a sync has failed (decisions/0017), when the last round of housekeeping
began, and the newest position of the database, which shows that an older copy was written over it
(decisions/0094). Their block is allocated at opening, since the disk may be full later.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Final

from eosdb.errors import DatabaseClosedError, DatabaseLockedError, StorageError
from eosdb.model.threads import Thread
from eosdb.store.file import failures
from eosdb.store.file.failures import system_calls, translate_system
from eosdb.store.file.open_files import Identity
from eosdb.system.lock_file import LOCK, QUEUE, WRITER
from eosdb.system.road import OwnerFile, WriterLocks, road

_SYNC_FAILED_AT: Final = 8
"""The offset of the byte `_FAILED` in the file, after the locked bytes."""
_FAILED: Final = b"!"
_ROUND_AT: Final = 16
_LONG_AGO_MS: Final = 2 * 24 * 3600 * 1000
_TIME: Final = struct.Struct("<q")
_KNOWN_AT: Final = 32
_KNOWN: Final = struct.Struct("<q22s")
"""The newest position, and the id of the file that has it."""
_SIZE: Final = 4096
_TRIES: Final = 100


class WriterMutex:
    """The lock that makes this process the only writer, one for each database object. It is not reentrant:
    threads of the object take turns before they acquire it."""

    def __init__(self, path: str, timeout_ms: int) -> None:
        self.path: Final = path
        self._timeout_ms = timeout_ms
        self.owner_locks: Final = OwnerLocks(path)
        self._use(road.writer_locks(path))
        self._has_sync_failed = False
        """Whether a sync failed and the file could not store that for other processes."""
        with contextlib.suppress(OSError):  # On a full disk the file can still be read.
            if os.fstat(self._descriptor).st_size < _SIZE:
                road.reserve(self._descriptor, _SIZE)

    release: Callable[[], object]
    """Releases the locks, if held. Runs no Python code, so no signal can interrupt it (decisions/0018)."""

    def _use(self, locks: WriterLocks) -> None:
        self.release = locks.releaser()
        self._locks = locks
        self._descriptor = locks.files[0].fileno()

    def acquire(self, timeout_ms: int | None = None) -> None:
        """Wait until this process is the only writer. The caller calls `release` even if this raises.
        Raises DatabaseLockedError after `timeout_ms`, by default the object's own."""
        # decisions/0002: the next writer holds the queue lock while it waits, so no other overtakes it.
        if not self._locks.try_writer():
            self._acquire_in_turn(self._timeout_ms if timeout_ms is None else timeout_ms)

    def close(self) -> None:
        self.owner_locks.close()
        self.release = _nothing
        self._descriptor = -1
        _close(self._locks)

    def release_again(self) -> None:
        """Try again to release the locks after `release` ran out of memory. If this also raises
        MemoryError, the next unit releases them."""
        for _ in range(_TRIES):
            with contextlib.suppress(MemoryError):
                self.release()
                return
        self.release()

    def close_with(self, owner: object) -> None:
        """Close the mutex when `owner` is garbage-collected without `close`, but not at the end of the
        process: other threads may write until the kernel releases the locks."""
        weakref.finalize(owner, _let_go, self, os.getpid()).atexit = False

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
            database = self.path.removesuffix(LOCK)
            holder = failures.describe_writer(database)
            raise failures.locked_error(database, holder, self._timeout_ms)

    def _exchange(self, granted: WriterLocks) -> None:
        before = self._locks
        self._use(granted)
        _close(before)

    # -- owners ---------------------------------------------------------------------------------

    def is_owned(self, number: int) -> bool:
        try:
            return self._locks.is_owned(number)
        except (OSError, ValueError):  # The lock file was closed; the next call raises an error.
            return True

    # -- facts for all processes ----------------------------------------------------------------

    def has_sync_failed(self) -> bool:
        """Whether a sync failed in any process and the WAL was not renewed since."""
        try:  # No `with`, because it is slower and every unit calls this.
            flag = os.pread(self._descriptor, 1, _SYNC_FAILED_AT)
        except OSError as error:
            raise translate_system(error, self.path) from error
        return self._has_sync_failed or flag == _FAILED

    def note_sync(self, *, failed: bool) -> None:
        """Store for all processes whether a sync has failed. The page cache suffices, because the condition
        ends with a power cut. If the write fails, this object remembers the fact."""
        self._has_sync_failed = failed
        try:
            os.pwrite(self._descriptor, _FAILED if failed else b"\0", _SYNC_FAILED_AT)
        except OSError as error:
            if not failed:  # After a failed sync the caller raises an error anyway.
                self._has_sync_failed = True
                raise translate_system(error, self.path) from error

    def begin_round(self, now_ms: int, every_ms: int) -> tuple[bool, int]:
        """Implements `Store.begin_round`. The caller holds the mutex."""
        with system_calls(self.path):
            data = os.pread(self._descriptor, _TIME.size, _ROUND_AT)
        last_ms = int(_TIME.unpack(data)[0]) if len(data) == _TIME.size else 0
        is_known = 0 <= now_ms - last_ms < _LONG_AGO_MS
        if is_known and now_ms - last_ms < every_ms:
            return False, last_ms
        with system_calls(self.path):
            os.pwrite(self._descriptor, _TIME.pack(now_ms), _ROUND_AT)
        return is_known, now_ms

    def known_position(self, file_id: str) -> int:
        """The newest position that the file with this id is known to have had; 0 if none is."""
        with contextlib.suppress(OSError, struct.error):
            position, known_id = _KNOWN.unpack(os.pread(self._descriptor, _KNOWN.size, _KNOWN_AT))
            if known_id == file_id.encode():
                return int(position)
        return 0

    def note_position(self, position: int, file_id: str | None = None) -> None:
        """Store the newest position; with an id, also that the position is of that file. The page cache
        suffices. After a power loss a lower position may be stored, but never a higher one."""
        data = _TIME.pack(position) if file_id is None else _KNOWN.pack(position, file_id.encode())
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, data, _KNOWN_AT)

    def remove_files(self) -> None:
        """Remove the lock files that the caller has created. Raises OSError."""
        for file in self._locks.files:
            os.unlink(file.path)

    def files(self) -> Iterator[tuple[str, Identity]]:
        for file in self._locks.files:
            status = os.fstat(file.fileno())
            yield file.path, (status.st_dev, status.st_ino)


def _let_go(mutex: WriterMutex, process: int) -> None:
    if process == os.getpid():  # A forked child must not close the parent's files.
        mutex.close()


def _nothing() -> None:
    return None


def _close(locks: WriterLocks) -> None:
    for file in locks.files:
        file.close()


_NO_MEMORY: Final = "there is not enough memory; nothing was written, try again"


class _Waiter:
    """Waits for the lock on a new descriptor, then hands it over, or drops it if the caller gave up. The
    handover runs in its own thread, which no signal interrupts."""

    def __init__(self, path: str, exchange: Callable[[WriterLocks], None]) -> None:
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
        """Wait, and return whether the lock was handed over. After False it never will be."""
        self._finished.acquire(timeout=seconds)
        with self._lock:
            self._is_wanted = False
        if self._failure:
            raise StorageError(f"{self._path} cannot be locked: {self._failure}")
        return self._granted

    def _run(self) -> None:
        try:
            locks = road.writer_locks(self._path)
            locks.lock(QUEUE)
            locks.lock(WRITER)
            locks.unlock(QUEUE)
            self._hand_over(locks)
        except OSError as error:
            # Only the text is kept: the error's traceback would keep the locked descriptor open.
            self._failure = error.strerror or str(error)
        except MemoryError:
            self._failure = _NO_MEMORY
        finally:
            self._finished.release()

    def _hand_over(self, locks: WriterLocks) -> None:
        with self._lock:
            if self.is_abandoned or not self._is_wanted:
                _close(locks)
                return
            self._exchange(locks)
            self._granted = True
            if self.is_abandoned:
                locks.unlock(WRITER)


def sync_has_failed(database: str) -> bool:
    """For a process without the database open: whether a sync failed in any process that has it open."""
    try:
        with open(f"{database}-lock", "rb", buffering=0) as file:
            return os.pread(file.fileno(), 1, _SYNC_FAILED_AT) == _FAILED
    except FileNotFoundError:
        return False


class OwnerLocks:
    def __init__(self, path: str) -> None:
        self._path: Final = path
        self._process: Final = os.getpid()
        self._lock = threading.Lock()
        self._file: OwnerFile | None = None
        self._is_closed = False

    def hold(self, number: int, count: int = 1) -> None:
        """Hold `count` locks, from this number on, until `release`, `close`, or the end of the process. The
        caller must not hold one of them already. Raises DatabaseLockedError if another holder has one of
        them, DatabaseClosedError and StorageError."""
        assert number >= 0, number
        assert count > 0, count
        try:
            with self._lock:
                if self._is_closed or self._process != os.getpid():
                    raise DatabaseClosedError(f"{self._path}: the database has been closed")
                if self._file is None:
                    self._file = road.owner_file(self._path)
                self._file.hold(number, count)
        except BlockingIOError:
            raise DatabaseLockedError(
                f"{self._path}: another holder has the lock of owner {number}"
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
