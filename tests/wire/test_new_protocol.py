"""The group protocol of KIP-848 is refused as by Kafka 4.1.1 with it switched off, and not in silence."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import AdminClient

from eosdb.wire.handlers import switched_off
from eosdb.wire.server import Server
from tests.wire.clients import PATIENCE_S
from tests.wire.peer import Peer


def test_librdkafka_is_told_that_there_is_no_such_protocol(server: Server) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "g",
            "group.protocol": "consumer",
        }
    )
    try:
        consumer.subscribe(["t"])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._FATAL
        assert (
            "ConsumerGroupHeartbeat fatal error: Broker: API version not supported" in error.str()
        )
    finally:
        consumer.close()


@pytest.mark.parametrize("version", [0, 1])
def test_every_version_is_answered_as_by_kafka(peer: Peer, version: int) -> None:
    asked: Any = switched_off.ConsumerGroupHeartbeatRequest
    peer.send(asked(group_id="g", member_id="m", member_epoch=0), version)
    assert frame(peer)[4:] == bytes.fromhex("00 00000000 0023 00 00 00000000 00000000 ff 00")
    asked = switched_off.ConsumerGroupDescribeRequest
    peer.send(asked(group_ids=["g"], include_authorized_operations=False), version)
    group = bytes.fromhex("0023 00 0267 01 00000000 00000000 01 01 80000000 00")
    assert frame(peer)[4:] == bytes.fromhex("00 00000000 02") + group + b"\0"


def frame(peer: Peer) -> bytes:
    return peer._read(int.from_bytes(peer._read(4)))


def test_an_administrator_describes_classic_groups_nevertheless(server: Server) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    (described,) = admin.describe_consumer_groups(["g"]).values()
    assert described.result(PATIENCE_S).group_id == "g"
