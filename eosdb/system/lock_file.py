"""Lock files beside a database, and the descriptors that hold locks on them.

A lock belongs to the open descriptor, so the kernel releases the locks of a dead process. A forked child
closes its copies of the descriptors, so that its parent's locks end with the parent.
"""

from __future__ import annotations

import contextlib
import os
import stat
from io import FileIO
from typing import Final, TypeVar

LOCK: Final = "-lock"
"""The suffix of a lock file's name."""
QUEUE: Final = 0
WRITER: Final = 1
"""The numbers of the two locks of writers."""


class LockFile(FileIO):
    """A file that closes its descriptor only once, and without a warning when the process ends."""

    path: str

    def close(self) -> None:
        super().close()
        _open.discard(self)

    # No function in Python, in which a signal's KeyboardInterrupt would be lost.
    __del__ = FileIO.close


F = TypeVar("F", bound=LockFile)
_open: Final[set[LockFile]] = set()
"""Keeps open lock files alive: the garbage collector would close them before the blocks that release a
lock."""


def open_lock_file(path: str, kind: type[F]) -> F:
    """Open the lock file on a new descriptor, which has separate locks. If the file is new, it gets the
    owner and mode of the database, like SQLite's WAL. Raises OSError."""
    return closed_in_child(kind(_opened(path), "r+"), path)


def closed_in_child(file: F, path: str) -> F:
    """Let a forked child close its copy of this open file, which is at `path`."""
    file.path = path
    _open.add(file)
    return file


def _opened(path: str) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        with contextlib.suppress(FileExistsError):
            # O_EXCL refuses a symbolic link: its target must not get another owner and mode.
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
            _give_to_owner(descriptor, path.rpartition(LOCK)[0])
            return descriptor


def _give_to_owner(descriptor: int, path: str) -> None:
    """Give a new file the owner and mode of the file at `path`, if it exists, as far as this user may."""
    with contextlib.suppress(OSError):
        status = os.stat(path)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
        os.fchown(descriptor, status.st_uid if os.geteuid() == 0 else -1, status.st_gid)


def _forget_after_fork() -> None:
    """Close inherited descriptors in a forked child: they would keep the parent's locks alive."""
    for file in list(_open):
        file.close()


os.register_at_fork(after_in_child=_forget_after_fork)
