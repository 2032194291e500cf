"""The lock file beside a database: byte ranges used as locks, and the descriptors that hold them.

They are open-file-description locks. The kernel releases those of a process that dies, however it dies; a
forked child closes its copies of the descriptors, so it does not keep its parent's locks alive.
"""

from __future__ import annotations

import fcntl
import os
import struct
from io import FileIO
from typing import Final

_FLOCK: Final = "hhqqi4x"
_OWNERS_AT: Final = 4096
"""From here on each byte is an owner's lock; locking bytes does not make the file grow."""


def byte_range(kind: int, byte: int, length: int = 1) -> bytes:
    """Build the `flock` structure for these bytes; `kind` is F_WRLCK or F_UNLCK."""
    return struct.pack(_FLOCK, kind, os.SEEK_SET, byte, length, 0)


def owner_bytes(kind: int, number: int, count: int = 1) -> bytes:
    """The same for `count` owner locks from this number on (0 to 2**62)."""
    return byte_range(kind, _OWNERS_AT + number, count)


def is_locked(file: FileIO, wanted: bytes) -> bool:
    """Whether a lock of another descriptor conflicts with the one requested. Raises OSError."""
    conflict = fcntl.fcntl(file, fcntl.F_OFD_GETLK, wanted)
    return bool(struct.unpack_from("h", conflict)[0] != fcntl.F_UNLCK)


class _LockFile(FileIO):
    """A file that closes its descriptor only once, and without a warning at the end of the process."""

    def __del__(self) -> None:
        self.close()


_open: Final[set[FileIO]] = set()
"""Keeps open lock files alive: the garbage collector would close them before the blocks that release a
lock."""


def open_lock_file(path: str) -> FileIO:
    """Open a descriptor with its own set of locks. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    file = _LockFile(descriptor, "r+")
    _open.add(file)
    return file


def close_lock_file(file: FileIO) -> None:
    """Close the file, which releases its locks. Can be called again."""
    file.close()
    _open.discard(file)


def _forget_after_fork() -> None:
    """Close inherited descriptors in a forked child, which would keep the parent's locks alive."""
    for file in list(_open):
        file.close()
    _open.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
