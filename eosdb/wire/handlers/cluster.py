"""The cluster: Metadata, DescribeTopicPartitions, DescribeCluster, DescribeQuorum and FindCoordinator."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from kafka.protocol.admin.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from kafka.protocol.admin.topics import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kafka.protocol.metadata.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse

from eosdb.coordinator.authorizer import CLUSTER
from eosdb.errors import (
    EosdbError,
    InvalidRequestError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from eosdb.log.topics import unknown_id
from eosdb.model.values import TopicMetadata
from eosdb.wire.errors import (
    MISMATCHED_ENDPOINT_TYPE,
    NONE,
    UNSUPPORTED_ENDPOINT_TYPE,
    code_of,
    coordinator_code_of,
    fields_of,
    message_of,
)
from eosdb.wire.session import LEADER_EPOCH, NO_TOPIC, NODE_ID, Session

_KEY_TYPES = {0: "group", 1: "transaction"}
_BY_ID_FROM = 12
_BROKERS, _CONTROLLERS = 1, 2
_MOST_PARTITIONS: Final = 2_000
"""In an answer to DescribeTopicPartitions (Kafka: max.request.partition.size.limit)."""
_METADATA: Final = "__cluster_metadata"
_NO_METADATA: Final = UnknownTopicOrPartitionError(f"expected partition 0 of {_METADATA} alone")
_Topic = MetadataResponse.MetadataResponseTopic
_Listed = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Quorum = DescribeQuorumResponse.TopicData


def metadata(session: Session, request: MetadataRequest, version: int) -> MetadataResponse:
    """All topics, or the requested ones; these are created if the broker's and the request's settings allow
    it."""
    # Version 0 asks for all topics with an empty list, later ones with null.
    may = version >= 8 and request.include_topic_authorized_operations
    if request.topics is None or (version == 0 and not request.topics):
        topics = [_described(session, topic, may) for topic in session.broker.topic_metadata()]
    else:
        may_create = request.allow_auto_topic_creation or version < 4
        requested = [(topic.name, topic.topic_id) for topic in request.topics]
        # Before version 12 one id spoils the whole request, as in Kafka.
        by_name = all(name is not None and not topic_id for name, topic_id in requested)
        if version >= _BY_ID_FROM or by_name:
            found = [_asked(session, *topic, may_create, may) for topic in dict.fromkeys(requested)]
            # A topic that was asked for by its name and its id is answered once.
            topics = list({(t.topic_id, t.error_code and t.name): t for t in found}.values())
        else:
            topics = [_refused_id(*topic) for topic in requested]
    node = MetadataResponse.MetadataResponseBroker(
        node_id=NODE_ID, host=session.host, port=session.port, rack=None
    )
    of_cluster = 8 <= version <= 10 and request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[node],
        cluster_id=session.cluster_id,
        controller_id=NODE_ID,
        topics=topics,
        authorized_operations=session.operations(of_cluster, "cluster", CLUSTER),
    )


def describe_topic_partitions(
    session: Session, request: DescribeTopicPartitionsRequest, version: int
) -> DescribeTopicPartitionsResponse:
    """Topics in the order of their names from the cursor on, until the limit of partitions is reached
    (KIP-966)."""
    names = sorted({topic.name for topic in request.topics})
    begin, first = "", 0
    if request.cursor is not None:
        begin, first = request.cursor.topic_name, request.cursor.partition_index
        if first < 0 or (names and begin not in names):
            error = InvalidRequestError(f"got the cursor {begin!r}, {first}, expected a partition")
            return DescribeTopicPartitionsResponse(
                topics=[_unlisted(name, error) for name in names]
            )
    left = max(1, min(request.response_partition_limit, _MOST_PARTITIONS))
    topics, following = list[_Listed](), None
    for name in names or sorted(session.broker.topic_partitions()):
        if name < begin:
            continue
        if left == 0:
            following = (name, 0)
            break
        try:
            topic = session.broker.topic(name, may_create=False)
        except EosdbError as error:
            if names:  # One of all topics has been deleted meanwhile.
                topics.append(_unlisted(name, error))
            continue
        indexes = range(first if name == begin else 0, topic.partitions)[:left]
        topics.append(_listed(session, topic, indexes))
        left -= len(indexes)
        if indexes.stop < topic.partitions:
            following = (name, indexes.stop)
            break
    response = DescribeTopicPartitionsResponse
    cursor = following and response.Cursor(topic_name=following[0], partition_index=following[1])
    return response(topics=topics, next_cursor=cursor)


def describe_cluster(
    session: Session, request: DescribeClusterRequest, version: int
) -> DescribeClusterResponse:
    response = DescribeClusterResponse
    kind = request.endpoint_type if version >= 1 else _BROKERS
    if kind != _BROKERS:
        code = MISMATCHED_ENDPOINT_TYPE if kind == _CONTROLLERS else UNSUPPORTED_ENDPOINT_TYPE
        return response(
            error_code=code, error_message=f"endpoint_type: got {kind}, expected {_BROKERS}, brokers",
            endpoint_type=_BROKERS, cluster_id="", controller_id=-1, brokers=[],
        )  # fmt: skip
    node = response.DescribeClusterBroker(
        broker_id=NODE_ID, host=session.host, port=session.port, rack=None, is_fenced=False
    )
    return response(
        error_code=NONE,
        error_message=None,
        endpoint_type=_BROKERS,
        cluster_id=session.cluster_id,
        controller_id=NODE_ID,
        brokers=[node],
        authorized_operations=session.operations(
            request.include_cluster_authorized_operations, "cluster", CLUSTER
        ),
    )


def describe_quorum(
    session: Session, request: DescribeQuorumRequest, version: int
) -> DescribeQuorumResponse:
    """The broker is the only voter; the journal stands for the log of metadata."""
    requested = [(t.topic_name, p.partition_index) for t in request.topics for p in t.partitions]
    if refusal := session.refused("describe"):
        return DescribeQuorumResponse(**fields_of(refusal), topics=[], nodes=[])
    is_known = requested == [(_METADATA, 0)]
    described = _quorum(session) if is_known else fields_of(_NO_METADATA)
    listener = DescribeQuorumResponse.Node.Listener(
        name="CONTROLLER", host=session.host, port=session.port
    )
    node = DescribeQuorumResponse.Node(node_id=NODE_ID, listeners=[listener])
    return DescribeQuorumResponse(
        **fields_of(None),
        topics=[
            _Quorum(
                topic_name=topic.topic_name,
                partitions=[
                    _Quorum.PartitionData(partition_index=p.partition_index, **described)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        nodes=[node] if is_known else [],
    )


def find_coordinator(
    session: Session, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse:
    """This broker is every coordinator."""
    keys = request.coordinator_keys if version >= 4 else [request.key]
    coordinators = [_coordinator(session, key, request.key_type) for key in keys]
    if version >= 4:
        return FindCoordinatorResponse(coordinators=coordinators)
    (coordinator,) = coordinators
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def _quorum(session: Session) -> dict[str, Any]:
    end, now = session.admin.journal_position(), session.core.clock.time_ms()
    voter = _Quorum.PartitionData.ReplicaState(
        replica_id=NODE_ID,
        log_end_offset=end,
        last_fetch_timestamp=now,
        last_caught_up_timestamp=now,
    )
    return {
        **fields_of(None), "leader_id": NODE_ID, "leader_epoch": LEADER_EPOCH,
        "high_watermark": end, "current_voters": [voter], "observers": [],
    }  # fmt: skip


def _coordinator(session: Session, key: str, key_type: int) -> FindCoordinatorResponse.Coordinator:
    try:
        if key_type not in _KEY_TYPES:
            raise InvalidRequestError(f"key_type: got {key_type}, expected 0 (group) or 1")
        session.broker.find_coordinator(key, _KEY_TYPES[key_type])
    except EosdbError as error:
        return FindCoordinatorResponse.Coordinator(
            key=key, node_id=-1, host="", port=-1,
            error_code=coordinator_code_of(error), error_message=message_of(error),
        )  # fmt: skip
    return FindCoordinatorResponse.Coordinator(
        key=key, node_id=NODE_ID, host=session.host, port=session.port,
        error_code=NONE, error_message="NONE",
    )  # fmt: skip


def _refused_id(name: str | None, topic_id: UUID | None) -> _Topic:
    """The answer for each topic of a request whose version does not know topic ids."""
    return _Topic(
        error_code=InvalidRequestError.code,
        name=name or "",
        topic_id=topic_id or NO_TOPIC,
        partitions=[],
    )


def _asked(
    session: Session, name: str | None, topic_id: UUID | None, may_create: bool, may: bool
) -> _Topic:
    """The requested topic; its id, if given, takes precedence over its name."""
    by_id = topic_id is not None
    try:
        if topic_id is not None:
            name = session.broker.topic_names().get(topic_id)
            if name is None:
                raise unknown_id(topic_id)
        return _described(
            session, session.broker.topic(name or "", may_create=may_create and not by_id), may
        )
    except EosdbError as error:
        # A client that asks by an id does not learn the name.
        return _Topic(
            error_code=code_of(error),
            name=None if by_id else name or "",
            topic_id=topic_id or NO_TOPIC,
            partitions=[],
            authorized_operations=session.operations(
                may and not isinstance(error, TopicAuthorizationFailedError), "topic", name or ""
            ),
        )


def _described(session: Session, topic: TopicMetadata, may: bool) -> _Topic:
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
        authorized_operations=session.operations(may, "topic", topic.name),
    )


def _listed(session: Session, topic: TopicMetadata, indexes: range) -> _Listed:
    return _Listed(
        error_code=NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=False,
        partitions=[
            _Listed.DescribeTopicPartitionsResponsePartition(
                error_code=NONE,
                partition_index=index,
                leader_id=NODE_ID,
                leader_epoch=LEADER_EPOCH,
                replica_nodes=[NODE_ID],
                isr_nodes=[NODE_ID],
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[],
            )
            for index in indexes
        ],
        topic_authorized_operations=sum(
            1 << operation for operation in session.operations(True, "topic", topic.name)
        ),
    )


def _unlisted(name: str, error: EosdbError) -> _Listed:
    return _Listed(
        error_code=code_of(error), name=name, topic_id=NO_TOPIC, is_internal=False, partitions=[]
    )
