"""Logging in: the server side of SASL, SCRAM (RFC 5802) and PLAIN (RFC 4616), and a limit on guessing.

A mechanism is a generator: it receives the client's messages, yields the responses, and returns the last
response and the user. A failure does not show its reason: an unknown user gets the same response as a
wrong password.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
import threading
from collections.abc import Callable, Generator
from typing import Final

from eosdb.errors import EosdbError, SaslAuthenticationFailedError
from eosdb.model.clock import Clock
from eosdb.model.protocol import scram
from eosdb.model.protocol.scram import ScramCredential
from eosdb.wire.messages import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from eosdb.wire.parking import REAL_TIME

PLAIN: Final = "PLAIN"
# decisions/0030: PLAIN sends the password, but without TLS a server listens only at loopback.
MECHANISMS: Final = (*scram.MECHANISMS, PLAIN)
Find = Callable[[str, str], ScramCredential | None]
"""Looks up a user's credential for a mechanism."""
Exchange = Generator[bytes, bytes, tuple[bytes, str]]

_FIRST: Final = re.compile(
    r"(?P<header>[ny],(?:a=(?P<acting>[^,]+))?,)"
    r"(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?)",
    re.DOTALL,
)
_LAST: Final = re.compile(
    r"(?P<content>c=(?P<header>[^,]+),r=(?P<nonce>[^,]+)(?:,.*)?),p=(?P<proof>[^,]+)", re.DOTALL
)
_NAME: Final = re.compile(r"(?:[^=]|=2C|=3D)+", re.DOTALL)


class Users:
    """The users' credentials. An unknown user gets a credential that no password matches."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._secret = secrets.token_bytes(32)

    def credential(self, user: str, *mechanisms: str) -> ScramCredential:
        """The user's credential for the first of the mechanisms that has one."""
        for mechanism in mechanisms:
            if (stored := self._find(user, mechanism)) is not None:
                return stored
        return self._of_nobody(user, mechanisms[0])

    def _of_nobody(self, user: str, mechanism: str) -> ScramCredential:
        """A credential that no password matches, with the same salt at each attempt, like a real one."""
        of = f"{mechanism} {user}".encode()
        salt = hmac.digest(self._secret, of, "sha256")[: scram.SALT_BYTES]
        nothing = secrets.token_bytes(32)
        return scram.credential(user, mechanism, scram.ITERATIONS_MAX, salt, nothing)


def begin(mechanism: str, users: Users, before: tuple[str, str] | None = None) -> Exchange:
    """Start a mechanism. For a renewed login, `before` has its former mechanism and user. The generator
    raises SaslAuthenticationFailedError."""
    exchange = _plain(users) if mechanism == PLAIN else _scram(mechanism, users)
    if before is not None:
        exchange = _again(exchange, mechanism, *before)
    next(exchange)
    return exchange


def _again(exchange: Exchange, mechanism: str, mechanism_before: str, user_before: str) -> Exchange:
    """Re-authenticate, with Kafka's errors if the mechanism or the user has changed."""
    if mechanism != mechanism_before:
        yield b""
        raise SaslAuthenticationFailedError(
            f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of "
            f"mechanism '{mechanism_before}'"
        )
    answer, user = yield from exchange
    if user != user_before:
        raise SaslAuthenticationFailedError(
            f"Cannot change principals during re-authentication from User.{user_before}: User.{user}"
        )
    return answer, user


def _plain(users: Users) -> Exchange:
    try:
        acting, user, password = (yield b"").decode().split("\0")
    except ValueError:
        raise _malformed(PLAIN) from None
    if not scram.is_password(users.credential(user, *scram.MECHANISMS), password):
        raise _refused(PLAIN)
    _check_acting(acting, user)
    return b"", user


def _scram(mechanism: str, users: Users) -> Exchange:
    first = _matched(_FIRST, (yield b""), mechanism)
    if not _NAME.fullmatch(first["user"]):
        raise _malformed(mechanism)
    user = first["user"].replace("=2C", ",").replace("=3D", "=")
    _check_acting(first["acting"] or "", first["user"])
    credential = users.credential(user, mechanism)
    nonce = first["nonce"] + secrets.token_hex(16)
    challenge = f"r={nonce},s={credential.salt},i={credential.iterations}"
    last = _matched(_LAST, (yield challenge.encode()), mechanism)
    try:
        header, proof = (
            base64.b64decode(last[name], validate=True) for name in ("header", "proof")
        )
    except binascii.Error:
        raise _malformed(mechanism) from None
    if header != first["header"].encode() or last["nonce"] != nonce:
        raise _refused(mechanism)
    message = f"{first['bare']},{challenge},{last['content']}".encode()
    if not scram.is_proof(credential, proof, message):
        raise _refused(mechanism)
    signature = base64.b64encode(scram.server_signature(credential, message))
    return b"v=" + signature, user


def _matched(pattern: re.Pattern[str], message: bytes, mechanism: str) -> re.Match[str]:
    try:
        match = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise _malformed(mechanism)
    return match


def _check_acting(acting: str, user: str) -> None:
    if acting not in ("", user):
        raise SaslAuthenticationFailedError(
            "Authentication failed: Client requested an authorization id that is different from username"
        )


