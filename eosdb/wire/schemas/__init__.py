"""The messages, or their newest versions, that kafka-python lacks, created from Kafka's JSON schemas.

They have no types: mypy does not know the fields that kafka-python creates from a schema. A response takes
the place of kafka-python's own in the process, also for its clients: it has all older versions, too. So
kafka-python's modules of these messages are imported first.
"""

from __future__ import annotations

import sys
from typing import Final

from kafka.protocol.admin import groups as _groups
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import api_versions as _api_versions
from kafka.protocol.producer import transaction as _transaction

_HERE: Final = sys.modules[__name__]


class ApiVersionsRequest(_api_versions.ApiVersionsRequest, load_json=_HERE):
    """Version 5: the cluster and the broker that the client means (KIP-1242)."""


class ApiVersionsResponse(_api_versions.ApiVersionsResponse, load_json=_HERE):
    """The response to ApiVersionsRequest."""


class TxnOffsetCommitRequest(_transaction.TxnOffsetCommitRequest, load_json=_HERE):
    """Version 6: topics by their ids (KIP-1319)."""


class TxnOffsetCommitResponse(_transaction.TxnOffsetCommitResponse, load_json=_HERE):
    """The response to TxnOffsetCommitRequest."""


class WriteTxnMarkersRequest(_transaction.WriteTxnMarkersRequest, load_json=_HERE):
    """Version 2: the transaction version of a marker (KIP-1228)."""


class WriteTxnMarkersResponse(_transaction.WriteTxnMarkersResponse, load_json=_HERE):
    """The response to WriteTxnMarkersRequest."""


class DeleteGroupsRequest(_groups.DeleteGroupsRequest, load_json=_HERE):
    """Version 3: an error text in the response."""


class DeleteGroupsResponse(_groups.DeleteGroupsResponse, load_json=_HERE):
    """The response to DeleteGroupsRequest."""


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=_HERE):
    """The heartbeat of a member of a group whose partitions the coordinator assigns (KIP-848)."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=_HERE):
    """The response to ConsumerGroupHeartbeatRequest."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_HERE):
    """A request for the description of groups whose partitions the coordinator assigns (KIP-848)."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_HERE):
    """The response to ConsumerGroupDescribeRequest: the description of each group."""


class ShareGroupHeartbeatRequest(ApiMessage, load_json=_HERE):
    """The heartbeat of a member of a share group (KIP-932)."""


class ShareGroupHeartbeatResponse(ApiMessage, load_json=_HERE):
    """The response to ShareGroupHeartbeatRequest."""
