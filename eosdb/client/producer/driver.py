"""Runs a producer's sender in the thread of a waiting caller (inline), or in a background thread.

The thread serves `linger_ms`, and futures that must complete without `result()` (`asyncio.wrap_future`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from eosdb.client.background import Background
from eosdb.client.producer.accumulator import ProduceFuture, ProducerBatch
from eosdb.client.producer.sender import Sender
from eosdb.errors import EosdbError, IllegalStateError, RequestTimedOutError
from eosdb.model.clock import Clock
from eosdb.model.notices import catalog

_IDLE_MS: Final = 50
"""The longest sleep of the background thread."""
_NOTHING_TO_DO_MS: Final = 1_000
"""The longest sleep of the thread while no future is watched and no batch lingers."""

_MANY: Final = 1_000
_SOON_MS: Final = 10_000
"""Many records committed one by one within this time are reported as a slow loop."""


class Driver:
    """Runs the sender of one producer, always under the producer's lock."""

    def __init__(self, sender: Sender, clock: Clock, lock: threading.RLock) -> None:
        self.sender: Final = sender
        self.clock: Final = clock
        self._lock = lock
        self._starting = threading.Lock()
        self._background: Background | None = None
        self._is_stopped = False
        self._watched: deque[ProduceFuture] = deque()

    def step(self) -> int | None:
        """Run the sender once. Returns the ms until its next run is due."""
        return self.sender.run_once(self.clock.monotonic_ms())

    # decisions/0006: the producer needs no thread, because every caller that waits runs the sender.
    def until(
        self, done: Callable[[], bool], timeout_ms: int | None, on_timeout: Callable[[], EosdbError]
    ) -> None:
        """Run the sender until `done()`. After `timeout_ms`, raises the error that `on_timeout` returns.
        Raises IllegalStateError inside a delivery callback, which would wait for itself."""
        if self.sender.is_running and not done():
            raise IllegalStateError("a delivery callback must not wait for its own producer")
        deadline = None if timeout_ms is None else self.clock.monotonic_ms() + timeout_ms
        while not done():
            wait = self.step()
            if done():
                return
            now = self.clock.monotonic_ms()
            if deadline is not None and now >= deadline:
                raise on_timeout()
            if wait is None:
                raise IllegalStateError("the producer waits, but no answer is outstanding")
            if wait > 0:
                self.clock.sleep_ms(wait if deadline is None else min(wait, deadline - now))

    def flush(self, timeout_ms: int | None) -> None:
        """Send all waiting batches, and wait for the responses. Raises RequestTimedOutError."""
        self.flush_until(
            lambda: not self.sender.has_unanswered(),
            timeout_ms,
            lambda: timed_out("flush", timeout_ms),
        )

    def flush_until(
        self, done: Callable[[], bool], timeout_ms: int | None, on_timeout: Callable[[], EosdbError]
    ) -> None:
        """Like `until`, but also send batches that are not full."""
        self.sender.is_flushing = True
        try:
            self.until(done, timeout_ms, on_timeout)
        finally:
            self.sender.is_flushing = False

    def until_answered(self, batch: ProducerBatch, timeout: float | None) -> None:
        """Run the sender until the batch is completed; called by a future's `result`."""
        with self._lock:
            limit = None if timeout is None else int(timeout * 1000)
            self.flush_until(lambda: batch.done, limit, lambda: timed_out("result", limit))

    def watch(self, future: ProduceFuture) -> None:
        """Have the background thread send batches until the future is done. Waits for no request."""
        self._watched.append(future)
        self.start()
        if (background := self._background) is not None:
            background.wake()

    def start(self) -> None:
        """Start the background thread if it is not running; it ends with the producer."""
        if self._background is not None:
            return
        with self._starting:
            if self._background is None and not self._is_stopped:
                name = f"eosdb-sender-{self.sender.settings.client_id or 'producer'}"
                self._background = Background(name, self._background_step)

    def stop(self) -> None:
        """End the background thread; the caller must not hold the lock."""
        with self._starting:
            background, self._is_stopped = self._background, True
        if background is not None:
            background.stop()
            self._background = None

    def _background_step(self) -> int:
        watched, linger_ms = self._watched, self.sender.settings.linger_ms
        while watched and watched[0].done():
            watched.popleft().settle()
        if not (watched or linger_ms):
            return _NOTHING_TO_DO_MS
        with self._lock:
            try:
                wait = self.step()
            except Exception as error:  # Futures have their errors; the thread continues.
                catalog.CALLBACK_FAILED.say(trace=error)
                wait = 0
        idle_ms = min(linger_ms or _IDLE_MS, _IDLE_MS)
        return idle_ms if wait is None else max(1, min(wait, idle_ms))


class SingleSends:
    """Detects a loop that commits every record separately, and logs once that there are faster ways."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._since_ms = clock.monotonic_ms()
        self._is_said = False

    def add(self) -> None:
        self._count += 1
        if self._count < _MANY or self._is_said:
            return
        now = self._clock.monotonic_ms()
        took = now - self._since_ms
        self._count, self._since_ms = 0, now
        if took < _SOON_MS:
            self._is_said = True
            catalog.SINGLE_SENDS.say(records=_MANY, took_ms=took)


def timed_out(what: str, timeout_ms: int | None) -> RequestTimedOutError:
    return RequestTimedOutError(f"{what}: not done within {timeout_ms} ms; it may be called again")
