"""ConsumerGroupHeartbeat: a member of a group whose partitions the coordinator assigns (KIP-848).

Version 1: a new member chooses its id, and may subscribe with a regular expression.
"""

from __future__ import annotations

from typing import Any

from eosdb.errors import InvalidRequestError
from eosdb.model.requests import ConsumerGroupHeartbeat
from eosdb.wire.apis import Fields, Session, asked, serves
from eosdb.wire.errors import coordinator_code_of
from eosdb.wire.schemas import ConsumerGroupHeartbeatRequest
from eosdb.wire.session import NO_TOPIC


@serves(ConsumerGroupHeartbeatRequest, 0, 1, coordinator_code_of)
def heartbeat(session: Session, request: Any, version: int) -> Fields:
    if version >= 1 and not request.member_id:
        raise InvalidRequestError("member_id: got an empty id, expected the member's")
    owned = request.topic_partitions
    beat = asked(
        ConsumerGroupHeartbeat,
        request,
        group_instance_id=request.instance_id,
        topic_partitions=None
        if owned is None
        else {topic.topic_id or NO_TOPIC: topic.partitions for topic in owned},
        client_id=session.client_id,
        client_host=f"/{session.client_host}",
    )
    beaten = session.broker.ask(beat)
    assignment: Fields | None = None
    if beaten.assignment is not None:
        assignment = {"topic_partitions": [{"like": topic} for topic in beaten.assignment]}
    return {"like": beaten, "assignment": assignment}
