"""The writer mutex between processes: an advisory lock on a small file beside the database.

It is held around every write unit and every checkpoint of ours, so a commit never resets the WAL
beside a running checkpoint, and waiting is a kernel queue instead of SQLite's sleep-and-retry. Two
byte ranges make it fair: whoever waits for the writer byte holds the queue byte, so the last holder
cannot overtake. The kernel releases the lock of a process that dies. The locks are
open-file-description locks: they also exclude two databases of one process, and closing another
descriptor does not drop them.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from typing import Final

from eosdb.errors import DatabaseLockedError

_QUEUE: Final = 0
_WRITER: Final = 1
_FLOCK: Final = "hhqqi4x"


class WriterMutex:
    """One per database object. Not reentrant; its threads take turns before they come here."""

    def __init__(self, path: str, timeout_ms: int) -> None:
        self._path = path
        self._timeout_ms = timeout_ms
        self._descriptor = _open(path)

    def acquire(self) -> None:
        """Return when this process is the one writer.

        Raises DatabaseLockedError after the bounded wait.
        """
        if _try_lock(self._descriptor, _QUEUE):
            if _try_lock(self._descriptor, _WRITER):
                _unlock(self._descriptor, _QUEUE)
                return
            _unlock(self._descriptor, _QUEUE)
        self._acquire_in_turn()

    def release(self) -> None:
        _unlock(self._descriptor, _WRITER)

    def close(self) -> None:
        if self._descriptor >= 0:
            _close(self._descriptor)
            self._descriptor = -1

    def _acquire_in_turn(self) -> None:
        """Wait in a thread of its own, because a lock call that blocks cannot be given a
        time-out."""
        waiter = _Waiter(self._path)
        granted = waiter.wait(self._timeout_ms / 1000)
        if granted is None:
            raise DatabaseLockedError(
                f"another process has been writing for {self._timeout_ms} ms (lock file "
                f"{self._path}); nothing was written, try again or raise lock_timeout_ms"
            )
        _close(self._descriptor)
        self._descriptor = granted


class _Waiter:
    """Blocks for the lock on a new descriptor; gives it away, or drops it if nobody waits any
    more."""

    def __init__(self, path: str) -> None:
        self._descriptor = _open(path)
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._granted = False
        self._abandoned = False
        threading.Thread(target=self._run, name="eosdb-writer-lock", daemon=True).start()

    def wait(self, seconds: float) -> int | None:
        try:
            self._finished.wait(seconds)
        except BaseException:
            if self._abandon() is not None:
                _close(self._descriptor)
            raise
        return self._abandon()

    def _abandon(self) -> int | None:
        """The descriptor if the lock has been granted; if not, it will be dropped when it is."""
        with self._lock:
            self._abandoned = not self._granted
            return self._descriptor if self._granted else None

    def _run(self) -> None:
        try:
            _lock(self._descriptor, _QUEUE)
            _lock(self._descriptor, _WRITER)
            _unlock(self._descriptor, _QUEUE)
            with self._lock:
                self._granted = not self._abandoned
        finally:
            if not self._granted:
                _close(self._descriptor)
            self._finished.set()


def _ranges(kind: int) -> tuple[bytes, bytes]:
    """The lock structure for either byte."""
    return tuple(struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0) for byte in (_QUEUE, _WRITER))  # type: ignore[return-value]


_WRITE_LOCK: Final = _ranges(fcntl.F_WRLCK)
_NO_LOCK: Final = _ranges(fcntl.F_UNLCK)


def _try_lock(descriptor: int, byte: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _WRITE_LOCK[byte])
    except (BlockingIOError, PermissionError):
        return False
    return True


def _lock(descriptor: int, byte: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, _WRITE_LOCK[byte])


def _unlock(descriptor: int, byte: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _NO_LOCK[byte])


_descriptors: Final[set[int]] = set()


def _open(path: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    _descriptors.add(descriptor)
    return descriptor


def _close(descriptor: int) -> None:
    _descriptors.discard(descriptor)
    os.close(descriptor)


def _forget_after_fork() -> None:
    """A forked child shares the parent's descriptions; it must not keep the parent's lock alive."""
    for descriptor in _descriptors:
        os.close(descriptor)
    _descriptors.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
