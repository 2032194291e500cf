"""The kernel's notice that a file is written (inotify), so that waiting for it costs nothing.

Not every system has it, and instances may run out; then waiting means looking again after a short sleep.
A write to the WAL is seen before it is a commit, so a notice only says that it is worth looking.
"""

from __future__ import annotations

import ctypes
import os
import select
import weakref
from collections.abc import Iterable
from types import TracebackType
from typing import Final

_IN_MODIFY: Final = 0x2
_IN_NAME_TAKEN: Final = 0x4 | 0x400 | 0x800
"""IN_ATTRIB (a file that is open loses a name), IN_DELETE_SELF, IN_MOVE_SELF."""
_FLAGS: Final = os.O_CLOEXEC | os.O_NONBLOCK
_SLEEP_MS: Final = 10
"""How often to look where the kernel gives no notice."""
_libc: Final = ctypes.CDLL(None, use_errno=True)


def _watch(paths: Iterable[str], events: int) -> int:
    """A descriptor that becomes readable when one of the events happens; -1 where there is none."""
    if not hasattr(_libc, "inotify_init1"):
        return -1
    descriptor: int = _libc.inotify_init1(_FLAGS)
    if descriptor < 0:
        return -1
    for path in paths:
        if _libc.inotify_add_watch(descriptor, os.fsencode(path), events) < 0:
            os.close(descriptor)
            return -1
    return descriptor


class NameWatch:
    """Watches whether files keep their names, until it is closed or forgotten."""

    def __init__(self, paths: Iterable[str]) -> None:
        descriptor = _watch(paths, _IN_NAME_TAKEN)
        self._descriptor = descriptor
        self._poll = select.poll()
        self._close = weakref.finalize(self, os.close, descriptor) if descriptor >= 0 else None
        if descriptor >= 0:
            self._poll.register(descriptor, select.POLLIN)

    def may_have_changed(self) -> bool:
        """Whether a name was touched since the last call; always True where the kernel gives no
        notice."""
        if self._descriptor < 0:
            return True
        if not self._poll.poll(0):
            return False
        os.read(self._descriptor, 4_096)
        return True

    def close(self) -> None:
        if self._close is not None:
            self._close()
        self._descriptor = -1


class Watch:
    """Watches one file for as long as the block lasts."""

    def __init__(self, path: str) -> None:
        self._descriptor = _watch([path], _IN_MODIFY)
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
