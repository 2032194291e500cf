"""Every API that is served: its versions, its request class, and its handler.

The versions are those of Kafka 4.1, as far as eosdb implements everything they ask for (docs/wire.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.admin.acl import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
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
from kafka.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
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

from eosdb.errors import InvalidRequestError
from eosdb.wire.handlers import (
    acls,
    cluster,
    configs,
    consumer_groups,
    features,
    fetch,
    group_admin,
    group_offsets,
    groups,
    inspection,
    offsets,
    placement,
    produce,
    quotas,
    sasl,
    share_groups,
    topics,
    transactions,
    users,
)
from eosdb.wire.messages import Response
from eosdb.wire.session import Session

_SOFTWARE_FROM: Final = 3
_SOFTWARE: Final = re.compile("[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
"""The allowed form of a client's software name and version (KIP-511)."""
Handler = Callable[[Session, Any, int], Response | None]
"""Returns the response to a request of a version, or None if none is sent (acks=0)."""


@dataclass(frozen=True, slots=True)
class Api:
    """An API of Kafka's protocol, as it is served."""

    lowest: int
    highest: int
    request: type[ApiMessage]
    handle: Handler

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")

    @property
    def key(self) -> int:
        return int(self.request.API_KEY)


def api_versions(
    session: Session, request: ApiVersionsRequest, version: int
) -> ApiVersionsResponse:
    """The served APIs, and the features of the cluster (KIP-584)."""
    if version >= _SOFTWARE_FROM and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=InvalidRequestError.code, api_keys=[])
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=api.key, min_version=api.lowest, max_version=api.highest
            )
            for api in APIS.values()
        ],
        supported_features=features.supported(session),
        finalized_features_epoch=0,
        finalized_features=features.finalized(session),
    )


# decisions/0071: InitProducerId ends before the version with two-phase commit.
APIS: Final = {
    api.key: api
    for api in (
        # librdkafka takes a broker without Produce 0 for one that knows no compression (KAFKA-18659).
        Api(0, 13, ProduceRequest, produce.produce),
        Api(4, 18, FetchRequest, fetch.fetch),
        Api(1, 10, ListOffsetsRequest, offsets.list_offsets),
        Api(2, 4, OffsetForLeaderEpochRequest, offsets.for_leader_epoch),
        Api(0, 4, ApiVersionsRequest, api_versions),
        Api(0, 13, MetadataRequest, cluster.metadata),
        Api(0, 6, FindCoordinatorRequest, cluster.find_coordinator),
        Api(0, 5, InitProducerIdRequest, transactions.init_producer_id),
        Api(0, 3, AddPartitionsToTxnRequest, transactions.add_partitions),
        Api(0, 4, AddOffsetsToTxnRequest, transactions.add_offsets),
        Api(0, 5, EndTxnRequest, transactions.end_txn),
        Api(0, 5, TxnOffsetCommitRequest, group_offsets.txn_offset_commit),
        Api(0, 1, SaslHandshakeRequest, sasl.handshake),
        Api(0, 2, SaslAuthenticateRequest, sasl.authenticate),
        Api(0, 0, DescribeUserScramCredentialsRequest, users.describe),
        Api(0, 0, AlterUserScramCredentialsRequest, users.alter),
        Api(0, 1, DescribeClientQuotasRequest, quotas.describe_quotas),
        Api(0, 1, AlterClientQuotasRequest, quotas.alter_quotas),
        Api(0, 9, JoinGroupRequest, groups.join_group),
        Api(0, 5, SyncGroupRequest, groups.sync_group),
        Api(0, 4, HeartbeatRequest, groups.heartbeat),
        Api(0, 5, LeaveGroupRequest, groups.leave_group),
        Api(0, 1, consumer_groups.ConsumerGroupHeartbeatRequest, consumer_groups.heartbeat),
        Api(0, 1, consumer_groups.ConsumerGroupDescribeRequest, consumer_groups.describe),
        Api(1, 1, share_groups.ShareGroupHeartbeatRequest, share_groups.heartbeat),
        Api(2, 10, OffsetCommitRequest, group_offsets.offset_commit),
        Api(1, 10, OffsetFetchRequest, group_offsets.offset_fetch),
        Api(0, 0, OffsetDeleteRequest, group_offsets.offset_delete),
        Api(0, 6, DescribeGroupsRequest, group_admin.describe_groups),
        Api(0, 5, ListGroupsRequest, group_admin.list_groups),
        Api(0, 2, DeleteGroupsRequest, group_admin.delete_groups),
        Api(2, 7, CreateTopicsRequest, topics.create_topics),
        Api(1, 6, DeleteTopicsRequest, topics.delete_topics),
        Api(0, 3, CreatePartitionsRequest, topics.create_partitions),
        Api(0, 2, DeleteRecordsRequest, topics.delete_records),
        Api(1, 4, DescribeConfigsRequest, configs.describe_configs),
        Api(0, 2, AlterConfigsRequest, configs.alter_configs),
        Api(0, 1, IncrementalAlterConfigsRequest, configs.alter_incrementally),
        Api(0, 1, ListConfigResourcesRequest, configs.list_config_resources),
        Api(1, 3, DescribeAclsRequest, acls.describe_acls),
        Api(1, 3, CreateAclsRequest, acls.create_acls),
        Api(1, 3, DeleteAclsRequest, acls.delete_acls),
        Api(0, 2, DescribeClusterRequest, cluster.describe_cluster),
        Api(0, 0, DescribeTopicPartitionsRequest, cluster.describe_topic_partitions),
        Api(0, 0, DescribeProducersRequest, inspection.describe_producers),
        Api(0, 0, DescribeTransactionsRequest, inspection.describe_transactions),
        Api(0, 2, ListTransactionsRequest, inspection.list_transactions),
        Api(1, 1, WriteTxnMarkersRequest, inspection.write_txn_markers),
        Api(1, 4, DescribeLogDirsRequest, inspection.describe_log_dirs),
        Api(0, 2, ElectLeadersRequest, placement.elect_leaders),
        Api(0, 1, AlterPartitionReassignmentsRequest, placement.alter_reassignments),
        Api(0, 0, ListPartitionReassignmentsRequest, placement.list_reassignments),
        Api(1, 2, AlterReplicaLogDirsRequest, placement.alter_log_dirs),
        Api(0, 2, UpdateFeaturesRequest, features.update_features),
        Api(0, 2, DescribeQuorumRequest, cluster.describe_quorum),
    )
}
