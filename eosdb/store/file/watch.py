"""Waits for writes to a file by the kernel's notifications (inotify), which costs nothing while waiting.

Where they are not available, or no instance is left, it polls with a short sleep. A write to the WAL is
seen before it is a commit, so a notification only means that it is worth checking.
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
"""The polling interval where the kernel sends no notifications."""
_libc: Final = ctypes.CDLL(None, use_errno=True)


def _watch(path: str) -> int:
    """Return a descriptor that becomes readable when the file is written; -1 if that is not available."""
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
    """Watches one file during the block."""

    def __init__(self, path: str) -> None:
        self._descriptor = _watch(path)
        self._poll = select.poll()
        if self._descriptor >= 0:
            self._poll.register(self._descriptor, select.POLLIN)

    def wait(self, timeout_ms: int) -> bool:
        """Wait until the file is written (True), or until the time-out; it may return earlier."""
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
