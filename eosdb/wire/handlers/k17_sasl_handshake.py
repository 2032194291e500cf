"""SaslHandshake: a client proposes a mechanism (Kafka: SaslServerAuthenticator).

Version 1: the mechanism's messages come in SaslAuthenticate; in version 0 as bare frames (KIP-152).
"""

from __future__ import annotations

from kafka.protocol.sasl import SaslHandshakeRequest

from eosdb.errors import UnsupportedSaslMechanismError
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.errors import ILLEGAL_SASL_STATE, NONE
from eosdb.wire.login import MECHANISMS


@serves(SaslHandshakeRequest, 0, 1)
def handshake(session: Session, request: SaslHandshakeRequest, version: int) -> Fields:
    """Start the mechanism; allowed once per connection, and again to renew a login that expires."""
    login, code = session.login, NONE
    if not login.may_begin:
        code = ILLEGAL_SASL_STATE
    elif request.mechanism not in MECHANISMS:
        code = UnsupportedSaslMechanismError.code
        login.refuse()
    else:
        login.begin(request.mechanism, takes_tokens=version == 0)
    return {"error_code": code, "mechanisms": list(MECHANISMS)}
