"""A transport that behaves like a bad network, driven by a seed.

Requests and responses are lost, duplicated, delayed and reordered. Messages in flight are delivered when
they are due on the broker's clock and a client polls, so with a `ManualClock` a seed repeats a run exactly.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import Final, TypeVar

from eosdb.client.transport import Exchange, Presence, presence
from eosdb.errors import ConfigError, NetworkExceptionError
from eosdb.model.clock import Clock, SystemClock
from eosdb.model.requests import AnyBroker, Request

T = TypeVar("T")

_SHORTEST_HOLD_MS: Final = 10
_REMEMBERED: Final = 1_000


class FaultyTransport:
    """A bad network between a client and the broker. Threads may share it.

    `lose_request`, `lose_response`, `duplicate` and `reorder` are probabilities per request; `delay_ms` is
    the shortest and longest time of each direction. The fraction `silent` of the losses is not noticed by
    the client, which must wait for its request_timeout_ms; the other losses break the connection, which the
    client sees as NETWORK_EXCEPTION. `only` names the requests that faults apply to (Kafka's names in
    snake_case); None for all. Raises ConfigError.
    """

    def __init__(
        self,
        broker: AnyBroker,
        seed: int = 0,
        *,
        lose_request: float = 0.0,
        lose_response: float = 0.0,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        delay_ms: tuple[int, int] = (0, 0),
        silent: float = 0.0,
        only: Collection[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        chances = {
            "lose_request": lose_request,
            "lose_response": lose_response,
            "duplicate": duplicate,
            "reorder": reorder,
            "silent": silent,
        }
        for name, chance in chances.items():
            if not isinstance(chance, (int, float)) or not 0 <= chance <= 1:
                raise ConfigError(f"{name}: got {chance!r}, expected a probability from 0 to 1")
        low, high = delay_ms
        if not 0 <= low <= high:
            raise ConfigError(f"delay_ms: got {delay_ms!r}, expected (shortest, longest) in ms")
        self._broker = broker
        self._rng = random.Random(seed)
        self._chances = chances
        self._delay_ms = delay_ms
        self._hold_ms = max(_SHORTEST_HOLD_MS, 2 * high)
        self._only = None if only is None else frozenset(only)
        broker_clock: Clock = getattr(broker, "clock", None) or SystemClock()
        self._clock = clock or broker_clock
        self._lock = threading.RLock()
        self._on_the_way: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = 0
        self.counts: Final[Counter[str]] = Counter()
        """Counts of requests and faults: `request`, `lose_request`, `duplicate`, …"""
        self.history: Final[deque[str]] = deque(maxlen=_REMEMBERED)
        """The most recent events, one line each."""

    @property
    def transaction_version(self) -> int:
        """The transaction version of the broker."""
        return self._broker.transaction_version

    def submit(self, request: Request[T]) -> Exchange[T]:
        """Submit a request; see `eosdb.client.transport.Transport`."""
        with self._lock:
            exchange, name = Exchange[T](), request.name
            self._numbers += 1
            label = f"{name} #{self._numbers}"
            # Draw all random numbers now, so that a fault of one request does not change those of others.
            happens = {fault: self._rng.random() < p for fault, p in self._chances.items()}
            there, back, again = self._way(happens["reorder"]), self._way(False), self._way(True)
            if self._only is not None and name not in self._only:
                happens, there, back = dict.fromkeys(happens, False), 0, 0
            self.counts["request"] += 1
            self.counts["reorder"] += happens["reorder"]
            if happens["lose_request"]:
                self._lose(exchange, label, "lose_request", there, happens["silent"])
            else:
                self._after(there, lambda: self._arrive(exchange, request, label, happens, back))
            if happens["duplicate"]:
                self.counts["duplicate"] += 1
                self._after(there + again, lambda: self._carry_out(request, f"{label} again"))
            self._deliver_due()
            return exchange

    def presence(self, transactional_id: str | None = None) -> Presence | None:
        """The broker's presence, because no network lies between a process and its own locks."""
        return presence(self._broker, transactional_id)

    def poll(self) -> int | None:
        """Deliver the messages that have arrived. Returns the ms until the next arrival; None if nothing is
        in flight."""
        with self._lock:
            self._deliver_due()
            if not self._on_the_way:
                return None
            return max(1, self._on_the_way[0][0] - self._clock.monotonic_ms())

    def deliver_all(self) -> int:
        """Deliver every message in flight, however late. Returns the number of arrivals."""
        with self._lock:
            count = 0
            while self._on_the_way:
                heapq.heappop(self._on_the_way)[2]()
                count += 1
            return count

    def _way(self, held_up: bool) -> int:
        extra = self._rng.randint(1, self._hold_ms)
        return self._rng.randint(*self._delay_ms) + (extra if held_up else 0)

    def _arrive(
        self,
        exchange: Exchange[T],
        request: Request[T],
        label: str,
        happens: dict[str, bool],
        back_ms: int,
    ) -> None:
        answered = self._carry_out(request, label)
        if happens["lose_response"]:
            self._lose(exchange, label, "lose_response", back_ms, happens["silent"])
        else:
            self._after(back_ms, lambda: None if exchange.done else exchange.follow(answered))

    def _carry_out(self, request: Request[T], label: str) -> Exchange[T]:
        answered = Exchange[T]()
        answered.carry_out(request, self._broker)
        outcome = "done" if answered.error is None else type(answered.error).__name__
        self._note(f"{label}: {outcome}")
        return answered

    def _lose(
        self, exchange: Exchange[T], label: str, what: str, after_ms: int, silent: bool
    ) -> None:
        self.counts[what] += 1
        self._note(f"{label}: {what}")
        if silent:
            self.counts["silent"] += 1
            return

        def fail() -> None:
            if not exchange.done:
                exchange.fail(NetworkExceptionError(f"{label}: the connection broke ({what})"))

        self._after(after_ms, fail)

    def _after(self, ms: int, action: Callable[[], object]) -> None:
        self._numbers += 1
        heapq.heappush(self._on_the_way, (self._clock.monotonic_ms() + ms, self._numbers, action))

    def _deliver_due(self) -> None:
        now = self._clock.monotonic_ms()
        while self._on_the_way and self._on_the_way[0][0] <= now:
            heapq.heappop(self._on_the_way)[2]()

    def _note(self, line: str) -> None:
        self.history.append(f"{self._clock.monotonic_ms()} ms: {line}")
