"""ListGroups: all groups that the client may see.

Version 3: flexible; 4: a filter by state (KIP-518); 5: a filter by type (KIP-848).
"""

from __future__ import annotations

from kafka.protocol.admin.groups import ListGroupsRequest

from eosdb.model import requests
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.errors import coordinator_code_of


@serves(ListGroupsRequest, 0, 5, coordinator_code_of)
def list_groups(session: Session, request: ListGroupsRequest, _: int) -> Fields:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return {
        "groups": [
            {
                "like": group,
                "group_state": group.state,
                "group_type": group.group_type.value,
            }
            for group in session.broker.ask(requests.DescribeGroups())
            if (not states or group.state.lower() in states)
            and (not types or group.group_type.value in types)
        ]
    }
