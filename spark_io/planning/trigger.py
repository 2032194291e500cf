"""Options minOffsetsPerTrigger and maxTriggerDelay: whether to start a micro-batch."""

from __future__ import annotations

from eosdb.model.clock import Clock, SystemClock


class Trigger:
    """The trigger of one query. The first micro-batch does not wait, as in Kafka's connector."""

    def __init__(self, least: int | None, most_ms: int, clock: Clock | None = None) -> None:
        self._least = least
        self._most_ms = most_ms
        self._clock = clock or SystemClock()
        self._last_ms: int | None = None

    def is_due(self, waiting: int) -> bool:
        """Whether to read the `waiting` offsets: they reach the minimum, or the maximum delay has
        passed."""
        if self._least is None:
            return True
        now_ms = self._clock.monotonic_ms()
        is_long_ago = self._last_ms is None or now_ms - self._last_ms >= self._most_ms
        if waiting < self._least and not is_long_ago:
            return False
        self._last_ms = now_ms
        return True
