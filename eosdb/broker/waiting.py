"""Waits for a commit by any process: noticed within milliseconds, at almost no cost while idle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eosdb.model.clock import Clock, SystemClock
from eosdb.model.closing import Closeable
from eosdb.store.file.watch import Watch
from eosdb.store.store import Store

# decisions/0011: the kernel reports a write to the WAL, data_version a commit.
_LOOK_AT_LEAST_MS: Final = 100
"""Check `data_version` at least this often, even without a reported write."""
_UNTIL_COMMIT_MS: Final = (1, 1, 1, 1, 2, 2, 4, 4, 8, 8)
"""Pauses between checks after a write to the WAL: the commit is visible only after its sync."""
_LONGEST_PAUSE_MS: Final = 10


class Listener(Closeable):
    """Waits for commits to one file by any process. Close it after use, and reuse it for repeated waits:
    opening and closing a watch costs the kernel more than a wait."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._watch: Watch | None = store.watch() if isinstance(clock, SystemClock) else None

    def wait(
        self, version: int, timeout_ms: int, cancelled: Callable[[], bool] = lambda: False
    ) -> int:
        """Return `store.data_version()` as soon as it differs from `version`, at the latest after
        `timeout_ms` or when `cancelled` returns True."""
        clock = self._clock
        deadline, pause_ms = clock.monotonic_ms() + timeout_ms, 1
        pauses: list[int] = []
        while (current := self._store.data_version()) == version:
            left_ms = deadline - clock.monotonic_ms()
            if left_ms <= 0 or cancelled():
                break
            if self._watch is None:
                clock.sleep_ms(min(pause_ms, left_ms))
                pause_ms = min(pause_ms * 2, _LONGEST_PAUSE_MS)
            elif pauses:
                clock.sleep_ms(min(pauses.pop(), left_ms))
            elif self._watch.wait(min(left_ms, _LOOK_AT_LEAST_MS)):
                pauses = list(reversed(_UNTIL_COMMIT_MS))
        return current

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
