"""ConsumerGroupDescribe: groups whose partitions the coordinator assigns, with their members (KIP-848).

Version 1: the type of each member.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eosdb.model import requests
from eosdb.model.values import AssignedTopic, ConsumerGroupMemberDescription
from eosdb.wire.apis import Fields, Session, attempt, serves
from eosdb.wire.errors import coordinator_code_of
from eosdb.wire.schemas import ConsumerGroupDescribeRequest

_CLASSIC, _CONSUMER = 0, 1


@serves(ConsumerGroupDescribeRequest, 0, 1, coordinator_code_of)
def describe(session: Session, request: Any, _: int) -> Fields:
    def described(group_id: str) -> Fields:
        group = session.broker.ask(requests.DescribeConsumerGroup(group_id))
        may_ask = request.include_authorized_operations
        return {
            "like": group,
            "group_state": group.state,
            "assignor_name": group.assignor,
            "members": [_member(member) for member in group.members],
            "authorized_operations": session.operations(may_ask, "group", group_id),
        }

    return {
        "groups": [
            {"group_id": group_id, **attempt(described, group_id)} for group_id in request.group_ids
        ]
    }


def _member(member: ConsumerGroupMemberDescription) -> Fields:
    return {
        "like": member,
        "instance_id": member.group_instance_id,
        "assignment": _assigned(member.assignment),
        "target_assignment": _assigned(member.target_assignment),
        "member_type": _CLASSIC if member.is_classic else _CONSUMER,
    }


def _assigned(topics: Iterable[AssignedTopic]) -> Fields:
    return {"topic_partitions": [{"like": one, "topic_name": one.topic} for one in topics]}
