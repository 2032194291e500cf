"""LeaveGroup: members of the classic protocol leave, with a result for each.

Version 3: several members, each by member id or instance id (KIP-345), not one; 4: flexible; 5: a reason
(KIP-800).
"""

from __future__ import annotations

from kafka.protocol.consumer.group import LeaveGroupRequest

from eosdb.model import requests
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.errors import coordinator_code_of


@serves(LeaveGroupRequest, 0, 5, coordinator_code_of)
def leave_group(session: Session, request: LeaveGroupRequest, version: int) -> Fields:
    names: list[tuple[str, str | None]] = [(request.member_id, None)]
    if version >= 3:
        names = [(member.member_id, member.group_instance_id) for member in request.members]
    errors = session.broker.ask(requests.RemoveMembers(request.group_id, names))
    if version < 3:
        return {"error": errors[0]}
    return {
        "members": [
            {"member_id": member_id, "group_instance_id": instance, "error": error}
            for (member_id, instance), error in zip(names, errors, strict=True)
        ]
    }
