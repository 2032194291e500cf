"""The files that this process has open, in any library. eosdb reads SQLite's files through SQLite's own
descriptors: closing another descriptor would drop SQLite's locks."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

FOLDER: Final = "/dev/fd" if sys.platform == "darwin" else "/proc/self/fd"


def open_files() -> Iterator[tuple[int, os.stat_result]]:
    for name in os.listdir(FOLDER):
        with contextlib.suppress(OSError):
            yield int(name), os.fstat(int(name))


def descriptor_of(path: str) -> int | None:
    """Return a descriptor of the file; None if this process does not have it open. Raises OSError."""
    wanted = os.stat(path)
    opened = (number for number, status in open_files() if os.path.samestat(status, wanted))
    return next(opened, None)


def head(path: str, size: int) -> bytes:
    """Return the first bytes of the file; close no descriptor of a file that is open. Raises OSError."""
    descriptor = descriptor_of(path)
    if descriptor is not None:
        return os.pread(descriptor, size, 0)
    with open(path, "rb") as file:
        return file.read(size)
