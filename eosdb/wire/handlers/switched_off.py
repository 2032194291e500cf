"""What Kafka 4.1.1 answers where the consumer group protocol (KIP-848) is switched off, as it is here.

Its requests are served so that they can be refused: where a broker does not name them among its versions,
librdkafka waits for ever, in silence.
"""

from __future__ import annotations

from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

from eosdb.wire import schemas
from eosdb.wire.errors import UNSUPPORTED_VERSION
from eosdb.wire.session import Session


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=schemas):
    """A member of a group of the new protocol."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=schemas):
    """What it is told."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json=schemas):
    """An administrator who asks about groups of the new protocol."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=schemas):
    """What each of them is."""


_Heartbeat: Final[Any] = ConsumerGroupHeartbeatResponse
_Described: Final[Any] = ConsumerGroupDescribeResponse
"""Their members are made of the schemas, which mypy does not know."""


def heartbeat(session: Session, request: Any, version: int) -> ApiMessage:
    answer: ApiMessage = _Heartbeat(error_code=UNSUPPORTED_VERSION)
    return answer


def describe(session: Session, request: Any, version: int) -> ApiMessage:
    """Administrators' clients then ask for groups of the classic protocol."""
    one = _Described.DescribedGroup
    groups = [one(error_code=UNSUPPORTED_VERSION, group_id=name) for name in request.group_ids]
    answer: ApiMessage = _Described(groups=groups)
    return answer
