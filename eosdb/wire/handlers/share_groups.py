"""Share groups (KIP-932), answered as by Kafka 4.1.1 on which they are off (decisions/0070).

The heartbeat is served in order to be refused: if the broker does not announce it, librdkafka's share
consumer waits for ever and reports nothing. The other APIs of share groups come after it.
"""

from __future__ import annotations

from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

from eosdb.wire import schemas
from eosdb.wire.errors import UNSUPPORTED_VERSION
from eosdb.wire.session import Session


class ShareGroupHeartbeatRequest(ApiMessage, load_json=schemas):
    """The heartbeat of a member of a share group."""


class ShareGroupHeartbeatResponse(ApiMessage, load_json=schemas):
    """The response to it."""


_Heartbeat: Final[Any] = ShareGroupHeartbeatResponse
"""Typed as Any: mypy does not know the members that kafka-python creates from the schema."""


def heartbeat(session: Session, request: Any, version: int) -> ApiMessage:
    answer: ApiMessage = _Heartbeat(error_code=UNSUPPORTED_VERSION)
    return answer
