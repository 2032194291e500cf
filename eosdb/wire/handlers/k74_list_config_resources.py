"""ListConfigResources: the resources that have settings (KIP-1142).

Version 0: client metrics alone, which eosdb does not have; 1: resources of all types.
"""

from __future__ import annotations

from kafka.protocol.admin.configs import ListConfigResourcesRequest

from eosdb.admin.tools import Tools
from eosdb.errors import UnsupportedVersionError
from eosdb.model import requests
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.handlers.k33_alter_configs import BROKER, CLIENT_METRICS, GROUP, KINDS, TOPIC
from eosdb.wire.session import NODE_ID


@serves(ListConfigResourcesRequest, 0, 1, right="describe_configs")
def list_config_resources(
    session: Session, request: ListConfigResourcesRequest, version: int
) -> Fields:
    wanted = (request.resource_types or list(KINDS)) if version >= 1 else [CLIENT_METRICS]
    if not set(wanted) <= set(KINDS):
        return {"error_code": UnsupportedVersionError.code}
    resources = [
        *((TOPIC, name) for name in session.broker.ask(requests.TopicPartitions())),
        (BROKER, str(NODE_ID)),
        *((GROUP, name) for name in Tools(session.admin).list_group_configs()),
    ]
    return {
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind, name in resources
            if kind in wanted
        ]
    }
