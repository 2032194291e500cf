"""The messages that kafka-python lacks, created from Kafka's JSON schemas.

They have no types: mypy does not know the fields that kafka-python creates from a schema.
"""

from __future__ import annotations

import sys
from typing import Final

from kafka.protocol.api_message import ApiMessage

_HERE: Final = sys.modules[__name__]


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
