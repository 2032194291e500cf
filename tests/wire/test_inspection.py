"""What operators look at over the wire: the cluster, producers, transactions, directories."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin.cluster import DescribeClusterRequest, DescribeLogDirsRequest
from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.metadata.metadata import MetadataRequest
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

import eosdb
from eosdb import Acl, BrokerConfig, Record, RecordBatch, TopicPartition
from eosdb.wire.server import Server
from tests.cases import each
from tests.wire.peer import Peer, asking

TP = TopicPartition("t", 0)
INVALID_REGULAR_EXPRESSION = 128
ALL_OF_CLUSTER = {5, 7, 8, 9, 10, 11, 12}
ALL_OF_TOPIC = {3, 4, 5, 6, 7, 8, 10, 11}
ALL_OF_GROUP = {3, 6, 8, 10, 11}


@pytest.fixture
def producer(db: eosdb.Database, server: Server) -> Iterator[eosdb.Producer]:
    """With an open transaction in "t"."""
    with db.producer(transactional_id="q", transaction_timeout_ms=5_000) as made:
        made.init_transactions()
        made.begin_transaction()
        made.send("t", b"v", partition=0)
        made.flush()
        yield made


@pytest.fixture
def permitted(db_path: Path) -> Iterator[Peer]:
    """Of a server on a file where everybody may read "t" and the group "g", and create on the cluster."""
    rows = [
        Acl("User:*", "read", "topic", "t"),
        Acl("User:*", "read", "group", "g"),
        Acl("User:*", "create", "cluster", "kafka-cluster"),
    ]
    config = BrokerConfig(super_users="User:admin")
    with eosdb.connect(db_path, principal="User:admin", config=config) as db:
        db.admin.create_topic("t")
        db.broker.offset_commit("g", {TP: eosdb.OffsetAndMetadata(0)})
        db.admin.create_acls(rows)
        with db.serve() as server, Peer(server) as peer:
            yield peer


def cluster(**fields: Any) -> DescribeClusterRequest:
    given = {
        "include_cluster_authorized_operations": False,
        "endpoint_type": 1,
        "include_fenced_brokers": False,
    }
    return DescribeClusterRequest(**(given | fields))


@each("version", range(3))
def test_the_cluster_is_one_broker(server: Server, peer: Peer, version: int) -> None:
    found = peer.ask(cluster(), version)
    (broker,) = found.brokers
    assert (broker.broker_id, broker.host, broker.port) == (1, server.host, server.port)
    assert (found.controller_id, found.authorized_operations) == (1, None)
    asked = peer.ask(cluster(include_cluster_authorized_operations=True), version)
    assert asked.authorized_operations == ALL_OF_CLUSTER


def test_there_are_no_controllers_to_ask_for(peer: Peer) -> None:
    assert [peer.ask(cluster(endpoint_type=kind), 1).error_code for kind in (2, 3)] == [114, 115]


def metadata(asked: bool) -> MetadataRequest:
    return asking(
        MetadataRequest,
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=asked,
        include_topic_authorized_operations=asked,
    )


@each("version", range(8, 13))
def test_metadata_names_what_one_may_do_when_asked(peer: Peer, version: int) -> None:
    for asked, of_topic, of_cluster in ((True, ALL_OF_TOPIC, ALL_OF_CLUSTER), (False, None, None)):
        found = peer.ask(metadata(asked), version)
        (topic,) = found.topics
        assert topic.authorized_operations == of_topic
        if version <= 10:
            assert found.authorized_operations == of_cluster


def test_operations_are_those_that_acls_allow(permitted: Peer) -> None:
    (topic,) = permitted.ask(metadata(True), 12).topics
    assert topic.authorized_operations == {3, 8}
    groups = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    (group,) = permitted.ask(groups, 5).groups
    assert (group.error_code, group.authorized_operations) == (0, {3, 8})
    asked = cluster(include_cluster_authorized_operations=True)
    assert permitted.ask(asked, 1).authorized_operations == set()


@each("version", range(3, 7))
def test_groups_name_what_one_may_do_when_asked(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    db.broker.offset_commit("g", {TP: eosdb.OffsetAndMetadata(0)})
    for asked, expected in ((True, ALL_OF_GROUP), (False, None)):
        request = asking(DescribeGroupsRequest, groups=["g"], include_authorized_operations=asked)
        (group,) = peer.ask(request, version).groups
        assert group.authorized_operations == expected


def test_producers_are_described_partition_by_partition(
    producer: eosdb.Producer, peer: Peer
) -> None:
    asked = [{"name": "t", "partition_indexes": [0, 9]}, {"name": "b d", "partition_indexes": [0]}]
    answer = peer.ask(asking(DescribeProducersRequest, topics=asked), 0)
    (found, missing), (bad,) = (topic.partitions for topic in answer.topics)
    (state,) = found.active_producers
    assert (found.error_code, state.last_sequence, state.current_txn_start_offset) == (0, 0, 0)
    assert (missing.error_code, bad.error_code) == (3, 17)


def test_transactions_are_described_one_by_one(producer: eosdb.Producer, peer: Peer) -> None:
    request = DescribeTransactionsRequest(transactional_ids=["q", "none", ""])
    found, missing, bad = peer.ask(request, 0).transaction_states
    assert (found.error_code, found.transaction_state) == (0, "Ongoing")
    assert found.transaction_timeout_ms == 5_000
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0])]
    assert (missing.error_code, bad.error_code) == (105, 42)


@each("version", range(3))
def test_transactions_are_listed_by_state_producer_and_age(
    producer: eosdb.Producer, peer: Peer, version: int
) -> None:
    def listed(
        states: tuple[str, ...] = (), ids: tuple[int, ...] = (), age: int = -1
    ) -> tuple[list[str], list[str]]:
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(ids), duration_filter=age
        )
        answer = peer.ask(request, version)
        assert answer.error_code == 0
        names = [one.transactional_id for one in answer.transaction_states]
        return names, answer.unknown_state_filters

    assert listed() == (["q"], [])
    assert listed(("Ongoing", "Odd")) == (["q"], ["Odd"])
    assert listed(("CompleteCommit",)) == ([], [])
    assert listed(ids=(12_345,)) == ([], [])
    assert listed(age=60_000) == (([] if version >= 1 else ["q"]), [])


def test_transactions_are_listed_by_a_pattern_of_their_ids(
    db: eosdb.Database, producer: eosdb.Producer, peer: Peer
) -> None:
    db.broker.init_producer_id("qü")

    def listed(pattern: str | None) -> list[str] | int:
        request = ListTransactionsRequest(
            state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
        )
        answer = peer.ask(request, 2)
        return answer.error_code or [one.transactional_id for one in answer.transaction_states]

    assert listed(None) == listed("") == listed("q.?") == ["q", "qü"]
    assert listed("[a-z]") == ["q"]
    assert listed("(?=a)") == listed("a(") == INVALID_REGULAR_EXPRESSION


def test_a_hanging_transaction_is_ended_by_its_markers(
    db: eosdb.Database, peer: Peer, producer: eosdb.Producer
) -> None:
    (state,) = db.broker.describe_producers(TP)
    request = asking(
        WriteTxnMarkersRequest,
        markers=[
            {
                "producer_id": state.producer_id,
                "producer_epoch": state.producer_epoch,
                "transaction_result": False,
                "topics": [
                    {"name": "t", "partition_indexes": [0, 9]},
                    {"name": "none", "partition_indexes": [0]},
                ],
                "coordinator_epoch": state.coordinator_epoch,
            }
        ],
    )
    (written,) = peer.ask(request, 1).markers
    codes = [[p.error_code for p in topic.partitions] for topic in written.topics]
    assert codes == [[0, 3], [3]]
    assert db.broker.offsets(TP).last_stable_offset == 2
    (state,) = db.broker.describe_producers(TP)
    assert state.current_txn_start_offset == -1


@pytest.mark.parametrize("version", range(1, 6))
def test_the_files_folder_is_the_one_log_directory(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    db.broker.append(TP, RecordBatch([Record(value=b"x" * 1_000)]))

    def sizes(topics: Any) -> dict[tuple[str, int], int]:
        (directory,) = peer.ask(asking(DescribeLogDirsRequest, topics=topics), version).results
        assert directory.log_dir == os.path.dirname(db.path)
        if version >= 4:
            assert directory.total_bytes > directory.usable_bytes > 0
        assert not directory.is_cordoned
        return {
            (topic.name, p.partition_index): p.partition_size
            for topic in directory.topics
            for p in topic.partitions
        }

    found = sizes(None)
    assert set(found) == {("t", 0), ("t", 1)}
    assert (found["t", 0], found["t", 1]) == (1_000, 0)
    assert set(sizes([{"topic": "t", "partitions": [1, 9]}])) == {("t", 1)}
