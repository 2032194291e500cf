"""How far one connection has come in saying who it is, and what it costs to guess passwords."""

from __future__ import annotations

import threading
from typing import Final

from eosdb.errors import EosdbError, SaslAuthenticationFailedError
from eosdb.wire import sasl
from eosdb.wire.messages import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from eosdb.wire.parking import REAL_TIME

_BEFORE: Final = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
"""What anybody may ask."""
_PAUSE_MS: Final = 100
"""Kafka's connection.failed.authentication.delay.ms."""


class Refusals:
    """Those of one server are told one after another, whoever is refused: so many guesses there are in a
    second, over however many connections. Who knows a password does not wait for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told_ms = 0
        """When the last of those that wait is told."""
        self._is_closed = threading.Event()
        self.checking: Final = threading.Lock()
        """Held while a password is hashed: guessing takes no more than one processor."""

    def wait(self, asked_ms: int) -> None:
        """Until it is the turn of who asked at that time. As long for a user who does not exist as for one
        with another password, whose hash may take longer or shorter."""
        with self._lock:
            self._told_ms = told_ms = max(self._told_ms, asked_ms) + _PAUSE_MS
        self._is_closed.wait(max(0, told_ms - REAL_TIME.monotonic_ms()) / 1000)

    def close(self) -> None:
        """Nobody waits any more."""
        self._is_closed.set()


class Login:
    """Of one connection, used by its thread alone. A failed one is not tried again: the connection ends."""

    def __init__(
        self, users: sasl.Users, *, is_required: bool, refusals: Refusals | None = None
    ) -> None:
        self._users = users
        self._refusals = refusals or Refusals()
        self._is_required = is_required
        self._exchange: sasl.Exchange | None = None
        self.user: str | None = None
        """Who it is, once that is certain."""
        self.is_refused = False
        """The connection is to end as soon as the client has been told."""
        self.takes_tokens = False
        """Frames are the mechanism's own messages, as after a SaslHandshake of version 0."""

    @property
    def is_due(self) -> bool:
        """Whether nothing else may be asked yet."""
        return self._is_required and self.user is None

    @property
    def may_begin(self) -> bool:
        return self.user is None and self._exchange is None

    @property
    def has_begun(self) -> bool:
        return self._exchange is not None

    def may_ask(self, api_key: int) -> bool:
        return not self.is_due or api_key in _BEFORE

    def begin(self, mechanism: str, *, takes_tokens: bool) -> None:
        """With one of `sasl.MECHANISMS`."""
        self._exchange = sasl.begin(mechanism, self._users)
        self.takes_tokens = takes_tokens

    def refuse(self) -> None:
        self._exchange = None
        self.is_refused = True

    def step(self, token: bytes) -> bytes:
        """The answer to a message of the mechanism. Raises SaslAuthenticationFailedError, when it is its
        turn, and what keeps the file from being read; then, too, it is over."""
        assert self._exchange is not None
        asked_ms = REAL_TIME.monotonic_ms()
        try:
            with self._refusals.checking:
                return self._exchange.send(token)
        except StopIteration as end:
            answer, self.user = end.value
            self._exchange, self.takes_tokens = None, False
            assert isinstance(answer, bytes)
            return answer
        except EosdbError as error:
            self.refuse()
            if isinstance(error, SaslAuthenticationFailedError):
                self._refusals.wait(asked_ms)
            raise