def _malformed(mechanism: str) -> SaslAuthenticationFailedError:
    return SaslAuthenticationFailedError(f"malformed {mechanism} message")


def _refused(mechanism: str) -> SaslAuthenticationFailedError:
    """An error with Kafka's text, which programs look for."""
    return SaslAuthenticationFailedError(
        "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        f"{mechanism}"
    )


_BEFORE: Final = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
"""The APIs allowed before authentication."""
_PAUSE_MS: Final = 100
"""The delay of a failed login (Kafka: connection.failed.authentication.delay.ms)."""
_RENEWALS_MS: Final = 1_000
"""The least time between the beginnings of two re-authentications of a connection, as in Kafka."""


class Refusals:
    """Delays the failed logins of a server, one after another, which limits the guesses per second over
    all its connections. Successful logins do not wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told_ms = 0
        self.checking: Final = threading.Lock()
        """Held while a password is hashed, so that guessing uses at most one processor."""

    def wait(self, asked_ms: int, ended: threading.Event) -> None:
        """Wait until a failed login begun at `asked_ms` may be answered, or its connection has `ended`.
        The wait is the same for an unknown user and a wrong password, whose hashing times differ."""
        with self._lock:
            self._told_ms = told_ms = max(self._told_ms, asked_ms) + _PAUSE_MS
        ended.wait(max(0, told_ms - REAL_TIME.monotonic_ms()) / 1000)


class Login:
    """The authentication of one connection, used by its thread alone. After a failure the connection
    ends. With `lifetime_ms` a login expires unless its client renews it (KIP-368), with the same
    mechanism and user."""

    def __init__(
        self,
        users: Users,
        *,
        is_required: bool,
        refusals: Refusals | None = None,
        lifetime_ms: int = 0,
        clock: Clock = REAL_TIME,
    ) -> None:
        self._users = users
        self._refusals = refusals or Refusals()
        self._is_required = is_required
        self._clock = clock
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._expires_ms: int | None = None
        self._renewed_ms: int | None = None
        self.lifetime_ms: Final = lifetime_ms
        """How long a login lasts (ms); 0: as long as the connection."""
        self.user: str | None = None
        self.is_refused = False
        """Whether the login failed, so that the connection ends after the response."""
        self.ended: Final = threading.Event()
        """Set when the server ends the connection."""
        self.takes_tokens = False
        """Whether frames are bare messages of the mechanism, as after SaslHandshake of version 0."""

    @property
    def is_due(self) -> bool:
        """Whether the client must authenticate before any other request: for the first time, or to finish
        a renewal."""
        return self._is_required if self.user is None else self._exchange is not None

    @property
    def may_begin(self) -> bool:
        return self._exchange is None and (self.user is None or self._may_renew)

    @property
    def _may_renew(self) -> bool:
        if self._expires_ms is None:
            return False
        renewed_ms = self._renewed_ms
        return renewed_ms is None or self._clock.monotonic_ms() - renewed_ms >= _RENEWALS_MS

    @property
    def has_begun(self) -> bool:
        return self._exchange is not None

    def check_may_ask(self, api_key: int, name: str) -> None:
        """Raises SaslAuthenticationFailedError for a request before the login, during its renewal, or after
        its expiry. After the expiry a client may still renew the login."""
        if self.is_due and api_key not in _BEFORE:
            why = "which this server requires" if self.user is None else "which had begun again"
            raise SaslAuthenticationFailedError(
                f"{name} was requested before authentication, {why}"
            )
        expires_ms = self._expires_ms
        if expires_ms is None or self._exchange is not None:
            return
        if self._clock.monotonic_ms() > expires_ms and not (
            api_key == SASL_HANDSHAKE and self._may_renew
        ):
            raise SaslAuthenticationFailedError(
                f"{name} was requested after the login had expired (connections.max.reauth.ms="
                f"{self.lifetime_ms}); this client has not logged in again"
            )

    def begin(self, mechanism: str, *, takes_tokens: bool) -> None:
        """Start one of the mechanisms in MECHANISMS."""
        before = None
        if self.user is not None:
            before = self._mechanism, self.user
            self._renewed_ms = self._clock.monotonic_ms()
        self._exchange = begin(mechanism, self._users, before)
        self._mechanism = mechanism
        self.takes_tokens = takes_tokens

    def refuse(self) -> None:
        self._exchange = None
        self.is_refused = True

    def step(self, token: bytes) -> bytes:
        """Handle a message of the mechanism, and return the response. Raises
        SaslAuthenticationFailedError, after a delay, and errors of reading the file; both end the login."""
        assert self._exchange is not None
        asked_ms = REAL_TIME.monotonic_ms()
        try:
            with self._refusals.checking:
                return self._exchange.send(token)
        except StopIteration as end:
            answer, self.user = end.value
            self._exchange, self.takes_tokens = None, False
            if self.lifetime_ms:
                self._expires_ms = self._clock.monotonic_ms() + self.lifetime_ms
            assert isinstance(answer, bytes)
            return answer
        except EosdbError as error:
            self.refuse()
            if isinstance(error, SaslAuthenticationFailedError):
                self._refusals.wait(asked_ms, self.ended)
            raise
