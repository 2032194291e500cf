"""How a client's requests reach the broker: the seam where a network, or a bad one, can be put in.

A client hands a request to a `Transport` and gets an `Exchange`, which may have its answer at once,
later, or never. `DirectTransport` calls the broker in the same process, so its answers are always
there; `eosdb.testing.FaultyTransport` does what a bad network does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Generic, Protocol, TypeVar, runtime_checkable

from eosdb.client.answers import is_lost
from eosdb.client.requests import BrokerRequests as BrokerRequests  # Programs import it from here.
from eosdb.client.requests import IsPresent, Presence
from eosdb.errors import EosdbError, RequestTimedOutError, is_refused_by_file
from eosdb.model.clock import Clock

T = TypeVar("T")
U = TypeVar("U")


Request = Callable[[BrokerRequests], T]


class Exchange(Generic[T]):
    """A request that was sent, and its answer once that has come."""

    __slots__ = ("_answer", "done", "error", "name")

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.done = False
        self.error: EosdbError | None = None
        self._answer: T | None = None

    def carry_out(self, request: Request[T], broker: BrokerRequests) -> None:
        """Have the broker answer. Any exception other than EosdbError is a bug in the caller."""
        try:
            self._answer = request(broker)
        except EosdbError as error:
            self.error = error
        self.done = True

    def fail(self, error: EosdbError) -> None:
        """Complete the exchange with an error: no answer will come."""
        self.error = error
        self.done = True

    def reopen(self) -> None:
        """Discard the answer, which was rolled back; the request will be sent again."""
        self.error, self.done = None, False

    def follow(self, other: Exchange[T]) -> None:
        """Copy the answer of another, completed exchange."""
        self._answer, self.error, self.done = other._answer, other.error, True

    @property
    def answer(self) -> T:
        """The answer; call it only when there is one."""
        if self.error is not None:
            raise self.error
        assert self.done
        return self._answer  # type: ignore[return-value]


@runtime_checkable
class Transport(Protocol):
    """What a client needs from a connection."""

    @property
    def transaction_version(self) -> int:
        """The highest transaction version that the broker supports, as learned in the handshake."""

    def submit(self, name: str, request: Request[T]) -> Exchange[T]:
        """Send a request. `name` is Kafka's in snake_case, such as `end_txn`."""

    def poll(self) -> int | None:
        """Deliver what has arrived. Returns the ms until more arrives; None if nothing is expected."""


class SharedTurn(Protocol):
    """A turn in which requests share a commit."""

    @property
    def stands(self) -> bool:
        """Whether the first requests have been committed, regardless of the rest."""


@runtime_checkable
class SharesCommits(Protocol):
    """A broker in the same process, whose requests can share a commit."""

    def together(self, *, sync: bool) -> AbstractContextManager[SharedTurn]: ...


class DirectTransport:
    """Calls the broker in the same process; an answer is there when `submit` returns."""

    def __init__(self, broker: BrokerRequests) -> None:
        self._broker = broker
        self._sharing = broker if isinstance(broker, SharesCommits) else None

    @property
    def transaction_version(self) -> int:
        return self._broker.transaction_version

    def submit(self, name: str, request: Request[T]) -> Exchange[T]:
        exchange: Exchange[T] = Exchange(name)
        exchange.carry_out(request, self._broker)
        return exchange

    def presence(self, transactional_id: str | None = None) -> Presence | None:
        """See `IsPresent`."""
        return presence(self._broker, transactional_id)

    def submit_all(
        self, name: str, requests: Sequence[Request[T]], *, sync: bool
    ) -> list[Exchange[T]]:
        """Submit several requests at once: carried out in this order, and in one commit if the broker
        supports that."""
        if len(requests) == 1 or self._sharing is None:
            return self._in_order(name, requests)
        try:
            with self._sharing.together(sync=sync):
                return self._in_order(name, requests)
        except EosdbError:
            # The shared commit failed as a whole; on its own, each request gets its own answer.
            return self._in_order(name, requests)

    # decisions/0054: what stands behind a refusal by the file must not be stored before it.
    def _in_order(self, name: str, requests: Sequence[Request[T]]) -> list[Exchange[T]]:
        """Submit one after another. Behind one that the file refuses none is carried out: they have its
        error."""
        exchanges: list[Exchange[T]] = []
        for request in requests:
            error = exchanges[-1].error if exchanges else None
            if error is not None and is_refused_by_file(error):
                exchanges.append(Exchange(name))
                exchanges[-1].fail(error)
            else:
                exchanges.append(self.submit(name, request))
        return exchanges

    def submit_before(
        self,
        name: str,
        requests: Sequence[Request[T]],
        exchanges: list[Exchange[T]],
        succeeded: Callable[[T], bool],
        last: Request[U],
        answered: Exchange[U],
        *,
        sync: bool,
    ) -> None:
        """Like `submit_all`, with the answers in `exchanges`. If all succeed, `last` is carried out in the
        same turn and answered in `answered`, which otherwise stays open. After an interrupt they hold what
        was done, that of `last` if it has been committed, too."""
        if self._sharing is None:
            exchanges += self._in_order(name, requests)
            return
        turn: SharedTurn | None = None
        try:
            with self._sharing.together(sync=sync) as turn:
                exchanges += self._in_order(name, requests)
                if all(e.error is None and succeeded(e.answer) for e in exchanges):
                    answered.carry_out(last, self._broker)
        except BaseException as error:
            # Committed with what `last` decided, whether or not that could be completed.
            stands = turn is not None and turn.stands
            if not stands:
                exchanges.clear()
            if not isinstance(error, EosdbError):
                if stands and not answered.done:
                    answered.carry_out(last, self._broker)  # Said again, it has the same answer.
                raise
            if stands:
                if not answered.done:
                    answered.fail(error)
                return
            answered.reopen()
            exchanges += self._in_order(name, requests)

    def poll(self) -> int | None:
        return None


def presence(way: object, transactional_id: str | None = None) -> Presence | None:
    """A presence by way of this transport or broker (see `IsPresent`); None if it may be in another
    process than the one that has the file open."""
    return way.presence(transactional_id) if isinstance(way, IsPresent) else None


def as_transport(given: Transport | BrokerRequests) -> Transport:
    """Return a transport unchanged; call anything else that answers the broker's requests directly."""
    return given if isinstance(given, Transport) else DirectTransport(given)


def call(
    transport: Transport,
    clock: Clock,
    name: str,
    request: Request[T],
    *,
    request_timeout_ms: int,
    retry_backoff_ms: int,
    timeout_ms: int,
) -> T:
    """Send a request that is safe to repeat, until it is answered.

    Retried for `timeout_ms` when the request or its answer is lost; errors from the broker are raised
    unchanged. Raises RequestTimedOutError.
    """
    deadline = clock.monotonic_ms() + timeout_ms
    while True:
        exchange = transport.submit(name, request)
        given_up = clock.monotonic_ms() + request_timeout_ms
        while not exchange.done and (now := clock.monotonic_ms()) < min(given_up, deadline):
            wait = transport.poll()
            if not exchange.done:
                until = min(given_up, deadline) - now
                clock.sleep_ms(until if wait is None else max(1, min(wait, until)))
        if exchange.done and not is_lost(exchange.error):
            return exchange.answer
        if clock.monotonic_ms() >= deadline:
            raise RequestTimedOutError(f"{name}: no answer came within {timeout_ms} ms")
        clock.sleep_ms(retry_backoff_ms)
