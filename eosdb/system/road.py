"""Selects the implementation of the system services for this process: `road`.

`linux` uses Linux's own calls; `portable` uses only calls that macOS also has, and is slower. Programs with
different implementations cannot have a file open at the same time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from eosdb.system.lock_file import LockFile
from eosdb.system.mount import Mount

VARIABLE: Final = "EOSDB_PORTABLE"
"""The environment variable that selects the portable implementation on Linux if it is 1."""


class WriterLocks(Protocol):
    """The locks QUEUE and WRITER of one opener. The kernel releases them when the process dies."""

    @property
    def files(self) -> Sequence[LockFile]:
        """The open lock files. The first also stores facts for all processes."""

    def try_writer(self) -> bool:
        """Take WRITER if both locks are free. Returns whether it did."""

    def lock(self, lock: int) -> None:
        """Wait for the lock. Raises OSError."""

    def unlock(self, lock: int) -> None:
        """Release the lock."""

    def releaser(self) -> Callable[[], object]:
        """Return a function that releases both locks without running Python code."""

    def is_owned(self, number: int) -> bool:
        """Whether any opener holds the owner lock of this number. Raises OSError, and ValueError if the
        files are closed."""


class OwnerFile(Protocol):
    """The owner locks of one opener: numbers from 0 to 2**62."""

    def hold(self, number: int, count: int) -> None:
        """Hold `count` locks from this number on. Raises OSError, and BlockingIOError if another opener
        holds one of them."""

    def drop(self, number: int, count: int) -> None:
        """Release the locks of an earlier `hold`. Takes no Python lock."""

    def close(self) -> None:
        """Release all locks. Can be called again."""


class SharedLock(Protocol):
    """A shared lock on bytes of a file. It survives every `close` of the file but its own, which drops the
    process's POSIX locks."""

    @property
    def closed(self) -> bool:
        """Whether the file has been closed, as in a forked child."""

    def fileno(self) -> int:
        """Return the file's descriptor."""

    def lock(self) -> None:
        """Take the lock. Raises OSError, also if another process excludes it."""

    def unlock(self) -> None:
        """Release the lock and leave the file open. Raises OSError."""

    def retake(self, byte: int) -> bool:
        """Take the process's own exclusive POSIX lock on a byte, also if it has it. Returns False if
        another process has locked the byte."""

    def close(self) -> None:
        """Close the file."""


class Notices(Protocol):
    """The kernel's notices of writes to a file."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is one."""

    def take(self) -> bool:
        """Take those that have come. Returns False if none will follow, because the file was removed."""

    def close(self) -> None:
        """Want no more."""


class Road(Protocol):
    """The services of the operating system; both implementations have them."""

    @property
    def IS_PORTABLE(self) -> bool:
        """Whether this is the portable implementation."""

    @property
    def LOCK_FILES(self) -> Sequence[str]:
        """Suffixes of the files for QUEUE and WRITER; empty if one file has both locks."""

    def writer_locks(self, path: str) -> WriterLocks:
        """Open the locks at `path`. Raises OSError, and IllegalStateError if the file is open with
        the other implementation."""

    def owner_file(self, path: str) -> OwnerFile:
        """Open the owner locks at `path`. Raises the same errors as `writer_locks`."""

    def shared_lock(self, path: str, first: int, count: int) -> SharedLock | None:
        """Open the file for a shared lock on `count` bytes; None if the system has no such lock. Raises
        OSError."""

    def is_owned(self, path: str, number: int) -> bool:
        """Whether any opener holds this owner lock, for a reader that has no lock file open. True if the
        openers use the other implementation. Raises OSError, also if there is no lock file."""

    def holders(self, path: str, locked: Collection[int]) -> Sequence[int]:
        """Return the ids of processes that have locked these bytes of SQLite's file, or these locks (QUEUE,
        WRITER) of the lock file. The system may hide some."""

    def process(self, pid: int) -> tuple[str, bool]:
        """Return the command line of a process, and whether it is stopped."""

    def inherited(self) -> frozenset[tuple[int, int]]:
        """In a forked child: return device and inode of files that the parent's SQLite may have open."""

    def watched(self, path: str) -> Notices | None:
        """Have the kernel tell when the file is written; None if it does not."""

    def memory_folder(self) -> str | None:
        """Return the folder for files in memory; None to use `tempfile`'s default."""

    def sync(self, descriptor: int) -> None:
        """Write the file's data to the disk, not only to its cache. Raises OSError."""

    def reserve(self, descriptor: int, size: int) -> None:
        """Allocate disk blocks for a file of this size. Raises OSError."""

    def drop_cached(self, descriptor: int) -> None:
        """Drop the file's pages from the cache, so the next read comes from the disk, where possible."""

    def mounts(self, folder: str) -> tuple[Collection[str], Mount | None]:
        """Return all mount points that may contain this folder, and the file system of the folder (None if
        unknown)."""


# decisions/0061: the implementation is chosen once for each process, at import.
if sys.platform == "linux" and os.environ.get(VARIABLE) != "1":
    from eosdb.system import linux

    road: Road = linux
else:
    from eosdb.system import portable

    road = portable


def sync_path(path: str, flags: int = os.O_RDONLY) -> None:
    """Write the data of the file or folder at `path` to the disk itself. Raises OSError."""
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        road.sync(descriptor)
    finally:
        os.close(descriptor)
