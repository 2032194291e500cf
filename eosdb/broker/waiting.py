"""Waiting for a commit: it is noticed within milliseconds, in any process, at next to no cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eosdb.clock import Clock, SystemClock
from eosdb.store.store import Store

# decisions/0011: inotify says that the WAL was written, data_version that a commit is there.
_LOOK_AT_LEAST_MS: Final = 100
"""How long to rely on the kernel to report a write."""
_UNTIL_COMMIT_MS: Final = (1, 1, 1, 1, 2, 2, 4, 4, 8, 8)
"""When to look after a write to the WAL: the commit is there once it has been synced."""
_LONGEST_PAUSE_MS: Final = 10


def wait_for_change(
    store: Store, clock: Clock, version: int, timeout_ms: int, cancelled: Callable[[], bool]
) -> int:
    """Return `store.data_version()` once it is no longer `version`, after `timeout_ms`, or when
    `cancelled` returns True."""
    if isinstance(clock, SystemClock):
        return _wait_for_kernel(store, clock, version, timeout_ms, cancelled)
    deadline, pause_ms = clock.monotonic_ms() + timeout_ms, 1
    while (found := store.data_version()) == version:
        left_ms = deadline - clock.monotonic_ms()
        if left_ms <= 0 or cancelled():
            break
        clock.sleep_ms(min(pause_ms, left_ms))
        pause_ms = min(pause_ms * 2, _LONGEST_PAUSE_MS)
    return found


def _wait_for_kernel(
    store: Store, clock: Clock, version: int, timeout_ms: int, cancelled: Callable[[], bool]
) -> int:
    deadline = clock.monotonic_ms() + timeout_ms
    pauses: list[int] = []
    with store.watch() as watch:
        while (found := store.data_version()) == version:
            left_ms = deadline - clock.monotonic_ms()
            if left_ms <= 0 or cancelled():
                break
            if pauses:
                clock.sleep_ms(min(pauses.pop(), left_ms))
            elif watch.wait(min(left_ms, _LOOK_AT_LEAST_MS)):
                pauses = list(reversed(_UNTIL_COMMIT_MS))
    return found
