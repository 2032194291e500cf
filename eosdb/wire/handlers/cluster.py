"""What the cluster is: Metadata and FindCoordinator."""

from __future__ import annotations

from uuid import UUID

from kafka.protocol.metadata.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse

from eosdb.errors import EosdbError, InvalidRequestError, UnknownTopicIdError
from eosdb.model.values import TopicMetadata
from eosdb.wire.errors import NONE, code_of, coordinator_code_of
from eosdb.wire.session import LEADER_EPOCH, NODE_ID, Session

_KEY_TYPES = {0: "group", 1: "transaction"}
_Topic = MetadataResponse.MetadataResponseTopic


def metadata(session: Session, request: MetadataRequest, version: int) -> MetadataResponse:
    """All topics, or those named; these are created where the broker is set up so and the client agrees."""
    # Version 0 asks for all topics with an empty list, later ones with null.
    if request.topics is None or (version == 0 and not request.topics):
        topics = [_described(found) for found in session.broker.topic_metadata()]
    else:
        may_create = request.allow_auto_topic_creation or version < 4
        topics = [
            _asked(session, topic.name, topic.topic_id, may_create) for topic in request.topics
        ]
    node = MetadataResponse.MetadataResponseBroker(
        node_id=NODE_ID, host=session.host, port=session.port, rack=None
    )
    return MetadataResponse(
        brokers=[node], cluster_id=session.cluster_id, controller_id=NODE_ID, topics=topics
    )


def find_coordinator(
    session: Session, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse:
    """It is always this one."""
    keys = request.coordinator_keys if version >= 4 else [request.key]
    found = [_coordinator(session, key, request.key_type) for key in keys]
    if version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _coordinator(session: Session, key: str, key_type: int) -> FindCoordinatorResponse.Coordinator:
    try:
        if key_type not in _KEY_TYPES:
            raise InvalidRequestError(f"key_type: got {key_type}, expected 0 (group) or 1")
        session.broker.find_coordinator(key, _KEY_TYPES[key_type])
    except EosdbError as error:
        return FindCoordinatorResponse.Coordinator(
            key=key, node_id=-1, host="", port=-1,
            error_code=coordinator_code_of(error), error_message=str(error),
        )  # fmt: skip
    return FindCoordinatorResponse.Coordinator(
        key=key, node_id=NODE_ID, host=session.host, port=session.port,
        error_code=NONE, error_message="NONE",
    )  # fmt: skip


def _asked(session: Session, name: str | None, topic_id: UUID, may_create: bool) -> _Topic:
    try:
        if name is not None:
            return _described(session.broker.topic(name, may_create=may_create))
        known = {found.topic_id: found for found in session.broker.topic_metadata()}
        if topic_id in known:
            return _described(known[topic_id])
    except EosdbError as error:
        return _Topic(error_code=code_of(error), name=name, topic_id=topic_id, partitions=[])
    return _Topic(error_code=UnknownTopicIdError.code, name=None, topic_id=topic_id, partitions=[])


def _described(topic: TopicMetadata) -> _Topic:
    partitions = [
        _Topic.MetadataResponsePartition(
            error_code=NONE,
            partition_index=index,
            leader_id=NODE_ID,
            leader_epoch=LEADER_EPOCH,
            replica_nodes=[NODE_ID],
            isr_nodes=[NODE_ID],
            offline_replicas=[],
        )
        for index in range(topic.partitions)
    ]
    return _Topic(
        error_code=NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=False,
        partitions=partitions,
    )
