"""DeleteGroups: deletes groups without members, with a result for each.

Version 2: flexible; 3: an error text.
"""

from __future__ import annotations

from typing import Any

from eosdb.model.requests import DeleteGroup
from eosdb.wire.apis import Fields, Session, attempt, serves
from eosdb.wire.errors import coordinator_code_of
from eosdb.wire.schemas import DeleteGroupsRequest


@serves(DeleteGroupsRequest, 0, 3, coordinator_code_of)
def delete_groups(session: Session, request: Any, _: int) -> Fields:
    return {
        "results": [
            {"group_id": group_id, **attempt(session.broker.ask, DeleteGroup(group_id))}
            for group_id in dict.fromkeys(request.groups_names)
        ]
    }
