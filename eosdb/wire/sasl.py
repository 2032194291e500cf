"""The server side of SASL: SCRAM (RFC 5802) and PLAIN (RFC 4616).

A mechanism is a generator: it receives the client's messages, yields the responses, and returns the last
response and the user. A failure tells the client nothing but that it failed: an unknown user gets the same
response as a wrong password.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Callable, Generator
from typing import Final

from eosdb.errors import SaslAuthenticationFailedError
from eosdb.model.protocol import scram
from eosdb.model.protocol.scram import ScramCredential

PLAIN: Final = "PLAIN"
# decisions/0030: a server in the clear listens at loopback alone, so PLAIN's password crosses no network.
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
    """The users' credentials. For an unknown user there is a credential that no password matches."""

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
    """Start a mechanism; `before` are mechanism and user of a connection that authenticates again. The
    generator raises SaslAuthenticationFailedError."""
    exchange = _plain(users) if mechanism == PLAIN else _scram(mechanism, users)
    if before is not None:
        exchange = _again(exchange, mechanism, *before)
    next(exchange)
    return exchange


def _again(exchange: Exchange, mechanism: str, mechanism_before: str, user_before: str) -> Exchange:
    """A re-authentication, which changes neither mechanism nor user, and says so as Kafka does."""
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
    """The error with Kafka's text, which programs look for."""
    return SaslAuthenticationFailedError(
        "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        f"{mechanism}"
    )
