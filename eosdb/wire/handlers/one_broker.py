"""Constant answers of a cluster with one broker and no quotas; only the requests are checked.

There is one broker with one folder: a request for this placement succeeds, any other fails. No client is
throttled: removing a quota succeeds, setting one is refused (decisions/0066). The level of a feature
depends on how the file was opened. Share groups get the answers of a Kafka with share groups off
(decisions/0070). Their heartbeat is announced: without it, librdkafka's share consumer waits for ever and
reports nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
)
from kafka.protocol.admin.cluster import (
    AlterReplicaLogDirsRequest,
    DescribeQuorumRequest,
    UpdateFeaturesRequest,
)
from kafka.protocol.admin.topics import (
    AlterPartitionReassignmentsRequest,
    ElectionType,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)

from eosdb.admin.tools import Tools
from eosdb.errors import (
    EosdbError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from eosdb.log import partition_rows
from eosdb.model import requests
from eosdb.model.values import TopicPartition
from eosdb.wire import errors
from eosdb.wire.apis import Answer, Fields, Session, attempt, per_partition, serves
from eosdb.wire.handlers.k19_create_topics import check_assignments
from eosdb.wire.schemas import ShareGroupHeartbeatRequest
from eosdb.wire.session import NODE_ID

_UPGRADE_TYPES: Final = (1, 2, 3)
"""The codes of an upgrade, a safe downgrade and an unsafe downgrade."""
_METADATA: Final = "__cluster_metadata"
_ENTITY_TYPES: Final = ("user", "client-id", "ip")
_ALONE: Final = "ip"
_EXACT: Final = 0
_MATCH_TYPES: Final = range(3)
_QUOTAS: Final = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
)  # fmt: skip
_QUOTAS_OF_IP: Final = ("connection_creation_rate",)


def _known(session: Session, check: Answer) -> Answer:
    """Check an existing partition with `check`; any other partition is an error."""
    counts = session.broker.ask(requests.TopicPartitions(every=True))

    def answer(tp: TopicPartition, asked: Any) -> Fields | EosdbError | None:
        if not 0 <= tp.partition < counts.get(tp.topic, 0):
            return partition_rows.unknown(tp)
        return check(tp, asked)

    return answer


def _moved(request: AlterReplicaLogDirsRequest, answer: Callable[[str], Answer]) -> Fields:
    return {
        "results": [
            topic
            for directory in request.dirs
            for topic in per_partition(directory.topics, answer(directory.path))
        ]
    }


@serves(
    AlterReplicaLogDirsRequest, 1, 2, right="alter",
    failed=lambda request, error, _: _moved(request, lambda _: lambda *_: error),
)  # fmt: skip
def alter_log_dirs(session: Session, request: AlterReplicaLogDirsRequest, _: int) -> Fields:
    """A replica may be moved to the folder of the file, where it already is. Version 2 is flexible."""
    is_there = _known(session, lambda *_: None)
    path = Tools(session.admin).log_directory().path
    nowhere: Answer = lambda *_: {"error_code": errors.LOG_DIR_NOT_FOUND}  # noqa: E731
    return _moved(request, lambda wanted: is_there if wanted == path else nowhere)


def _elected(topics: Iterable[Any] | None, answer: Answer, error: EosdbError | None) -> Fields:
    return {"error": error, "replica_election_results": per_partition(topics or (), answer)}


@serves(
    ElectLeadersRequest, 0, 2, right="alter",
    failed=lambda request, error, _: _elected(request.topic_partitions, lambda *_: error, error),
)  # fmt: skip
def elect_leaders(session: Session, request: ElectLeadersRequest, _: int) -> Fields:
    """No partition needs an election. If all were requested, the answer names none, as in Kafka. Version 1
    has unclean elections (KIP-460); version 2 is flexible."""
    if request.election_type not in list(ElectionType):
        raise InvalidRequestError(
            f"election_type: got {request.election_type}, expected 0 (preferred) or 1 (unclean)"
        )
    if request.topic_partitions is None:
        names = session.broker.ask(requests.TopicPartitions(every=True))
        topics = [{"topic": name} for name in names]
        return {"replica_election_results": topics}
    needless = errors.ElectionNotNeededError("the one broker leads every partition")
    return _elected(request.topic_partitions, _known(session, lambda *_: needless), None)


@serves(AlterPartitionReassignmentsRequest, 0, 1, right="alter")
def alter_reassignments(
    session: Session, request: AlterPartitionReassignmentsRequest, _: int
) -> Fields:
    """Partitions stay at the one broker. Version 1 can forbid a new replication factor (KIP-860)."""

    def reassigned(tp: TopicPartition, asked: Any) -> None:
        if asked.replicas is None:
            raise errors.NoReassignmentInProgressError(
                "there is one broker; no reassignment is in progress"
            )
        check_assignments([asked.replicas], 1)

    return {
        "allow_replication_factor_change": request.allow_replication_factor_change,
        "responses": per_partition(request.topics, _known(session, reassigned)),
    }


@serves(ListPartitionReassignmentsRequest, 0, 0, right="describe")
def list_reassignments(
    session: Session, request: ListPartitionReassignmentsRequest, _: int
) -> Fields:
    return {}


@serves(
    DescribeClientQuotasRequest, 0, 1, right="describe_configs",
    failed=lambda _, error, __: {"error": error, "entries": None},
)  # fmt: skip
def describe_quotas(session: Session, request: DescribeClientQuotasRequest, _: int) -> Fields:
    """There are no quotas. `kafka-configs.sh --describe --entity-type users` asks for them first."""
    types = [component.entity_type for component in request.components]
    if unknown := [name for name in types if name and name not in _ENTITY_TYPES]:
        raise UnsupportedVersionError(f"entity types: got {unknown}, expected {_ENTITY_TYPES}")
    if not _go_together(types):
        raise InvalidRequestError(f"entity types: got {types}, expected each once, and ip alone")
    for component in request.components:
        kind, name = component.match_type, component.match
        if kind not in _MATCH_TYPES or (kind == _EXACT) != (name is not None):
            raise InvalidRequestError(
                f"{component.entity_type}: got the match type {kind} with {name!r}, expected 0 with a "
                "name, or 1 or 2 without one"
            )
    return {}


def _entries(
    request: AlterClientQuotasRequest, check: Callable[[Any], EosdbError | None]
) -> Fields:
    def entity(entry: Any) -> list[Fields]:
        return [
            {"entity_type": part.entity_type, "entity_name": part.entity_name}
            for part in entry.entity
        ]

    return {"entries": [{"entity": entity(e), **attempt(check, e)} for e in request.entries]}


@serves(
    AlterClientQuotasRequest, 0, 1, right="alter_configs",
    failed=lambda request, error, _: _entries(request, lambda _: error),
)  # fmt: skip
def alter_quotas(session: Session, request: AlterClientQuotasRequest, _: int) -> Fields:
    return _entries(request, _check_quotas)


def _check_quotas(entry: Any) -> None:
    types = [part.entity_type for part in entry.entity]
    if not (types and _go_together(types) and set(types) <= set(_ENTITY_TYPES)):
        raise InvalidRequestError(f"entity: got {types}, expected user, client-id, both, or ip")
    if any(part.entity_name == "" for part in entry.entity):
        raise InvalidRequestError(
            "entity: got an empty name, expected one, or null for the default"
        )
    given = [op for op in entry.ops if not op.remove]
    known = _QUOTAS_OF_IP if _ALONE in types else _QUOTAS
    for op in given:
        if op.key not in known:
            raise InvalidRequestError(f"got the quota {op.key!r}, expected one of {known}")
        if op.value <= 0:
            raise InvalidRequestError(f"{op.key}: got {op.value}, expected more than 0")
    if given:
        raise UnsupportedVersionError("quotas cannot be set: eosdb never throttles clients")


def _go_together(types: Sequence[str]) -> bool:
    is_alone = _ALONE not in types or len(types) == 1
    return "" not in types and len(set(types)) == len(types) and is_alone


@serves(DescribeQuorumRequest, 0, 2, right="describe")
def describe_quorum(session: Session, request: DescribeQuorumRequest, _: int) -> Fields:
    """The broker is the only voter; the journal is its metadata log. Version 1 has the time when voters
    caught up (KIP-836), version 2 error texts and the nodes (KIP-853)."""
    requested = [(t.topic_name, p.partition_index) for t in request.topics for p in t.partitions]
    is_known = requested == [(_METADATA, 0)]

    def quorum(tp: TopicPartition, _: object) -> Fields:
        if not is_known:
            raise UnknownTopicOrPartitionError(f"expected partition 0 of {_METADATA} alone")
        end, now = Tools(session.admin).journal_position(), session.core.clock.time_ms()
        caught_up = {"last_fetch_timestamp": now, "last_caught_up_timestamp": now}
        voter = {"replica_id": NODE_ID, "log_end_offset": end, **caught_up}
        leader = {
            "leader_id": NODE_ID,
            "leader_epoch": session.leader_epoch(),
            "high_watermark": end,
        }
        return {**leader, "current_voters": [voter]}

    listener = {"name": "CONTROLLER", "host": session.host, "port": session.port}
    node = {"node_id": NODE_ID, "listeners": [listener]}
    return {
        "topics": per_partition(request.topics, quorum),
        "nodes": [node] if is_known else [],
    }


@serves(UpdateFeaturesRequest, 0, 2, right="alter")
def update_features(session: Session, request: UpdateFeaturesRequest, version: int) -> Fields:
    """Check the updates. A valid update changes nothing; one invalid update refuses all. Version 1 has the
    type of an update, version 2 one result for all updates."""
    levels = session.features()
    for update in request.feature_updates:
        name, level = update.feature, update.max_version_level
        if name not in levels:
            reason = "expected one of " + ", ".join(levels)
        elif update.upgrade_type not in _UPGRADE_TYPES:
            reason = f"upgrade_type: got {update.upgrade_type}, expected one of {_UPGRADE_TYPES}"
        elif level != levels[name]:
            reason = f"this server supports level {levels[name]} alone"
        else:
            continue
        raise errors.InvalidUpdateVersionError(f"feature {name!r}, level {level}: {reason}")
    return {"results": [{"feature": update.feature} for update in request.feature_updates]}


@serves(ShareGroupHeartbeatRequest, 1, 1)
def share_group_heartbeat(session: Session, request: Any, _: int) -> Fields:
    return {"error_code": UnsupportedVersionError.code}
