"""Transports carry a client's requests to the broker; tests replace them by an unreliable network.

A client submits a request to a `Transport` and gets an `Exchange`, whose response may be there at once,
arrive later, or never. `DirectTransport` calls the broker in the same process, so its responses are there
at once. `eosdb.testing.FaultyTransport` loses, delays and repeats requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, runtime_checkable

from eosdb.client.answers import is_lost
from eosdb.errors import (
    DatabaseLockedError,
    EosdbError,
    RequestTimedOutError,
    inherit_doubt,
    is_refused_by_file,
)
from eosdb.model.clock import Clock
from eosdb.model.requests import AnyBroker, Request
from eosdb.model.threads import Fate

T = TypeVar("T")


class Presence(Protocol):
    """A kernel lock that shows that the process of a group member is alive."""

    @property
    def number(self) -> int:
        """The number of the lock, which the member sends when it joins."""

    def look(self) -> None:
        """Remove members of dead processes from their groups. Cheap, and may be called often."""

    def end(self) -> None:
        """Release the lock: the member has left."""


@runtime_checkable
class IsPresent(Protocol):
    """A broker, or a transport to one, in a process that has the file open."""

    def presence(self, transactional_id: str | None = None) -> Presence | None:
        """Return a new presence, for a member that is about to join or for the owner of a transactional
        id (`owned_ids`); None if no lock is available."""


class Exchange(Generic[T]):
    """The response to a request that was sent, once it has arrived."""

    __slots__ = ("_answer", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: EosdbError | None = None
        self._answer: T | None = None

    def carry_out(self, request: Request[T], broker: AnyBroker) -> None:
        """Ask the broker, and keep its response or error. Any exception but EosdbError is a bug in the
        caller."""
        try:
            self._answer = broker.ask(request)
        except EosdbError as error:
            self.error = error
        self.done = True

    def fail(self, error: EosdbError) -> None:
        """Complete the exchange with an error: no response will arrive."""
        self.error = error
        self.done = True

    def succeed(self, answer: T) -> None:
        """Complete the exchange with the response."""
        self._answer, self.done = answer, True

    def follow(self, other: Exchange[T]) -> None:
        self._answer, self.error, self.done = other._answer, other.error, True

    @property
    def has_answer(self) -> bool:
        """Whether a response without an error has arrived."""
        return self.done and self.error is None

    @property
    def answer(self) -> T:
        """The response of a completed exchange. Raises the error of a failed one."""
        if self.error is not None:
            raise self.error
        assert self.done
        return self._answer  # type: ignore[return-value]


@runtime_checkable
class Transport(Protocol):
    """Carries requests to a broker; the interface that clients use."""

    @property
    def transaction_version(self) -> int:
        """The highest transaction version that the broker supports, as learned in the handshake."""

    def submit(self, request: Request[T]) -> Exchange[T]:
        """Send a request."""

    def poll(self) -> int | None:
        """Deliver the responses that have arrived. Returns the ms until the next is due; None if none is
        expected."""


@runtime_checkable
class CarriesOutTurns(Protocol):
    """A broker in the same process, which carries out several requests in one unit, or none of them."""

    def turn(
        self, requests: Sequence[Request[Any]], *, sync: bool, fate: Fate | None = None
    ) -> list[Any]: ...


class DirectTransport:
    """Calls the broker in the same process; the response is there when `submit` returns."""

    def __init__(self, broker: AnyBroker) -> None:
        self._broker = broker
        self.turns: Final = broker if isinstance(broker, CarriesOutTurns) else None

    @property
    def transaction_version(self) -> int:
        return self._broker.transaction_version

    def submit(self, request: Request[T]) -> Exchange[T]:
        exchange: Exchange[T] = Exchange()  # `Exchange[T]()` would cost a microsecond.
        exchange.carry_out(request, self._broker)
        return exchange

    def presence(self, transactional_id: str | None = None) -> Presence | None:
        return presence(self._broker, transactional_id)

    def submit_all(self, requests: Sequence[Request[T]], *, sync: bool) -> list[Exchange[T]]:
        """Submit several requests at once. They are carried out in order, in one commit if the broker
        supports that."""
        if len(requests) == 1 or self.turns is None:
            return self.in_order(requests)
        try:
            answers = self.turns.turn(requests, sync=sync)
        except EosdbError as error:
            return self.in_order(requests, error)
        exchanges: list[Exchange[T]] = [Exchange() for _ in answers]
        for exchange, answer in zip(exchanges, answers, strict=True):
            exchange.succeed(answer)
        return exchanges

    # decisions/0054: after the file refused a request, later ones must wait until that one is repeated.
    def in_order(
        self, requests: Sequence[Request[T]], before: EosdbError | None = None
    ) -> list[Exchange[T]]:
        """Submit one request after another. Once the file refuses a request, the rest fail with its error
        and are not executed. `before` is the error of an earlier joint turn: if it is in doubt, so are the
        errors of the requests, and after a lock time-out no request waits again."""
        exchanges: list[Exchange[T]] = []
        error: EosdbError | None = before if isinstance(before, DatabaseLockedError) else None
        for request in requests:
            if error is not None and is_refused_by_file(error):
                exchanges.append(Exchange())
                exchanges[-1].fail(error)
            else:
                exchanges.append(self.submit(request))
                error = exchanges[-1].error
                inherit_doubt(error, before)
        return exchanges

    def poll(self) -> int | None:
        return None


def presence(way: object, transactional_id: str | None = None) -> Presence | None:
    """Return a presence from this transport or broker (see `IsPresent`); None if the broker may be in
    another process."""
    return way.presence(transactional_id) if isinstance(way, IsPresent) else None


def call(
    transport: Transport,
    clock: Clock,
    request: Request[T],
    *,
    request_timeout_ms: int,
    retry_backoff_ms: int,
    timeout_ms: int,
) -> T:
    """Send a request until its response arrives, and return the response. The request must be safe to
    repeat: it is sent again for up to `timeout_ms`, and then RequestTimedOutError is raised.
    Errors from the broker are raised; they are in doubt if an earlier attempt got no answer."""
    deadline = clock.monotonic_ms() + timeout_ms
    lost: EosdbError | None = None
    while True:
        exchange = transport.submit(request)
        given_up = clock.monotonic_ms() + request_timeout_ms
        while not exchange.done and (now := clock.monotonic_ms()) < min(given_up, deadline):
            wait = transport.poll()
            if not exchange.done:
                until = min(given_up, deadline) - now
                clock.sleep_ms(until if wait is None else max(1, min(wait, until)))
        if exchange.done and not is_lost(exchange.error):
            inherit_doubt(exchange.error, lost)
            return exchange.answer
        lost = exchange.error or RequestTimedOutError(request.name)
        if clock.monotonic_ms() >= deadline:
            raise RequestTimedOutError(f"{request.name}: no answer came within {timeout_ms} ms")
        clock.sleep_ms(retry_backoff_ms)
