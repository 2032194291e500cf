"""Waits for writes to a file by kernel notifications, which costs no CPU.

On a system without them it polls. The WAL is written before a commit ends, so a notification means only
that there may be a new commit.
"""

from __future__ import annotations

import os
import select
from typing import Final

from eosdb.model.closing import Closeable
from eosdb.system.road import road

_SLEEP_MS: Final = 10
"""The polling interval without kernel notifications."""


class Watch(Closeable):
    def __init__(self, path: str) -> None:
        self._descriptor = road.watched(path)
        self._poll = select.poll()
        if self._descriptor >= 0:
            self._poll.register(self._descriptor, select.POLLIN)

    def wait(self, timeout_ms: int) -> bool:
        """Wait until the file is written. Returns False after the time-out, or earlier if it only polls."""
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
