"""DescribeCluster: the one broker (KIP-700).

Version 1: the kind of endpoints, brokers or controllers (KIP-919); 2: fenced brokers (KIP-1073), which do
not occur.
"""

from __future__ import annotations

from typing import Final

from kafka.protocol.admin.cluster import DescribeClusterRequest

from eosdb.coordinator.authorizer import CLUSTER
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.errors import MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE
from eosdb.wire.session import NODE_ID

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


@serves(DescribeClusterRequest, 0, 2)
def describe_cluster(session: Session, request: DescribeClusterRequest, _: int) -> Fields:
    kind = request.endpoint_type
    if kind != _BROKERS:
        code = MISMATCHED_ENDPOINT_TYPE if kind == _CONTROLLERS else UNSUPPORTED_ENDPOINT_TYPE
        return {
            "error_code": code,
            "error_message": f"endpoint_type: got {kind}, expected {_BROKERS}, brokers",
        }
    with_operations = request.include_cluster_authorized_operations
    return {
        "cluster_id": session.cluster_id,
        "controller_id": NODE_ID,
        "brokers": [{"broker_id": NODE_ID, "host": session.host, "port": session.port}],
        "authorized_operations": session.operations(with_operations, "cluster", CLUSTER),
    }
