"""Waits for writes to a file by the kernel's notifications, which costs nothing while waiting.

Where they are not available, or no instance is left, it polls with a short sleep. A write to the WAL is
seen before it is a commit, so a notification only means that it is worth checking.
"""

from __future__ import annotations

import os
import select
from typing import Final

from eosdb.model.closing import Closeable
from eosdb.system.road import road

_SLEEP_MS: Final = 10
"""The polling interval where the kernel sends no notifications."""


class Watch(Closeable):
    """Watches one file during the block."""

    def __init__(self, path: str) -> None:
        self._descriptor = road.watched(path)
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
