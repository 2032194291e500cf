"""The file system's identity of a file, which a copy never shares: its inode and its birth time.

An inode alone does not suffice, because file systems give the number of a removed file to the next one.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any, Final

_AT_FDCWD: Final = -100
_STATX_BTIME: Final = 0x800
_BTIME: Final = struct.Struct("80xqI")
"""The birth time in Linux's `struct statx`: seconds and nanoseconds."""
_statx: Final[Any] = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


def identity(path: str) -> str:
    """Return the inode and birth time (0 if the system does not know it) of the file. Raises OSError."""
    status = os.stat(path)
    born: object = getattr(status, "st_birthtime", 0)  # macOS
    buffer = ctypes.create_string_buffer(256)
    if _statx is not None and not _statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer):
        seconds, nanoseconds = _BTIME.unpack_from(buffer.raw)
        born = f"{seconds}.{nanoseconds:09}"
    return f"{status.st_ino}@{born}"
