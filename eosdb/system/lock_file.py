"""Lock files beside a database, and the descriptors that hold locks on them.

A lock belongs to the open descriptor. The kernel releases those of a process that dies, however it dies; a
forked child closes its copies of the descriptors, so it does not keep its parent's locks alive.
"""

from __future__ import annotations

import os
from io import FileIO
from typing import Final, TypeVar


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
    """Open a descriptor with its own set of locks. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    file = kind(descriptor, "r+")
    file.path = path
    _open.add(file)
    return file


def _forget_after_fork() -> None:
    """Close inherited descriptors in a forked child, which would keep the parent's locks alive."""
    for file in list(_open):
        file.close()


os.register_at_fork(after_in_child=_forget_after_fork)
