"""How far one connection has come in saying who it is."""

from __future__ import annotations

from typing import Final

from eosdb.errors import EosdbError
from eosdb.wire import sasl
from eosdb.wire.messages import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE

_BEFORE: Final = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
"""What anybody may ask."""


class Login:
    """Of one connection, used by its thread alone. A failed one is not tried again: the connection ends."""

    def __init__(self, users: sasl.Users, *, is_required: bool) -> None:
        self._users = users
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
        """The answer to a message of the mechanism. Raises SaslAuthenticationFailedError, and what keeps
        the file from being read; then, too, it is over."""
        assert self._exchange is not None
        try:
            return self._exchange.send(token)
        except StopIteration as end:
            answer, self.user = end.value
            self._exchange, self.takes_tokens = None, False
            assert isinstance(answer, bytes)
            return answer
        except EosdbError:
            self.refuse()
            raise
