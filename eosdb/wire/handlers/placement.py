"""Where partitions are: ElectLeaders, reassignments, and AlterReplicaLogDirs.

There is one broker with one folder: what asks for these succeeds, and nothing else can be had.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka.protocol.admin.cluster import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kafka.protocol.admin.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

from eosdb.errors import EosdbError, InvalidRequestError
from eosdb.log import partition_rows
from eosdb.model.values import TopicPartition
from eosdb.wire.errors import (
    LOG_DIR_NOT_FOUND,
    NONE,
    ElectionNotNeededError,
    NoReassignmentInProgressError,
    code_of,
    fields_of,
)
from eosdb.wire.handlers.topics import check_assignments
from eosdb.wire.session import Session

_Elected = ElectLeadersResponse.ReplicaElectionResult
_Partition = AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition
_Reassigned = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Moved = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult


def elect_leaders(
    session: Session, request: ElectLeadersRequest, version: int
) -> ElectLeadersResponse:
    """No partition needs an election, and none is named if all were requested, as in Kafka."""
    refusal: EosdbError | None = session.refused("alter")
    if version >= 1 and request.election_type not in list(ElectionType):
        refusal = refusal or InvalidRequestError(
            f"election_type: got {request.election_type}, expected 0 (preferred) or 1 (unclean)"
        )
    counts = session.broker.every_partition_count()
    if request.topic_partitions is not None:
        requested = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    else:
        requested = [(name, []) for name in counts if refusal is None]

    def elected(tp: TopicPartition) -> _Elected.PartitionResult:
        error = refusal or _election_error(counts, tp)
        return _Elected.PartitionResult(partition_id=tp.partition, **fields_of(error))

    return ElectLeadersResponse(
        error_code=NONE if refusal is None else code_of(refusal),
        replica_election_results=[
            _Elected(
                topic=name, partition_result=[elected(TopicPartition(name, i)) for i in indexes]
            )
            for name, indexes in requested
        ],
    )


def alter_reassignments(
    session: Session, request: AlterPartitionReassignmentsRequest, version: int
) -> AlterPartitionReassignmentsResponse:
    if refusal := session.refused("alter"):
        return AlterPartitionReassignmentsResponse(**fields_of(refusal), responses=[])
    counts = session.broker.every_partition_count()
    topics = [
        _Reassigned(
            name=topic.name,
            partitions=[
                _Reassigned.ReassignablePartitionResponse(
                    partition_index=partition.partition_index,
                    **fields_of(_reassignment_error(counts, topic.name, partition)),
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(
        **fields_of(None),
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=topics,
    )


def list_reassignments(
    session: Session, request: ListPartitionReassignmentsRequest, version: int
) -> ListPartitionReassignmentsResponse:
    """No reassignment is ever in progress."""
    return ListPartitionReassignmentsResponse(**fields_of(session.refused("describe")), topics=[])


def alter_log_dirs(
    session: Session, request: AlterReplicaLogDirsRequest, version: int
) -> AlterReplicaLogDirsResponse:
    """A replica may be moved to the folder of the file, where it is."""
    refusal = session.refused("alter")
    counts = session.broker.every_partition_count()

    def code(path: str, tp: TopicPartition) -> int:
        if refusal is not None:
            return code_of(refusal)
        if path != session.admin.log_directory().path:
            return LOG_DIR_NOT_FOUND
        return NONE if _exists(counts, tp) else code_of(partition_rows.unknown(tp))

    moved = _Moved.AlterReplicaLogDirPartitionResult
    return AlterReplicaLogDirsResponse(
        results=[
            _Moved(
                topic_name=topic.name,
                partitions=[
                    moved(
                        partition_index=index,
                        error_code=code(directory.path, TopicPartition(topic.name, index)),
                    )
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _election_error(counts: Mapping[str, int], tp: TopicPartition) -> EosdbError:
    if _exists(counts, tp):
        return ElectionNotNeededError("the one broker leads every partition")
    return partition_rows.unknown(tp)


def _reassignment_error(
    counts: Mapping[str, int], topic: str, partition: _Partition
) -> EosdbError | None:
    tp = TopicPartition(topic, partition.partition_index)
    if not _exists(counts, tp):
        return partition_rows.unknown(tp)
    if partition.replicas is None:
        return NoReassignmentInProgressError("there is one broker; no reassignment is in progress")
    try:
        check_assignments([partition.replicas], 1)
    except EosdbError as error:
        return error
    return None


def _exists(counts: Mapping[str, int], tp: TopicPartition) -> bool:
    return 0 <= tp.partition < counts.get(tp.topic, 0)
