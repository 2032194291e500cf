"""Whether a micro-batch is worth its while: options minOffsetsPerTrigger and maxTriggerDelay."""

from __future__ import annotations

from eosdb.model.clock import Clock, SystemClock


class Trigger:
    """Of one query. The first micro-batch does not wait, as in Kafka's connector."""

    def __init__(self, least: int | None, most_ms: int, clock: Clock | None = None) -> None:
        self._least = least
        self._most_ms = most_ms
        self._clock = clock or SystemClock()
        self._last_ms: int | None = None

    def is_due(self, waiting: int) -> bool:
        """Whether to read the offsets that wait: as many as asked for, or any after the longest delay."""
        if self._least is None:
            return True
        now_ms = self._clock.monotonic_ms()
        is_long_ago = self._last_ms is None or now_ms - self._last_ms >= self._most_ms
        if waiting < self._least and not is_long_ago:
            return False
        self._last_ms = now_ms
        return True
