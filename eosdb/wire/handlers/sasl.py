"""Authentication: SaslHandshake and SaslAuthenticate (Kafka: SaslServerAuthenticator)."""

from __future__ import annotations

from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from eosdb.errors import SaslAuthenticationFailedError
from eosdb.model.notices import catalog
from eosdb.wire.errors import ILLEGAL_SASL_STATE, NONE, UNSUPPORTED_SASL_MECHANISM, message_of
from eosdb.wire.sasl import MECHANISMS
from eosdb.wire.session import Session


def handshake(
    session: Session, request: SaslHandshakeRequest, version: int
) -> SaslHandshakeResponse:
    """Start the mechanism that the client proposes; allowed once per connection, and again to renew a login
    that expires."""
    login, code = session.login, NONE
    if not login.may_begin:
        code = ILLEGAL_SASL_STATE
    elif request.mechanism not in MECHANISMS:
        code = UNSUPPORTED_SASL_MECHANISM
        login.refuse()
    else:
        # The messages of the mechanism come as frames of their own after the first version (KIP-152).
        login.begin(request.mechanism, takes_tokens=version == 0)
    return SaslHandshakeResponse(error_code=code, mechanisms=list(MECHANISMS))


def authenticate(
    session: Session, request: SaslAuthenticateRequest, version: int
) -> SaslAuthenticateResponse:
    """Handle a message of the mechanism. The last answer says how long the login lasts, 0 for as long as
    its connection."""
    if not session.login.has_begun:
        return SaslAuthenticateResponse(
            error_code=ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate comes after SaslHandshake, once for each login",
            auth_bytes=b"",
            session_lifetime_ms=0,
        )
    try:
        token = step(session, bytes(request.auth_bytes))
    except SaslAuthenticationFailedError as error:
        catalog.LOGIN_REFUSED.say(client_host=session.client_host, error=error)
        return SaslAuthenticateResponse(
            error_code=error.code,
            error_message=message_of(error),
            auth_bytes=b"",
            session_lifetime_ms=0,
        )
    login = session.login
    return SaslAuthenticateResponse(
        error_code=NONE, error_message=None, auth_bytes=token,
        session_lifetime_ms=0 if login.has_begun else login.lifetime_ms,
    )  # fmt: skip


def step(session: Session, token: bytes) -> bytes:
    """Handle a message of the mechanism; after the last one the session has its user as principal.

    Raises SaslAuthenticationFailedError.
    """
    answer = session.login.step(token)
    if session.login.user is not None:
        session.become(f"User:{session.login.user}")
    return answer
