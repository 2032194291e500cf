"""The two roads to what the system gives, and the one that this process takes.

`linux` uses what only Linux has; `portable` makes do with what macOS has, too, and is slower. The choice
holds for the whole process; a file is open on one road at a time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from eosdb.system.lock_file import LockFile
from eosdb.system.mount import Mount

VARIABLE: Final = "EOSDB_PORTABLE"
"""The environment variable that takes the portable road on Linux if it is 1."""
QUEUE: Final = 0
WRITER: Final = 1


class WriterLocks(Protocol):
    """The locks QUEUE and WRITER of one opener; the kernel releases those of a process that dies."""

    @property
    def files(self) -> Sequence[LockFile]:
        """The open files; the first also stores facts for all processes."""

    def try_lock(self, lock: int) -> bool:
        """Take the lock if it is free."""

    def lock(self, lock: int) -> None:
        """Wait for the lock. Raises OSError."""

    def unlock(self, lock: int) -> None:
        """Release the lock."""

    def releaser(self) -> Callable[[], object]:
        """Return what releases both locks, without running Python code."""

    def is_owned(self, number: int) -> bool:
        """Whether any opener holds the owner lock of this number. Raises OSError, and ValueError when the
        files are closed."""


class OwnerFile(Protocol):
    """The owner locks of one opener: numbers from 0 to 2**62."""

    def hold(self, number: int, count: int) -> None:
        """Hold `count` locks from this number on. Raises BlockingIOError if another opener has one of them,
        and OSError."""

    def drop(self, number: int, count: int) -> None:
        """Release what `hold` was given. Runs without a Python lock."""

    def close(self) -> None:
        """Release all. Can be called again."""


class Road(Protocol):
    """What a system gives."""

    @property
    def IS_PORTABLE(self) -> bool:
        """Whether this is the portable road."""

    @property
    def LOCK_FILES(self) -> Sequence[str]:
        """What the names of the files for QUEUE and WRITER add to that of the first; empty if it has
        both."""

    def writer_locks(self, path: str) -> WriterLocks:
        """Open the locks at `path`. Raises OSError, and IllegalStateError if the file is open on the other
        road."""

    def owner_file(self, path: str) -> OwnerFile:
        """Open owner locks of the lock file at `path`. Raises the same."""

    def is_owned(self, path: str, number: int) -> bool:
        """Whether any opener holds the owner lock of this number, for a reader that has no lock file open.
        True if the openers are on the other road. Raises OSError, also if there is no lock file."""

    def holders(self, path: str, locked: Collection[int]) -> Sequence[int]:
        """The processes that have locked any of these bytes of SQLite's file at `path`, or any of QUEUE and
        WRITER of the lock file, as far as the system shows."""

    def process(self, pid: int) -> tuple[str, bool]:
        """The command of a process, and whether it is stopped."""

    def inherited(self) -> frozenset[tuple[int, int]]:
        """Device and inode of the database files that SQLite may have had open in the parent process."""

    def watched(self, path: str) -> int:
        """Return a descriptor that becomes readable when the file is written; -1 if there is none."""

    def memory_folder(self) -> str | None:
        """The folder for files in memory; None for `tempfile`'s default."""

    def sync(self, descriptor: int) -> None:
        """Bring what was written onto the disk itself. Raises OSError."""

    def reserve(self, descriptor: int, size: int) -> None:
        """Give a file of fewer bytes the blocks for this many. Raises OSError."""

    def drop_cached(self, descriptor: int) -> None:
        """Have the next read come from the disk, where the system can do that."""

    def mount_points(self, folder: str) -> Collection[str]:
        """Every path at which something is mounted, as far as it may concern this folder."""

    def mount_of(self, folder: str) -> Mount | None:
        """The file system that holds the folder; None if that is unknown. Raises OSError."""


# decisions/0061: one choice for the life of the process.
if sys.platform == "linux" and os.environ.get(VARIABLE) != "1":
    from eosdb.system import linux

    road: Road = linux
else:
    from eosdb.system import portable

    road = portable
