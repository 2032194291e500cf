"""The files that this process has open, by whatever library. SQLite's own descriptors are used to look into
its files: closing another one would drop the locks that SQLite holds."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

FOLDER: Final = "/dev/fd" if sys.platform == "darwin" else "/proc/self/fd"


def open_files() -> Iterator[tuple[int, os.stat_result]]:
    """Yield every descriptor with what it leads to. Raises OSError."""
    for name in os.listdir(FOLDER):
        with contextlib.suppress(OSError):
            yield int(name), os.fstat(int(name))


def descriptor_of(path: str) -> int | None:
    """Return a descriptor of the file at `path`; None if this process does not have it open. Raises
    OSError."""
    wanted = os.stat(path)
    opened = (number for number, status in open_files() if os.path.samestat(status, wanted))
    return next(opened, None)
