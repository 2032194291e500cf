"""The only module that reads the time.

Everything that depends on time takes a `Clock`. `SystemClock` uses `time.time`, so freezegun works;
`ManualClock` moves only when it is advanced. Times written by people are parsed here, too.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import index
from typing import Final, Protocol, TypeAlias, runtime_checkable

from eosdb.errors import InvalidTimestampError

real_ns: Final = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
"""Nanoseconds of the machine's own clock, to measure the disk even if a ManualClock is used. freezegun
replaces `time.monotonic` and `perf_counter`, but not this function: waits end."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INT64_MAX: Final = 2**63 - 1
_YEAR_2001_MS: Final = 978_307_200_000
DeliverAt: TypeAlias = int | datetime
"""A time in ms since the epoch, or a datetime with a time zone."""
_ISO_8601: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.,]\d{1,9})?)?(Z|[+-]\d{2}(:?\d{2})?)?)?", re.ASCII
)


@runtime_checkable
class Clock(Protocol):
    """The source of time, in milliseconds throughout."""

    def time_ms(self) -> int:
        """Milliseconds since the epoch (UTC)."""

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that never goes backwards; for timeouts and measurements."""

    def sleep_ms(self, ms: int) -> None:
        """Wait for `ms` milliseconds of this clock."""


class SystemClock:
    """The clock of the machine."""

    def time_ms(self) -> int:
        """Milliseconds since the epoch (UTC)."""
        return int(time.time() * 1000)

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that never goes backwards."""
        return real_ns() // 1_000_000

    def sleep_ms(self, ms: int) -> None:
        """Wait for `ms` milliseconds."""
        time.sleep(ms / 1000)


class ManualClock:
    """A clock for tests: it moves only by `advance`, and by the waits of the tested code."""

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = index(start_ms)
        self._lock = threading.Lock()

    def time_ms(self) -> int:
        """The clock's time, in milliseconds since the epoch."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """The same number as `time_ms`: this clock never goes backwards."""
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move the clock forward. Raises ValueError for a negative `ms`, TypeError unless it is whole."""
        if ms < 0:
            raise ValueError(f"a clock only moves forward, got {ms} ms")
        with self._lock:
            self._now_ms += index(ms)

    def sleep_ms(self, ms: int) -> None:
        """Advance the clock by `ms`, so that a wait needs no other thread."""
        self.advance(max(ms, 0))


def nanoseconds(clock: Clock) -> Callable[[], int]:
    """Return a function that returns the clock's time in ns, for measuring intervals. Only a SystemClock is
    more precise than 1 ms."""
    if isinstance(clock, SystemClock):
        return real_ns
    return lambda: clock.monotonic_ms() * 1_000_000


def monotonic_ns(clock: Clock) -> int:
    return nanoseconds(clock)()


def parse_time_ms(text: str) -> int:
    """Parse milliseconds since the epoch, or an ISO 8601 date or date and time. A time without a time zone
    is UTC, as in kafka-consumer-groups; fractions of a millisecond are dropped. Raises ValueError."""
    if re.fullmatch(r"[0-9]{1,19}", text) and int(text) <= _INT64_MAX:
        return int(text)
    if not _ISO_8601.fullmatch(text):
        raise ValueError(
            f"got {text!r}, expected milliseconds since 1970 or an ISO 8601 time such as 2026-11-21, "
            "2026-11-21T12:00, 2026-11-21T12:00:30.5Z or 2026-11-21T12:00+02:00"
        )
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a valid time: {error}") from None
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    if since < timedelta(0):
        raise ValueError(f"{text!r} is before 1970; expected a time in 1970 or later")
    return since // timedelta(milliseconds=1)


def due_ms(when: object, now_ms: int, name: str = "deliver_at") -> int:
    """Return `when` in ms since the epoch; it is a number of ms or an aware datetime. Raises
    InvalidTimestampError for other values, and for a number before 2001 while the clock is after it: it
    can only be seconds, or the length of a wait."""
    given, found = when, ""
    if isinstance(when, datetime) and when.tzinfo is not None:
        when = (when - _EPOCH) // timedelta(milliseconds=1)
    if type(when) is int and 0 <= when <= _INT64_MAX:
        if when is not given or not when < _YEAR_2001_MS <= now_ms:
            return when
        found = f" ({format_time_ms(when)}; are these seconds, or the length of a wait?)"
    raise InvalidTimestampError(
        f"{name}: got {given!r:.80}{found}, expected ms since the epoch, or a datetime with a time zone, "
        "such as datetime.now(UTC) + timedelta(hours=1)"
    )


def later_ms(deliver_at: DeliverAt | None, timestamp: int | None, now_ms: int) -> int | None:
    """Return when a record is due, in ms since the epoch; None if it enters its topic at once. Raises
    InvalidTimestampError as `due_ms`, and for a scheduled record with a timestamp."""
    if deliver_at is None:
        return None
    due = due_ms(deliver_at, now_ms)
    if timestamp is not None:
        raise InvalidTimestampError(
            f"timestamp: got {timestamp} with deliver_at; a scheduled record gets the time at which it "
            "enters its topic. Leave one of the two out, or put the timestamp into a header"
        )
    return due if due > now_ms else None


def format_time_ms(time_ms: int, timespec: str = "seconds") -> str:
    """Format a time in ISO 8601, UTC, to the second or to "milliseconds". A time beyond the year 9999 stays
    a number."""
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC) + timedelta(
            milliseconds=time_ms % 1000
        )
    except (OverflowError, ValueError, OSError):
        return f"{int(time_ms)} ms"
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")
