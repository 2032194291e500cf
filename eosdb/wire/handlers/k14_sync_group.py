"""SyncGroup: the leader sends the assignment; the other members wait for it (`k11_join_group`).

Version 3: static members (KIP-345); 4: flexible; 5: names the protocol (KIP-559).
"""

from __future__ import annotations

from kafka.protocol.consumer.group import SyncGroupRequest

from eosdb.errors import InconsistentGroupProtocolError
from eosdb.model import requests
from eosdb.wire.apis import Fields, Session, asked, serves
from eosdb.wire.errors import coordinator_code_of
from eosdb.wire.handlers.k11_join_group import when_complete


@serves(SyncGroupRequest, 0, 5, coordinator_code_of)
def sync_group(session: Session, request: SyncGroupRequest, version: int) -> Fields:
    group_id, member_id = request.group_id, request.member_id
    if version >= 5 and None in (request.protocol_type, request.protocol_name):
        return {"error_code": InconsistentGroupProtocolError.code}
    synced = when_complete(
        session,
        lambda: session.broker.ask(
            asked(
                requests.SyncGroup,
                request,
                assignments={a.member_id: bytes(a.assignment) for a in request.assignments},
                waits=True,
            )
        ),
        lambda broker: broker.ask(requests.IsWaiting(group_id, member_id, request.generation_id)),
    )
    return {"like": synced}
