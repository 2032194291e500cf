"""Share groups and two-phase commit are refused as by a Kafka without them, and not in silence."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
from kafka.protocol.metadata.api_versions import ApiVersionsRequest

from eosdb.wire.schemas import ShareGroupHeartbeatRequest
from eosdb.wire.server import Server
from tests.wire.clients import PATIENCE_S
from tests.wire.peer import Peer

INIT_PRODUCER_ID = 22


def test_librdkafkas_share_consumer_ends_with_an_error(server: Server) -> None:
    """decisions/0070: where the request is not announced it waits for ever."""
    of: Any = confluent_kafka
    consumer = of.ShareConsumer(
        {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "log_level": 0}
    )
    try:
        consumer.subscribe(["t"])
        with pytest.raises(confluent_kafka.KafkaException, match="ShareGroupHeartbeat fatal error"):
            consumer.poll(PATIENCE_S)
    finally:
        consumer.close()


def test_the_heartbeat_is_answered_as_by_kafka(peer: Peer) -> None:
    asked: Any = ShareGroupHeartbeatRequest
    peer.send(asked(group_id="g", member_id="m", member_epoch=0), 1)
    answer = peer._read(int.from_bytes(peer._read(4)))
    assert answer[4:] == bytes.fromhex("00 00000000 0023 00 00 00000000 00000000 ff 00")


def test_two_phase_commit_is_not_announced(peer: Peer) -> None:
    """decisions/0071: it comes with version 6."""
    answer = peer.ask(ApiVersionsRequest(), 0)
    assert {it.api_key: it.max_version for it in answer.api_keys}[INIT_PRODUCER_ID] == 5
