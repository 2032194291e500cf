"""Reads the overview of the file at most once per second, for all browsers and pages.

Without requests it reads nothing, and it holds no snapshot.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import pairwise
from typing import Final

from eosdb.database import Database
from eosdb.model.clock import Clock
from eosdb.model.overview import Overview, Rates, between

INTERVAL_MS: Final = 1_000
_WINDOW_MS: Final = 10_000
_TREND_MS, _STEP_MS = 600_000, 5_000
Series = list[tuple[float, float]]


class Watcher:
    """Caches the overview of a file for a second. Computes rates over the last ten seconds, and keeps what
    has been seen in the last ten minutes."""

    def __init__(self, db: Database, clock: Clock | None = None) -> None:
        self._db = db
        self._clock: Final = clock or db.clock
        self._lock = threading.Lock()
        self._readings: deque[tuple[int, Overview]] = deque()
        self._seen: deque[tuple[int, int, int]] = deque(maxlen=_TREND_MS // _STEP_MS + 1)
        """Time, journal position, and records that all groups are behind."""

    def overview(self) -> Overview:
        """Return an overview at most a second old. Raises the errors of `Admin.overview`."""
        with self._lock:
            now = self._clock.monotonic_ms()
            if not self._readings or now - self._readings[-1][0] >= INTERVAL_MS:
                read = self._db.admin.overview()
                self._readings.append((now, read))
                if not self._seen or now - self._seen[-1][0] >= _STEP_MS:
                    behind = sum(group.behind for group in read.groups)
                    self._seen.append((now, read.journal_position, behind))
                while now - self._readings[0][0] > _WINDOW_MS and len(self._readings) > 1:
                    self._readings.popleft()
            return self._readings[-1][1]

    def rates(self) -> Rates | None:
        """Return the rates, or None before the second reading."""
        with self._lock:
            if len(self._readings) < 2:
                return None
            return between(self._readings[0][1], self._readings[-1][1])

    def trends(self) -> tuple[Series, Series]:
        """Return the events per second and the records behind of the last ten minutes, each by its place
        in them, from 0 to 1. What nobody looked at is an average."""
        with self._lock:
            since = self._clock.monotonic_ms() - _TREND_MS
            seen = [one for one in self._seen if one[0] >= since]
        events = [
            ((at - since) / _TREND_MS, 1_000 * (position - before) / (at - earlier))
            for (earlier, before, _), (at, position, _) in pairwise(seen)
        ]
        return events, [((at - since) / _TREND_MS, behind) for at, _, behind in seen]

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
