"""Reads the overview of the file at most once per second, for all browsers and pages.

Without requests it reads nothing, and it holds no snapshot.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from eosdb.database import Database
from eosdb.model.clock import Clock
from eosdb.model.overview import Overview, Rates, between

INTERVAL_MS: Final = 1_000
_WINDOW_MS: Final = 10_000


class Watcher:
    """Caches the overview of a file for a second, and computes rates over the last ten seconds."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._clock: Final[Clock] = db.clock
        self._lock = threading.Lock()
        self._readings: deque[tuple[int, Overview]] = deque()

    def overview(self) -> Overview:
        """Return an overview at most a second old. Raises the errors of `Admin.overview`."""
        with self._lock:
            now = self._clock.monotonic_ms()
            if not self._readings or now - self._readings[-1][0] >= INTERVAL_MS:
                self._readings.append((now, self._db.admin.overview()))
                while now - self._readings[0][0] > _WINDOW_MS and len(self._readings) > 1:
                    self._readings.popleft()
            return self._readings[-1][1]

    def rates(self) -> Rates | None:
        """Return the rates, or None before the second reading."""
        with self._lock:
            if len(self._readings) < 2:
                return None
            return between(self._readings[0][1], self._readings[-1][1])

    def version(self) -> str:
        """Return a text that changes whenever the content of a page may have changed."""
        overview = self.overview()
        figures = (
            overview.wal_bytes,
            overview.size_bytes,
            overview.journal_position,
            len(overview.transactions),
            # Due work comes with time, and not with a write.
            sum(len(group.due) for group in overview.groups),
            sum(one.hanging is not None for one in overview.transactions),
        )
        return "-".join(str(figure) for figure in figures)
