"""One look at the file per second, whoever asks: every browser and every page shares it.

Nothing is read between the looks, no snapshot is held, and while nobody asks nobody looks.
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
    """The newest overview of a file, not older than a second, and the rates of the last ten."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._clock: Final[Clock] = db.clock
        self._lock = threading.Lock()
        self._looks: deque[tuple[int, Overview]] = deque()

    def overview(self) -> Overview:
        """Raises what `Admin.overview` raises."""
        with self._lock:
            now = self._clock.monotonic_ms()
            if not self._looks or now - self._looks[-1][0] >= INTERVAL_MS:
                self._looks.append((now, self._db.admin.overview()))
                while now - self._looks[0][0] > _WINDOW_MS and len(self._looks) > 1:
                    self._looks.popleft()
            return self._looks[-1][1]

    def rates(self) -> Rates | None:
        """None until there are two looks."""
        with self._lock:
            if len(self._looks) < 2:
                return None
            return between(self._looks[0][1], self._looks[-1][1])

    def version(self) -> str:
        """Another one whenever what pages show may have changed."""
        found = self.overview()
        still = found.wal_bytes, found.size_bytes, found.journal_position, len(found.transactions)
        return "-".join(str(figure) for figure in still)
