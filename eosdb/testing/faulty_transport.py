"""A transport that behaves like a bad network, driven by a seed.

Whole calls are lost, repeated and delayed. Time passes on the broker's clock, so with a `ManualClock` a
seed repeats a run exactly.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections import Counter, deque
from collections.abc import Collection, Sequence
from typing import Any, Final

from eosdb.client.transport import DirectTransport, Presence
from eosdb.errors import ConfigError, EosdbError, NetworkExceptionError
from eosdb.model.clock import Clock, SystemClock
from eosdb.model.requests import AnyBroker, Request
from eosdb.model.threads import Fate

_SHORTEST_HOLD_MS: Final = 10
_REMEMBERED: Final = 1_000


class FaultyTransport:
    """A bad network between a client and the broker. Threads may share it.

    `lose_request`, `lose_response`, `duplicate` and `reorder` are probabilities per call; `delay_ms` is the
    shortest and longest time of each direction. A call that is reordered arrives late, behind later ones;
    its client sees it as lost, like every call that takes longer than `request_timeout_ms`. The client
    notices the fraction `silent` of the losses only then; the others break the connection at once. Every
    loss is a NETWORK_EXCEPTION. `only` names the requests that faults apply to (Kafka's names in
    snake_case); None for all. Raises ConfigError.
    """

    request_timeout_ms: int = 30_000
    """How long a client waits for an answer, in ms. It may be set before the first call."""

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
        self._direct = DirectTransport(broker)
        self._rng = random.Random(seed)
        self._chances = chances
        self._delay_ms = delay_ms
        self._hold_ms = max(_SHORTEST_HOLD_MS, 2 * high)
        self._only = None if only is None else frozenset(only)
        self._clock: Clock = clock or getattr(broker, "clock", None) or SystemClock()
        self._lock = threading.RLock()
        self._late: list[tuple[int, int, Sequence[Request[Any]], str]] = []
        """The calls that arrive later: when, a number, the requests, and a name for the history."""
        self._numbers = 0
        self.counts: Final[Counter[str]] = Counter()
        """Counts of calls and faults: `request`, `lose_request`, `duplicate`, …"""
        self.history: Final[deque[str]] = deque(maxlen=_REMEMBERED)
        """The most recent events, one line each."""

    @property
    def transaction_version(self) -> int:
        """The transaction version of the broker."""
        return self._direct.transaction_version

    def presence(self, transactional_id: str | None = None) -> Presence | None:
        """The broker's presence, because no network lies between a process and its own locks."""
        return self._direct.presence(transactional_id)

    def ask(
        self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
    ) -> list[Any]:
        """Make a call; see `eosdb.client.transport.Transport`. It takes its time on the clock."""
        with self._lock:
            self._numbers += 1
            label = f"{'+'.join(request.name for request in requests)} #{self._numbers}"
            # Draw all random numbers now, so that a fault of one call does not change those of others.
            happens = {fault: self._rng.random() < p for fault, p in self._chances.items()}
            there, back = self._way(), self._way()
            held_ms = self._way() + self._rng.randint(1, self._hold_ms)
            if self._only is not None and self._only.isdisjoint(r.name for r in requests):
                happens, there, back = dict.fromkeys(happens, False), 0, 0
            self.counts["request"] += 1
            if happens["duplicate"]:
                self.counts["duplicate"] += 1
                self._arrive_later(requests, there + held_ms, f"{label} again")
            if happens["reorder"]:
                self.counts["reorder"] += 1
                self._arrive_later(requests, there + held_ms, f"{label} late")
            elif there > self.request_timeout_ms:
                self._arrive_later(requests, there, f"{label} late")
        for what in ("lose_request", "reorder"):
            if happens[what]:
                return self._lost(requests, label, what, there, happens["silent"])
        if there > self.request_timeout_ms:
            return self._lost(requests, label, "late", there, True)
        self._sleep(there)
        with self._lock:
            answers = self._carry_out(requests, label)
        if happens["lose_response"] or there + back > self.request_timeout_ms:
            silent = happens["silent"] or not happens["lose_response"]
            return self._lost(requests, label, "lose_response", back, silent)
        self._sleep(back)
        return answers

    def deliver_due(self) -> None:
        """Carry out the late calls that are due."""
        with self._lock:
            while self._late and self._late[0][0] <= self._clock.monotonic_ms():
                self._carry_out(*heapq.heappop(self._late)[2:])

    def deliver_all(self) -> int:
        """Carry out every late call now. Returns their number."""
        with self._lock:
            count = len(self._late)
            while self._late:
                self._carry_out(*heapq.heappop(self._late)[2:])
            return count

    def _way(self) -> int:
        """The time of one direction."""
        return self._rng.randint(*self._delay_ms)

    def _sleep(self, ms: int) -> None:
        """Let time pass, in which late calls arrive."""
        if ms:
            self._clock.sleep_ms(ms)
        self.deliver_due()

    def _arrive_later(self, requests: Sequence[Request[Any]], ms: int, label: str) -> None:
        self._numbers += 1
        at = self._clock.monotonic_ms() + ms
        heapq.heappush(self._late, (at, self._numbers, tuple(requests), label))

    def _lost(
        self, requests: Sequence[Request[Any]], label: str, what: str, ms: int, silent: bool
    ) -> list[Any]:
        """The client's side of a loss, which it notices after `ms`, or if it is silent by the time-out."""
        with self._lock:
            self.counts[what] += what != "reorder"
            self.counts["silent"] += silent
            self._note(f"{label}: {what}")
        self._sleep(self.request_timeout_ms if silent else ms)
        error = NetworkExceptionError(f"{label}: the connection broke ({what})")
        return [error for _ in requests]

    def _carry_out(self, requests: Sequence[Request[Any]], label: str) -> list[Any]:
        answers = self._direct.ask(requests)
        errors = [type(answer).__name__ for answer in answers if isinstance(answer, EosdbError)]
        self._note(f"{label}: {', '.join(errors) or 'done'}")
        return answers

    def _note(self, line: str) -> None:
        self.history.append(f"{self._clock.monotonic_ms()} ms: {line}")
