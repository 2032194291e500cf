"""What every client asks first: which APIs there are, which topics, and where the coordinator is."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from uuid import UUID

import pytest
from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest
from kafka.protocol.metadata.metadata import MetadataRequest

import eosdb
from eosdb import BrokerConfig
from eosdb.wire.handlers import APIS
from eosdb.wire.schemas import ApiVersionsRequest
from eosdb.wire.server import Server
from tests.cases import each
from tests.wire.peer import Peer, asking


@each("version", range(6))
def test_the_versions_of_every_api_are_told_in_every_version(peer: Peer, version: int) -> None:
    asked = asking(ApiVersionsRequest, client_software_name="peer", client_software_version="1")
    answer = peer.ask(asked, version)
    assert {a.api_key: (a.min_version, a.max_version) for a in answer.api_keys} == {
        key: (api.lowest, api.highest) for key, api in APIS.items()
    }
    if version >= 3:
        levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        assert levels == {"group.version": 1, "transaction.version": 2}
        # As Kafka 4.4: Java's clients before 3.8 refuse a feature whose lowest level is 0.
        ranges = {(f.name, f.min_version, f.max_version) for f in answer.supported_features}
        all_levels = {("group.version", 0, 1), ("transaction.version", 0, 2)}
        assert ranges == (all_levels if version >= 4 else set())


def test_a_client_of_a_later_kafka_is_told_what_there_is(peer: Peer) -> None:
    peer.socket.sendall(struct.pack(">ihhih", 11, 18, 99, 7, 1) + b"x")
    (size,) = struct.unpack(">i", peer.socket.recv(4, socket.MSG_WAITALL))
    answer = peer.socket.recv(size, socket.MSG_WAITALL)
    assert struct.unpack_from(">ihihhh", answer) == (7, 35, 1, 18, 0, 5)


@pytest.mark.slow
@each("version", range(14))
def test_a_topic_is_described_in_every_version(peer: Peer, server: Server, version: int) -> None:
    answer = peer.ask(asking(MetadataRequest, topics=[{"name": "t"}]), version)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, server.host, server.port)]
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (0, "t")
    assert [(p.partition_index, p.leader_id) for p in topic.partitions] == [(0, 1), (1, 1)]


def test_all_topics_are_described_to_who_names_none(peer: Peer, db: eosdb.Database) -> None:
    db.admin.create_topic("u")
    for version, everything in ((0, []), (12, None)):
        answer = peer.ask(MetadataRequest(topics=everything), version)
        assert [topic.name for topic in answer.topics] == ["t", "u"]
    assert peer.ask(MetadataRequest(topics=[]), 12).topics == []


def test_an_unknown_topic_and_a_bad_name_have_their_errors(peer: Peer) -> None:
    answer = peer.ask(asking(MetadataRequest, topics=[{"name": "gone"}, {"name": "a b"}]), 12)
    assert [topic.error_code for topic in answer.topics] == [3, 17]


def test_a_topic_is_created_only_where_broker_and_client_agree(tmp_path: Path) -> None:
    config = BrokerConfig(auto_create_topics_enable=True)
    with (
        eosdb.connect(tmp_path / "a.db", config=config) as db,
        db.serve() as server,
        Peer(server) as peer,
    ):
        asked = asking(MetadataRequest, topics=[{"name": "new"}], allow_auto_topic_creation=False)
        assert [t.error_code for t in peer.ask(asked, 12).topics] == [3]
        asked = asking(MetadataRequest, topics=[{"name": "new"}], allow_auto_topic_creation=True)
        assert [t.error_code for t in peer.ask(asked, 12).topics] == [0]
        assert db.admin.list_topics() == ["new"]


def test_a_topic_keeps_its_id_and_one_made_anew_has_another(
    db: eosdb.Database, db_path: Path, clock: eosdb.ManualClock
) -> None:
    def topic_id(db: eosdb.Database) -> UUID:
        with db.serve() as server, Peer(server) as peer:
            (topic,) = peer.ask(asking(MetadataRequest, topics=[{"name": "t"}]), 12).topics
            found = peer.ask(
                asking(MetadataRequest, topics=[{"name": None, "topic_id": topic.topic_id}]), 12
            )
            assert [t.name for t in found.topics] == ["t"]
            assert isinstance(topic.topic_id, UUID)
            return topic.topic_id

    db.admin.create_topic("t")
    first = topic_id(db)
    with eosdb.connect(db_path, clock=clock) as again:
        assert topic_id(again) == first
    db.admin.delete_topic("t")
    db.admin.create_topic("t")
    assert topic_id(db) != first


def test_an_unknown_topic_id_has_its_error(peer: Peer) -> None:
    answer = peer.ask(asking(MetadataRequest, topics=[{"name": None, "topic_id": UUID(int=7)}]), 12)
    assert [topic.error_code for topic in answer.topics] == [100]


def test_the_cluster_has_the_id_of_the_file(peer: Peer, db: eosdb.Database) -> None:
    first = peer.ask(MetadataRequest(topics=[]), 12).cluster_id
    assert first == db.broker.cluster_id()
    assert len(first) == 22


@each("version", range(7))
def test_the_coordinator_is_this_server(peer: Peer, server: Server, version: int) -> None:
    for key_type in (0, 1) if version else (0,):
        answer = peer.ask(
            FindCoordinatorRequest(key="a", key_type=key_type, coordinator_keys=["a"]), version
        )
        found = answer.coordinators[0] if version >= 4 else answer
        assert (found.error_code, found.node_id, found.port) == (0, 1, server.port)


def test_a_coordinator_of_share_groups_is_not_served(peer: Peer) -> None:
    answer = peer.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=["g:t:0"]), 6)
    assert [found.error_code for found in answer.coordinators] == [42]
