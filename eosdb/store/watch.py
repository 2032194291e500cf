"""Being told by the kernel that a file is written (inotify), so that waiting for it costs nothing.

Not every system can, and an instance may not be had; then whoever waits looks again after a short sleep.
A write to the WAL is seen before it is a commit, so what is told here is only that it is worth looking.
"""

from __future__ import annotations

import ctypes
import os
import select
from types import TracebackType
from typing import Final

_IN_MODIFY: Final = 0x2
_FLAGS: Final = os.O_CLOEXEC | os.O_NONBLOCK
_SLEEP_MS: Final = 10
"""How often to look where the kernel does not tell."""
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Watches one file for as long as the block lasts."""

    def __init__(self, path: str) -> None:
        self._descriptor = -1
        self._poll = select.poll()
        if not hasattr(_libc, "inotify_init1"):
            return
        descriptor: int = _libc.inotify_init1(_FLAGS)
        if descriptor < 0:
            return
        if _libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
            os.close(descriptor)
            return
        self._descriptor = descriptor
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, timeout_ms: int) -> bool:
        """Return when the file is written (True), or when the time is over, or earlier."""
        if self._descriptor < 0:
            self._poll.poll(min(timeout_ms, _SLEEP_MS))
            return False
        if not self._poll.poll(timeout_ms):
            return False
        os.read(self._descriptor, 4_096)
        return True

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
