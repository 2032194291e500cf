"""A transport asks the broker for a client; tests replace it by an unreliable network.

`Transport.ask` carries out requests and returns one entry for each: its answer, or its error.
`DirectTransport` calls the broker in the same process. `eosdb.testing.FaultyTransport` loses, repeats and
delays calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from eosdb.client.answers import is_lost
from eosdb.errors import (
    DatabaseLockedError,
    EosdbError,
    RequestTimedOutError,
    inherit_doubt,
    is_refused_by_file,
)
from eosdb.model.clock import Clock
from eosdb.model.requests import AnyBroker, Produce, Request
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
        id (in the form that `with_owner` makes); None if no lock is available."""


# decisions/0097: a call returns with the answers; nothing is in flight.
class Transport(Protocol):
    """Carries requests to a broker; the interface that clients use."""

    @property
    def transaction_version(self) -> int:
        """The highest transaction version that the broker supports, as learned in the handshake."""

    def ask(
        self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
    ) -> list[Any]:
        """Carry out the requests in order, in one turn where the broker can. Returns for each its answer
        or its EosdbError. NetworkExceptionError means that the request was perhaps carried out.

        `sync` is whether a turn of several requests must be durable. After an interrupt, `fate` knows
        whether the turn was carried out.
        """


@runtime_checkable
class LocalBroker(AnyBroker, Protocol):
    """A broker in the same process."""

    def turn(
        self, requests: Sequence[Request[Any]], *, sync: bool, fate: Fate | None = None
    ) -> list[Any]:
        """Carry out several requests in one unit, or none of them. Raises the first error."""


class DirectTransport:
    """Calls the broker in the same process."""

    def __init__(self, broker: AnyBroker) -> None:
        self._broker = broker
        self._turns = broker if isinstance(broker, LocalBroker) else None

    @property
    def transaction_version(self) -> int:
        return self._broker.transaction_version

    def presence(self, transactional_id: str | None = None) -> Presence | None:
        return presence(self._broker, transactional_id)

    @property
    def joins(self) -> bool:
        """Whether several requests share one commit."""
        return self._turns is not None

    def ask(
        self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
    ) -> list[Any]:
        """Carry out the requests; see `Transport`. If their joint turn fails, each Produce is carried out
        by itself. The other requests of the turn need its records: they have the turn's error."""
        failed: EosdbError | None = None
        if len(requests) > 1 and self._turns is not None:
            try:
                done = self._turns.turn(requests, sync=sync, fate=fate)
                assert len(done) == len(requests), done
                return done
            except EosdbError as error:
                failed = error
        # After a lock time-out no request waits again.
        refused: EosdbError | None = failed if isinstance(failed, DatabaseLockedError) else None
        answers: list[Any] = []
        for request in requests:
            if refused is None and (failed is None or isinstance(request, Produce)):
                try:
                    answers.append(self._broker.ask(request))
                except EosdbError as error:
                    inherit_doubt(error, failed)
                    # decisions/0054: behind a request that the file refused, none is carried out.
                    refused = error if is_refused_by_file(error) else None
                    answers.append(error)
            else:
                assert refused is not None or failed is not None
                answers.append(refused or failed)
        return answers


def presence(way: object, transactional_id: str | None = None) -> Presence | None:
    """Return a presence from this transport or broker (see `IsPresent`); None if the broker may be in
    another process."""
    return way.presence(transactional_id) if isinstance(way, IsPresent) else None


def call(
    transport: Transport,
    clock: Clock,
    request: Request[T],
    *,
    retry_backoff_ms: int,
    timeout_ms: int,
) -> T:
    """Ask until there is an answer, and return it. The request must be safe to repeat: it is asked again
    for up to `timeout_ms`, and then RequestTimedOutError is raised. Errors from the broker are raised; they
    are in doubt if an earlier attempt got no answer."""
    deadline = clock.monotonic_ms() + timeout_ms
    lost: EosdbError | None = None
    while True:
        (answer,) = transport.ask((request,))
        if not isinstance(answer, EosdbError):
            return cast(T, answer)
        if not is_lost(answer):
            inherit_doubt(answer, lost)
            raise answer
        lost = answer
        if clock.monotonic_ms() >= deadline:
            raise RequestTimedOutError(f"{request.name}: no answer came within {timeout_ms} ms")
        clock.sleep_ms(retry_backoff_ms)
