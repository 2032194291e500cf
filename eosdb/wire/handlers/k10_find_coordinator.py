"""FindCoordinator: this broker is the coordinator of everything.

Version 1: transactional ids, too; 3: flexible; 4: several keys in one request (KIP-699); 6: share groups
(KIP-932), which are not served.
"""

from __future__ import annotations

from typing import Final

from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest

from eosdb.errors import InvalidRequestError
from eosdb.model import requests
from eosdb.wire.apis import Fields, Session, attempt, serves
from eosdb.wire.errors import coordinator_code_of
from eosdb.wire.session import NODE_ID

_KEY_TYPES: Final = {0: "group", 1: "transaction"}


@serves(FindCoordinatorRequest, 0, 6, coordinator_code_of)
def find_coordinator(session: Session, request: FindCoordinatorRequest, version: int) -> Fields:
    def found(key: str) -> Fields:
        if request.key_type not in _KEY_TYPES:
            raise InvalidRequestError(f"key_type: got {request.key_type}, expected 0 (group) or 1")
        session.broker.ask(requests.FindCoordinator(key, _KEY_TYPES[request.key_type]))
        here = {"node_id": NODE_ID, "host": session.host, "port": session.port}
        return {**here, "error_message": "NONE"}

    nowhere = {"node_id": -1, "host": "", "port": -1}
    if version < 4:
        return attempt(found, request.key, with_error=nowhere)
    return {
        "coordinators": [
            {"key": key, **attempt(found, key, with_error=nowhere)}
            for key in request.coordinator_keys
        ]
    }
