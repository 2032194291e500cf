"""Lock files beside a database, and the descriptors that hold locks on them.

A lock belongs to the open descriptor. The kernel releases those of a process that dies, however it dies; a
forked child closes its copies of the descriptors, so it does not keep its parent's locks alive.
"""

from __future__ import annotations

import contextlib
import os
import stat
from io import FileIO
from typing import Final, TypeVar

LOCK: Final = "-lock"
"""What the name of a lock file adds to that of the database."""


class LockFile(FileIO):
    """A file that closes its descriptor only once, and without a warning at the end of the process."""

    path: str

    def close(self) -> None:
        """Release the file's locks. Can be called again."""
        super().close()
        _open.discard(self)

    def __del__(self) -> None:
        super().close()


F = TypeVar("F", bound=LockFile)
_open: Final[set[LockFile]] = set()
"""Keeps open lock files alive: the garbage collector would close them before the blocks that release a
lock."""


def open_lock_file(path: str, kind: type[F]) -> F:
    """Open a descriptor with its own set of locks. The file is created if necessary, with the owner and
    the mode of the database, as SQLite does it for the WAL. Raises OSError."""
    file = kind(_opened(path), "r+")
    file.path = path
    _open.add(file)
    return file


def _opened(path: str) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW  # It is written to.
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        with contextlib.suppress(FileExistsError):
            # Exclusively: what is changed below must not be what a link of somebody else's leads to.
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
            _give_to_owner(descriptor, path.rpartition(LOCK)[0])
            return descriptor


def _give_to_owner(descriptor: int, path: str) -> None:
    """Give a new file the owner and the mode of the file at `path`, if there is one, as far as this user
    may."""
    with contextlib.suppress(OSError):
        status = os.stat(path)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
        os.fchown(descriptor, status.st_uid if os.geteuid() == 0 else -1, status.st_gid)


def _forget_after_fork() -> None:
    """Close inherited descriptors in a forked child, which would keep the parent's locks alive."""
    for file in list(_open):
        file.close()


os.register_at_fork(after_in_child=_forget_after_fork)
