"""The consumer group protocol of KIP-848, answered as by Kafka 4.1.1 where that protocol is switched off.

Its requests are served in order to be refused: if the broker does not announce them, librdkafka waits for
ever and reports nothing.
"""

from __future__ import annotations

from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

from eosdb.wire import schemas
from eosdb.wire.errors import UNSUPPORTED_VERSION
from eosdb.wire.session import Session


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=schemas):
    """The heartbeat of a member of a group of the new protocol."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=schemas):
    """The response to a heartbeat."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json=schemas):
    """A request for the description of groups of the new protocol."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=schemas):
    """The description of each group."""


_Heartbeat: Final[Any] = ConsumerGroupHeartbeatResponse
_Described: Final[Any] = ConsumerGroupDescribeResponse
"""Typed as Any: mypy does not know the members that kafka-python creates from the schemas."""


def heartbeat(session: Session, request: Any, version: int) -> ApiMessage:
    answer: ApiMessage = _Heartbeat(error_code=UNSUPPORTED_VERSION)
    return answer


def describe(session: Session, request: Any, version: int) -> ApiMessage:
    """UNSUPPORTED_VERSION for each group, after which admin clients ask for groups of the classic
    protocol."""
    described = _Described.DescribedGroup
    groups = [
        described(error_code=UNSUPPORTED_VERSION, group_id=name) for name in request.group_ids
    ]
    answer: ApiMessage = _Described(groups=groups)
    return answer
