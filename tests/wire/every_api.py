"""A request of every API that is served, and the rights it needs: a table for tests of what holds for all.

An API without a row fails in `test_every_api_has_a_row`. The rights are Kafka 4.4.0's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kafka.protocol.admin.acl import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
)
from kafka.protocol.admin.cluster import (
    AlterReplicaLogDirsRequest,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    UpdateFeaturesRequest,
)
from kafka.protocol.admin.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from kafka.protocol.admin.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafka.protocol.admin.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.admin.users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.consumer.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata.api_versions import ApiVersionsRequest
from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest
from kafka.protocol.metadata.metadata import MetadataRequest
from kafka.protocol.producer.produce import ProduceRequest
from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from eosdb import OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from eosdb.database import Database
from eosdb.wire.schemas import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ShareGroupHeartbeatRequest,
)
from tests.wire.peer import asking, batch, fetch, produce

TOPIC, GROUP, ID = "a-topic", "a-group", "an-id"
_TOPIC_CODE, _GROUP_CODE, _CLUSTER_CODE, _ID_CODE = 29, 30, 31, 53
REFUSALS: Final = {_TOPIC_CODE, _GROUP_CODE, _CLUSTER_CODE, _ID_CODE}
HIDDEN: Final = 0
"""In place of a code: what may not be seen is left out."""


class Right(NamedTuple):
    """One that a request needs, and what it is told without it."""

    code: int
    operation: str
    resource_type: str
    name: str
    instead: tuple[tuple[str, str, str], ...] = ()
    """Others of which one is as good."""


@dataclass(frozen=True, slots=True)
class Row:
    """A request, made for a producer that has a transaction open, and its rights."""

    request: type[ApiMessage]
    version: int
    fields: dict[str, Any] | Callable[[ProducerIdAndEpoch], dict[str, Any] | ApiMessage]
    rights: tuple[Right, ...] = ()
    of: str = ""
    """What tells it from other rows of the same API."""
    uses_file: bool = True
    """Whether it cannot be answered without the file."""

    def make(self, who: ProducerIdAndEpoch) -> ApiMessage:
        made = self.fields if isinstance(self.fields, dict) else self.fields(who)
        return asking(self.request, **made) if isinstance(made, dict) else made

    @property
    def name(self) -> str:
        return f"{self.request.__name__.removesuffix('Request')} {self.of}".strip()


def topic(operation: str, *instead: tuple[str, str, str], code: int = _TOPIC_CODE) -> Right:
    return Right(code, operation, "topic", TOPIC, instead)


def group(operation: str, *instead: tuple[str, str, str], code: int = _GROUP_CODE) -> Right:
    return Right(code, operation, "group", GROUP, instead)


def of_id(operation: str, code: int = _ID_CODE) -> Right:
    return Right(code, operation, "transactional_id", ID)


def cluster(operation: str, *instead: tuple[str, str, str], code: int = _CLUSTER_CODE) -> Right:
    return Right(code, operation, "cluster", "kafka-cluster", instead)


def prepare(db: Database) -> ProducerIdAndEpoch:
    """What the requests are about: a topic with a record, a group with an offset, an open transaction."""
    db.admin.create_topic(TOPIC, partitions=2)
    db.producer().send(TOPIC, "value", partition=0)
    tp = TopicPartition(TOPIC, 0)
    db.broker.offset_commit(GROUP, {tp: OffsetAndMetadata(1)})
    who = db.broker.init_producer_id(ID)
    db.broker.add_partitions_to_txn(ID, *who, [tp])
    db.broker.add_offsets_to_txn(ID, *who, GROUP)
    return who


_OFFSETS: Final = [{"name": TOPIC, "partitions": [{
    "partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": "",
}]}]  # fmt: skip
_WANTED: Final = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": "User:nobody", "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
_ACL: Final = {
    "resource_type": 2, "resource_name": "other", "resource_pattern_type": 3,
    "principal": "User:nobody", "host": "*", "operation": 3, "permission_type": 3,
}  # fmt: skip
_SCRAM: Final = {
    "name": "nobody", "mechanism": 1, "iterations": 4_096, "salt": b"salt", "salted_password": b"x" * 32,
}  # fmt: skip
_ANY_TOPIC: Final = ("write", "topic", "*")

TABLE: Final = (
    Row(ProduceRequest, 9, lambda _: produce({(TOPIC, 1): batch(b"a")}), (topic("write"),)),
    Row(ProduceRequest, 9, lambda who: produce({(TOPIC, 0): batch(b"a", producer=who,
        sequence=0, transactional=True)}, transactional_id=ID),
        (topic("write"), of_id("write")), "in a transaction"),
    Row(FetchRequest, 12, lambda _: fetch(0, topic=TOPIC), (topic("read"),)),
    Row(ListOffsetsRequest, 8, {"replica_id": -1, "isolation_level": 0, "timeout_ms": 1000,
        "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0,
        "current_leader_epoch": -1, "timestamp": -1}]}]},
        (topic("describe"),)),
    Row(OffsetForLeaderEpochRequest, 4, {"replica_id": -1, "topics": [{"topic": TOPIC,
        "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]},
        (topic("describe"),)),
    Row(ApiVersionsRequest, 2, {}, uses_file=False),
    Row(MetadataRequest, 9, {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False},
        (topic("describe"),)),
    Row(MetadataRequest, 9, {"topics": None, "allow_auto_topic_creation": False},
        (topic("describe", code=HIDDEN),), "of all topics"),
    Row(FindCoordinatorRequest, 6, {"key_type": 0, "coordinator_keys": [GROUP]},
        (group("describe"),), "of a group"),
    Row(FindCoordinatorRequest, 2, {"key_type": 1, "key": ID}, (of_id("describe"),), "of an id"),
    Row(InitProducerIdRequest, 5, {"transactional_id": ID, "transaction_timeout_ms": 60000,
        "producer_id": -1, "producer_epoch": -1},
        (of_id("write"),), "of an id"),
    Row(InitProducerIdRequest, 5, {"transactional_id": None, "transaction_timeout_ms": 60000,
        "producer_id": -1, "producer_epoch": -1},
        (cluster("idempotent_write", _ANY_TOPIC),)),
    Row(AddPartitionsToTxnRequest, 3, lambda who: {"v3_and_below_transactional_id": ID,
        "v3_and_below_producer_id": who[0], "v3_and_below_producer_epoch": who[1],
        "v3_and_below_topics": [{"name": TOPIC, "partitions": [1]}]},
        (of_id("write"), topic("write"))),
    Row(AddOffsetsToTxnRequest, 4, lambda who: {"transactional_id": ID, "producer_id": who[0],
        "producer_epoch": who[1], "group_id": GROUP},
        (of_id("write"), group("read"))),
    Row(EndTxnRequest, 4, lambda who: {"transactional_id": ID, "producer_id": who[0],
        "producer_epoch": who[1], "committed": True},
        (of_id("write"),)),
    Row(TxnOffsetCommitRequest, 4, lambda who: {"transactional_id": ID, "group_id": GROUP,
        "producer_id": who[0], "producer_epoch": who[1], "generation_id": -1, "member_id": "",
        "group_instance_id": None, "topics": _OFFSETS},
        (of_id("write"), group("read"), topic("read"))),
    Row(SaslHandshakeRequest, 1, {"mechanism": "PLAIN"}, uses_file=False),
    Row(SaslAuthenticateRequest, 2, {"auth_bytes": b""}, uses_file=False),
    Row(DescribeUserScramCredentialsRequest, 0, {"users": None}, (cluster("describe"),)),
    Row(AlterUserScramCredentialsRequest, 0, {"deletions": [], "upsertions": [_SCRAM]},
        (cluster("alter"),)),
    Row(DescribeClientQuotasRequest, 1, {"components": [], "strict": False},
        (cluster("describe_configs"),)),
    Row(JoinGroupRequest, 9, {"group_id": GROUP, "session_timeout_ms": 10000,
        "rebalance_timeout_ms": 10000, "member_id": "", "group_instance_id": None,
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}], "reason": None},
        (group("read"),)),
    Row(SyncGroupRequest, 5, {"group_id": GROUP, "generation_id": 1, "member_id": "m",
        "group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range",
        "assignments": []},
        (group("read"),)),
    Row(HeartbeatRequest, 4, {"group_id": GROUP, "generation_id": 1, "member_id": "m",
        "group_instance_id": None},
        (group("read"),)),
    Row(LeaveGroupRequest, 5, {"group_id": GROUP, "members": [{"member_id": "m",
        "group_instance_id": None, "reason": None}]},
        (group("read"),)),
    Row(ConsumerGroupHeartbeatRequest, 1, {"group_id": GROUP, "member_id": "m",
        "member_epoch": 0, "rebalance_timeout_ms": 10000, "subscribed_topic_names": [TOPIC],
        "topic_partitions": []},
        (group("read"), topic("describe"))),
    Row(ShareGroupHeartbeatRequest, 1, {"group_id": GROUP, "member_id": "m", "member_epoch": 0},
        uses_file=False),
    Row(ConsumerGroupDescribeRequest, 1, {"group_ids": [GROUP],
        "include_authorized_operations": False},
        (group("describe"),)),
    Row(OffsetCommitRequest, 9, {"group_id": GROUP, "generation_id_or_member_epoch": -1,
        "member_id": "", "group_instance_id": None, "topics": _OFFSETS},
        (group("read"), topic("read"))),
    Row(OffsetFetchRequest, 7, {"group_id": GROUP, "require_stable": False,
        "topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        (group("describe"), topic("describe"))),
    Row(OffsetFetchRequest, 9, {"groups": [{"group_id": GROUP, "member_id": None,
        "member_epoch": -1, "topics": None}], "require_stable": False},
        (group("describe"), topic("describe", code=HIDDEN)), "of all partitions"),
    Row(OffsetDeleteRequest, 0, {"group_id": GROUP, "topics": [{"name": TOPIC,
        "partitions": [{"partition_index": 0}]}]},
        (group("delete"), topic("read"))),
    Row(DescribeGroupsRequest, 6, {"groups": [GROUP], "include_authorized_operations": False},
        (group("describe"),)),
    Row(ListGroupsRequest, 5, {"states_filter": [], "types_filter": []},
        (group("describe", ("describe", "cluster", "kafka-cluster"), code=HIDDEN),)),
    Row(DeleteGroupsRequest, 2, {"groups_names": [GROUP]}, (group("delete"),)),
    Row(CreateTopicsRequest, 7, {"topics": [{"name": "new", "num_partitions": 1,
        "replication_factor": 1, "assignments": [], "configs": []}], "timeout_ms": 1000,
        "validate_only": False},
        (Right(_TOPIC_CODE, "create", "topic", "new", (("create", "cluster", "kafka-cluster"),)),)),
    Row(DeleteTopicsRequest, 6, {"topics": [{"name": TOPIC}], "timeout_ms": 1000},
        (topic("delete"),)),
    Row(CreatePartitionsRequest, 3, {"topics": [{"name": TOPIC, "count": 3,
        "assignments": None}], "timeout_ms": 1000, "validate_only": False},
        (topic("alter"),)),
    Row(DeleteRecordsRequest, 2, {"topics": [{"name": TOPIC,
        "partitions": [{"partition_index": 0, "offset": 1}]}], "timeout_ms": 1000},
        (topic("delete"),)),
    *(Row(DescribeConfigsRequest, 4, {"resources": [{"resource_type": kind,
        "resource_name": name, "configuration_keys": None}], "include_synonyms": False,
        "include_documentation": False}, (right,), of) for kind, name, right, of in ((2, TOPIC,
        topic("describe_configs"), "of a topic"), (4, "1", cluster("describe_configs"),
        "of the broker"), (32, GROUP, group("describe_configs"), "of a group"))),
    Row(AlterConfigsRequest, 2, {"resources": [{"resource_type": 2, "resource_name": TOPIC,
        "configs": []}], "validate_only": False},
        (topic("alter_configs"),)),
    *(Row(IncrementalAlterConfigsRequest, 1, {"resources": [{"resource_type": kind,
        "resource_name": name, "configs": []}], "validate_only": False}, (right,), of) for kind,
        name, right, of in ((4, "1", cluster("alter_configs"), "of the broker"), (32, GROUP,
        group("alter_configs"), "of a group"))),
    Row(IncrementalAlterConfigsRequest, 1, {"resources": [{"resource_type": 2,
        "resource_name": TOPIC, "configs": [{"name": "retention.ms", "config_operation": 0,
        "value": "1000000"}]}], "validate_only": False},
        (topic("alter_configs"),)),
    Row(ListConfigResourcesRequest, 1, {"resource_types": []}, (cluster("describe_configs"),)),
    Row(DescribeAclsRequest, 3, _WANTED, (cluster("describe"),)),
    Row(CreateAclsRequest, 3, {"creations": [_ACL]}, (cluster("alter"),)),
    Row(DeleteAclsRequest, 3, {"filters": [_WANTED]}, (cluster("alter"),)),
    Row(DescribeClusterRequest, 2, {"include_cluster_authorized_operations": False,
        "endpoint_type": 1, "include_fenced_brokers": False},
        uses_file=False),
    *(Row(DescribeTopicPartitionsRequest, 0, {"topics": [{"name": name} for name in names],
        "response_partition_limit": 2000, "cursor": None}, (topic("describe", code=code),), of)
        for names, code, of in (((TOPIC,), _TOPIC_CODE, ""), ((), HIDDEN, "of all topics"))),
    Row(DescribeProducersRequest, 0, {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        (topic("read"),)),
    Row(DescribeTransactionsRequest, 0, {"transactional_ids": [ID]},
        (of_id("describe"), topic("describe", code=HIDDEN))),
    Row(ListTransactionsRequest, 1, {"state_filters": [], "producer_id_filters": [],
        "duration_filter": -1},
        (of_id("describe", code=HIDDEN),)),
    Row(WriteTxnMarkersRequest, 1, lambda who: {"markers": [{"producer_id": who[0],
        "producer_epoch": who[1], "transaction_result": False, "topics": [{"name": TOPIC,
        "partition_indexes": [0]}], "coordinator_epoch": 0}]},
        (cluster("alter", ("cluster_action", "cluster", "kafka-cluster")),)),
    Row(DescribeLogDirsRequest, 4, {"topics": None}, (cluster("describe"),)),
    Row(ListPartitionReassignmentsRequest, 0, {"timeout_ms": 1000, "topics": None},
        (cluster("describe"),)),
    Row(AlterPartitionReassignmentsRequest, 1, {"topics": [{"name": TOPIC,
        "partitions": [{"partition_index": 0, "replicas": [1]}]}], "timeout_ms": 1000,
        "allow_replication_factor_change": True},
        (cluster("alter"),)),
    Row(ElectLeadersRequest, 2, {"election_type": 0, "timeout_ms": 1000,
        "topic_partitions": [{"topic": TOPIC, "partitions": [0]}]},
        (cluster("alter"),)),
    Row(AlterReplicaLogDirsRequest, 2, {"dirs": [{"path": "/other", "topics": [{"name": TOPIC,
        "partitions": [0]}]}]},
        (cluster("alter"),)),
    Row(AlterClientQuotasRequest, 1, {"entries": [{"entity": [{"entity_type": "user",
        "entity_name": "nobody"}], "ops": []}], "validate_only": False},
        (cluster("alter_configs"),)),
    Row(UpdateFeaturesRequest, 2, {"timeout_ms": 1000, "feature_updates": [],
        "validate_only": False},
        (cluster("alter"),)),
    Row(DescribeQuorumRequest, 2, {"topics": [{"topic_name": "__cluster_metadata",
        "partitions": [{"partition_index": 0}]}]},
        (cluster("describe"),)),
)  # fmt: skip
