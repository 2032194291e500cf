"""The kernel's notice that a file is written (inotify), so that waiting for it costs nothing.

Not every system has it, and instances may run out; then waiting means looking again after a short sleep.
A write to the WAL is seen before it is a commit, so a notice only says that it is worth looking.
"""

from __future__ import annotations

import ctypes
import os
import select
from typing import Final

from eosdb.model.closing import Closeable

_IN_MODIFY: Final = 0x2
_FLAGS: Final = os.O_CLOEXEC | os.O_NONBLOCK
_SLEEP_MS: Final = 10
"""How often to look where the kernel gives no notice."""
_libc: Final = ctypes.CDLL(None, use_errno=True)


def _watch(path: str) -> int:
    """A descriptor that becomes readable when the file is written; -1 where there is none."""
    if not hasattr(_libc, "inotify_init1"):
        return -1
    descriptor: int = _libc.inotify_init1(_FLAGS)
    if descriptor < 0:
        return -1
    if _libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(descriptor)
        return -1
    return descriptor


class Watch(Closeable):
    """Watches one file for as long as the block lasts."""

    def __init__(self, path: str) -> None:
        self._descriptor = _watch(path)
        self._poll = select.poll()
        if self._descriptor >= 0:
            self._poll.register(self._descriptor, select.POLLIN)

    def wait(self, timeout_ms: int) -> bool:
        """Return when the file is written (True), or when the time is up, or earlier."""
        if self._descriptor < 0:
            self._poll.poll(min(timeout_ms, _SLEEP_MS))
            return False
        if not self._poll.poll(timeout_ms):
            return False
        os.read(self._descriptor, 4_096)
        return True

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
