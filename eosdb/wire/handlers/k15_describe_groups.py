"""DescribeGroups: groups of the classic protocol, with their members.

Version 3: authorized operations (KIP-430); 4: static members (KIP-345); 5: flexible; 6: an unknown group is
an error with a text (KIP-1043); in earlier versions it is a dead group.
"""

from __future__ import annotations

from kafka.protocol.admin.groups import DescribeGroupsRequest

from eosdb.errors import EosdbError, GroupIdNotFoundError
from eosdb.model import requests
from eosdb.model.values import GroupState, GroupType
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.errors import coordinator_code_of


@serves(DescribeGroupsRequest, 0, 6, coordinator_code_of)
def describe_groups(session: Session, request: DescribeGroupsRequest, version: int) -> Fields:
    def described(group_id: str) -> Fields:
        try:
            return {"group_id": group_id, **_described(session, request, group_id)}
        except GroupIdNotFoundError as error:
            what: Fields = {"error": error} if version >= 6 else {}
            return {"group_id": group_id, "group_state": GroupState.DEAD.value, **what}
        except EosdbError as error:
            return {"group_id": group_id, "error": error}

    return {"groups": [described(group_id) for group_id in request.groups]}


def _described(session: Session, request: DescribeGroupsRequest, group_id: str) -> Fields:
    group = session.broker.ask(requests.DescribeGroup(group_id))
    if group.group_type is not GroupType.CLASSIC:
        raise GroupIdNotFoundError(
            f"group {group_id!r} does not use the classic protocol; use ConsumerGroupDescribe"
        )
    # Only a stable group shows the members' data and the chosen protocol (ClassicGroup.describe).
    is_stable = group.state == GroupState.STABLE.value
    with_operations = request.include_authorized_operations
    return {
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": (group.protocol_name or "") if is_stable else "",
        "members": [
            {
                "like": member,
                "member_metadata": member.metadata if is_stable else b"",
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
        "authorized_operations": session.operations(with_operations, "group", group_id),
    }
