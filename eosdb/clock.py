"""The only door through which time comes in.

Everything that depends on time takes a `Clock`; no other module reads it. `SystemClock` goes
through `time.time`, so freezegun works; `ManualClock` stands still until it is told to move.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """What eosdb needs to know about time, all in milliseconds."""

    def time_ms(self) -> int:
        """Milliseconds since the epoch (UTC)."""

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that never goes back; for waiting and measuring."""

    def sleep_ms(self, ms: int) -> None:
        """Return when `ms` milliseconds of this clock have passed."""


class SystemClock:
    """The machine's time."""

    def time_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic_ms(self) -> int:
        return int(time.monotonic() * 1000)

    def sleep_ms(self, ms: int) -> None:
        time.sleep(ms / 1000)


class ManualClock:
    """A clock for tests: it moves only by `advance` (and by the waits of the code under test)."""

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = start_ms
        self._lock = threading.Lock()

    def time_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move the clock forward. Raises ValueError when `ms` is negative."""
        if ms < 0:
            raise ValueError(f"a clock only moves forward, got {ms} ms")
        with self._lock:
            self._now_ms += ms

    def sleep_ms(self, ms: int) -> None:
        """Waiting is what moves a manual clock: nobody has to advance it from another thread."""
        self.advance(max(ms, 0))


def monotonic_ns(clock: Clock) -> int:
    """Nanoseconds for measuring intervals; of a clock that only knows milliseconds, those."""
    if isinstance(clock, SystemClock):
        return time.perf_counter_ns()
    return clock.monotonic_ms() * 1_000_000


def parse_time_ms(text: str) -> int:
    """Milliseconds since the epoch: as digits, or as a time in ISO 8601, UTC when it names no zone.

    Raises ValueError that says what is expected.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"got {text!r}, expected a time such as 2026-11-21T12:00:00Z, or milliseconds since the epoch"
        ) from None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return int(parsed.timestamp() * 1000)


def format_time_ms(time_ms: int) -> str:
    """A time in ISO 8601, UTC; what no calendar reaches as the number that it is."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
