"""The clock of the shop: it moves when it is told to, and may be set back as a machine's clock is."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Final

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


class Calendar:
    """A `Clock`. `time_ms` is what the machine shows, `monotonic_ms` never goes back."""

    def __init__(self, start: date) -> None:
        begin = datetime(start.year, start.month, start.day, tzinfo=UTC)
        self._monotonic_ms = int(begin.timestamp() * 1000)
        self._ahead_ms = 0
        self.latest_ms = self._monotonic_ms
        """The latest time that it has shown."""

    def time_ms(self) -> int:
        return self._monotonic_ms + self._ahead_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def sleep_ms(self, ms: int) -> None:
        self._monotonic_ms += max(ms, 0)
        self.latest_ms = max(self.latest_ms, self.time_ms())

    def advance_to(self, time_ms: int) -> None:
        """Go on until the machine shows this time, if it does not show a later one."""
        self.sleep_ms(time_ms - self.time_ms())

    def turn(self, ms: int) -> None:
        """Set what the machine shows forward, or back."""
        self._ahead_ms += ms
        self.latest_ms = max(self.latest_ms, self.time_ms())

    def today(self) -> date:
        return datetime.fromtimestamp(self.time_ms() / 1000, UTC).date()
