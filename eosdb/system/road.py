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
    """The locks QUEUE and WRITER of one opener; the kernel releases those of a dead process."""

    @property
    def files(self) -> Sequence[LockFile]:
        """The open files; the first also stores facts for all processes."""

    def try_writer(self) -> bool:
        """Take WRITER if both locks are free."""

    def lock(self, lock: int) -> None:
        """Wait for the lock. Raises OSError."""

    def unlock(self, lock: int) -> None:
        """Release the lock."""

    def releaser(self) -> Callable[[], object]:
        """Return a function that releases both locks without running Python code."""

    def is_owned(self, number: int) -> bool:
        """Whether any opener holds the owner lock of this number. Raises OSError, and ValueError for
        closed files."""


class OwnerFile(Protocol):
    """The owner locks of one opener: numbers from 0 to 2**62."""

    def hold(self, number: int, count: int) -> None:
        """Hold `count` locks from this number on. Raises OSError, and BlockingIOError for a lock of
        another opener."""

    def drop(self, number: int, count: int) -> None:
        """Release the locks of a `hold`. Runs without a Python lock."""

    def close(self) -> None:
        """Release all. Can be called again."""


class Road(Protocol):
    """The services of a system."""

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
        """Open owner locks of the lock file at `path`. Raises as `writer_locks`."""

    def is_owned(self, path: str, number: int) -> bool:
        """Whether any opener holds this owner lock; True if the openers use the other implementation. For a
        reader without a lock file. Raises OSError, also if there is no lock file."""

    def holders(self, path: str, locked: Collection[int]) -> Sequence[int]:
        """The processes with a lock on these bytes of SQLite's file, or on QUEUE or WRITER of the lock
        file. The system may not show all."""

    def process(self, pid: int) -> tuple[str, bool]:
        """The command of a process, and whether it is stopped."""

    def inherited(self) -> frozenset[tuple[int, int]]:
        """Device and inode of the database files that SQLite may have had open in the parent process."""

    def watched(self, path: str) -> int:
        """Return a descriptor that becomes readable when the file is written; -1 if there is none."""

    def memory_folder(self) -> str | None:
        """The folder for files in memory; None for `tempfile`'s default."""

    def sync(self, descriptor: int) -> None:
        """Write the file's data to the disk itself. Raises OSError."""

    def reserve(self, descriptor: int, size: int) -> None:
        """Allocate the blocks for this size. Raises OSError."""

    def drop_cached(self, descriptor: int) -> None:
        """Drop the file's pages from the cache, so the next read comes from the disk, where possible."""

    def mounts(self, folder: str) -> tuple[Collection[str], Mount | None]:
        """Every mount point that may concern this folder, and the file system of the folder; None if
        unknown."""


# decisions/0061: one choice for the life of the process.
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
