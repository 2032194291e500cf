"""Heartbeat: keeps a member of the classic protocol in its group.

Version 3: static members (KIP-345); 4: flexible.
"""

from __future__ import annotations

from kafka.protocol.consumer.group import HeartbeatRequest

from eosdb.model import requests
from eosdb.wire.apis import Fields, Session, asked, serves
from eosdb.wire.errors import coordinator_code_of


@serves(HeartbeatRequest, 0, 4, coordinator_code_of)
def heartbeat(session: Session, request: HeartbeatRequest, _: int) -> Fields:
    session.broker.ask(asked(requests.Heartbeat, request))
    return {}
