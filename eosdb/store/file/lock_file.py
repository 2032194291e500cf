"""The lock file beside a database: its bytes as locks, and the descriptors on which they are held.

They are open-file-description locks. The kernel releases those of a process that dies, however it dies; a
forked child closes its copies of the descriptors, so that it keeps none of its parent's locks alive.
"""

from __future__ import annotations

import fcntl
import os
import struct
from io import FileIO
from typing import Final

_FLOCK: Final = "hhqqi4x"
_OWNERS_AT: Final = 4096
"""From here on each byte is an owner's lock; the file does not grow by that."""


def byte_range(kind: int, byte: int, length: int = 1) -> bytes:
    """What `fcntl` is told about these bytes; `kind` is F_WRLCK or F_UNLCK."""
    return struct.pack(_FLOCK, kind, os.SEEK_SET, byte, length, 0)


def owner_bytes(kind: int, number: int, count: int = 1) -> bytes:
    """The same for the locks of owners from this number on, from 0 to 2**62."""
    return byte_range(kind, _OWNERS_AT + number, count)


def is_locked(file: FileIO, asked: bytes) -> bool:
    """Whether another descriptor has a lock that is in the way of the one asked for. Raises OSError."""
    found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked)
    return bool(struct.unpack_from("h", found)[0] != fcntl.F_UNLCK)


class _LockFile(FileIO):
    """Closes its descriptor once, however often it is told to; at the end of the process without a word."""

    def __del__(self) -> None:
        self.close()


_open: Final[set[FileIO]] = set()
"""Held here until they are closed: the collector would close them before the blocks that release a lock."""


def open_lock_file(path: str) -> FileIO:
    """A descriptor with locks of its own. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    file = _LockFile(descriptor, "r+")
    _open.add(file)
    return file


def close_lock_file(file: FileIO) -> None:
    """Release what is held on it. May be repeated."""
    file.close()
    _open.discard(file)


def _forget_after_fork() -> None:
    """A forked child shares the parent's descriptions; it must not keep the parent's lock alive."""
    for file in list(_open):
        file.close()
    _open.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
