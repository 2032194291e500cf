"""SaslAuthenticate: a message of the mechanism that SaslHandshake has started.

Version 1: the lifetime of the login (KIP-368); 2: flexible.
"""

from __future__ import annotations

from kafka.protocol.sasl import SaslAuthenticateRequest

from eosdb.errors import SaslAuthenticationFailedError
from eosdb.model.notices import catalog
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.errors import ILLEGAL_SASL_STATE


@serves(SaslAuthenticateRequest, 0, 2)
def authenticate(session: Session, request: SaslAuthenticateRequest, _: int) -> Fields:
    """The last answer has the lifetime of the login in ms, or 0 if it ends with the connection."""
    login = session.login
    if not login.has_begun:
        return {
            "error_code": ILLEGAL_SASL_STATE,
            "error_message": "SaslAuthenticate comes after SaslHandshake, once for each login",
        }
    try:
        token = session.step(bytes(request.auth_bytes))
    except SaslAuthenticationFailedError as error:
        catalog.LOGIN_REFUSED.say(client_host=session.client_host, error=error)
        raise
    return {
        "auth_bytes": token,
        "session_lifetime_ms": 0 if login.has_begun else login.lifetime_ms,
    }
