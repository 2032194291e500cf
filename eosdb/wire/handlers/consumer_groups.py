"""Groups whose partitions the coordinator assigns (KIP-848): ConsumerGroupHeartbeat and
ConsumerGroupDescribe. kafka-python lacks the two; their schemas are in `eosdb.wire.schemas`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

from eosdb.errors import EosdbError, InvalidRequestError
from eosdb.model.values import AssignedTopic, ConsumerGroupMemberDescription, MemberHeartbeat
from eosdb.wire import schemas
from eosdb.wire.errors import NONE, coordinator_code_of, message_of
from eosdb.wire.session import NO_TOPIC, Session

_NAMES_ITSELF_FROM: Final = 1
"""The first version in which a new member brings an id."""
_CLASSIC, _CONSUMER = 0, 1
"""Types of members, told from version 1 of ConsumerGroupDescribe on."""


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=schemas):
    """The heartbeat of a member."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=schemas):
    """The response to a heartbeat."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json=schemas):
    """A request for the description of groups."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=schemas):
    """The description of each group."""


_Heartbeat: Final[Any] = ConsumerGroupHeartbeatResponse
_Described: Final[Any] = ConsumerGroupDescribeResponse
"""Typed as Any: mypy does not know the members that kafka-python creates from the schemas."""


def heartbeat(session: Session, request: Any, version: int) -> ApiMessage:
    answer: ApiMessage
    try:
        if version >= _NAMES_ITSELF_FROM and not request.member_id:
            raise InvalidRequestError("member_id: got an empty one, expected the id of the member")
        owned = request.topic_partitions
        beat = MemberHeartbeat(
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            group_instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            subscribed_topic_names=request.subscribed_topic_names,
            subscribed_topic_regex=request.subscribed_topic_regex if version >= 1 else None,
            server_assignor=request.server_assignor,
            topic_partitions=None
            if owned is None
            else {topic.topic_id or NO_TOPIC: topic.partitions for topic in owned},
            client_id=session.client_id,
            client_host=f"/{session.client_host}",
        )
        beaten = session.broker.consumer_group_heartbeat(request.group_id, beat)
    except EosdbError as error:
        answer = _Heartbeat(error_code=coordinator_code_of(error), error_message=message_of(error))
        return answer
    part = _Heartbeat.Assignment
    answer = _Heartbeat(
        error_code=NONE,
        member_id=beaten.member_id,
        member_epoch=beaten.member_epoch,
        heartbeat_interval_ms=beaten.heartbeat_interval_ms,
        assignment=None
        if beaten.assignment is None
        else part(
            topic_partitions=[
                part.TopicPartitions(topic_id=topic.topic_id, partitions=list(topic.partitions))
                for topic in beaten.assignment
            ]
        ),
    )
    return answer


def describe(session: Session, request: Any, version: int) -> ApiMessage:
    with_operations = request.include_authorized_operations
    groups = [_described(session, group_id, with_operations) for group_id in request.group_ids]
    answer: ApiMessage = _Described(groups=groups)
    return answer


def _described(session: Session, group_id: str, with_operations: bool) -> Any:
    described = _Described.DescribedGroup
    try:
        group = session.broker.describe_consumer_group(group_id)
    except EosdbError as error:
        return described(
            error_code=coordinator_code_of(error),
            error_message=message_of(error),
            group_id=group_id,
        )
    return described(
        error_code=NONE,
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(member) for member in group.members],
        authorized_operations=session.operations(with_operations, "group", group_id),
    )


def _member(member: ConsumerGroupMemberDescription) -> Any:
    described = _Described.DescribedGroup.Member

    def assigned(topics: Iterable[AssignedTopic]) -> Any:
        assignment = described.Assignment
        return assignment(
            topic_partitions=[
                assignment.TopicPartitions(
                    topic_id=topic.topic_id,
                    topic_name=topic.topic,
                    partitions=list(topic.partitions),
                )
                for topic in topics
            ]
        )

    return described(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=assigned(member.assignment),
        target_assignment=assigned(member.target_assignment),
        member_type=_CLASSIC if member.is_classic else _CONSUMER,
    )
