"""Counters, averages and rates under Kafka's names, cheap enough for every request.

A rate is the count in the current and the previous window of 30 s, divided by the time since the previous
one began (as in Kafka's SampledStat).
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from eosdb.errors import ApiError, EosdbError
from eosdb.model.clock import Clock, nanoseconds

_WINDOW_MS: Final = 30_000
_NONE: Final[Mapping[str, float]] = {}


class Metrics:
    """The metrics of one producer, consumer or database. Threads may share it."""

    def __init__(self, clock: Clock, rates: tuple[str, ...] = ()) -> None:
        self._clock = clock
        self._rates = rates
        self._lock = threading.Lock()
        self._totals: defaultdict[str, int] = defaultdict(int)
        self._sums: dict[str, tuple[int, float, float]] = {}
        self._errors: Counter[str] = Counter()
        self._window_start = clock.monotonic_ms()
        self._before: dict[str, int] = {}
        self._at_start: dict[str, int] = {}
        self._before_start = self._window_start
        self.now_ns: Final = nanoseconds(clock)

    def count(self, name: str, amount: int = 1) -> None:
        """Increase the counter `name`-total."""
        assert amount >= 0, amount
        with self._lock:
            self._totals[name] += amount

    def record(self, counts: Mapping[str, int], values: Mapping[str, float] = _NONE) -> None:
        """Update several counters and observed values at once."""
        with self._lock:
            for name, amount in counts.items():
                self._totals[name] += amount
            for name, value in values.items():
                count, total, most = self._sums.get(name, (0, 0, value))
                self._sums[name] = count + 1, total + value, most if most > value else value

    def observe(self, name: str, value: float, counter: str = "", amount: int = 0) -> None:
        """Record one value in `name`-avg and `name`-max, and perhaps increase a counter."""
        with self._lock:
            if amount:
                self._totals[counter] += amount
            count, total, most = self._sums.get(name, (0, 0, value))
            self._sums[name] = count + 1, total + value, most if most > value else value

    def took(self, count: str, time: str, started_ns: int) -> None:
        """Increase the counter `count` by 1, and the counter `time` by the ns since `started_ns`."""
        elapsed = self.now_ns() - started_ns
        with self._lock:
            self._totals[count] += 1
            self._totals[time] += elapsed

    def error(self, error: EosdbError) -> None:
        """Count an error under its name."""
        name = error.name if isinstance(error, ApiError) else type(error).__name__
        with self._lock:
            self._errors[name] += 1

    def snapshot(self) -> dict[str, float]:
        """Every metric by its name."""
        with self._lock:
            self._roll()
            figures: dict[str, float] = {f"{n}-total": v for n, v in sorted(self._totals.items())}
            elapsed = max(self._clock.monotonic_ms() - self._before_start, 1) / 1000
            for name in self._rates:
                since = self._totals[name] - self._before.get(name, 0)
                figures[f"{name}-rate"] = since / elapsed
            for name, (count, total, most) in sorted(self._sums.items()):
                figures[f"{name}-avg"] = total / count
                figures[f"{name}-max"] = most
            figures |= {f"errors-total:{n}": v for n, v in sorted(self._errors.items())}
            return figures

    def _roll(self) -> None:
        """Start a new window if the current one is full, keeping the previous one."""
        now = self._clock.monotonic_ms()
        if now - self._window_start < _WINDOW_MS:
            return
        self._before, self._before_start = self._at_start, self._window_start
        self._at_start = {name: self._totals[name] for name in self._rates}
        self._window_start = now
