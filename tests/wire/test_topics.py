"""Topics made, widened, emptied and deleted by foreign clients."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka.protocol.admin.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)

import eosdb
from eosdb import Acl, Record, RecordBatch, TopicPartition
from eosdb.admin.tools import Tools
from eosdb.model import requests
from eosdb.wire.server import Server
from tests.cases import each
from tests.wire.clients import PATIENCE_S
from tests.wire.peer import Peer, asking

NO_ID = UUID(int=0)


@pytest.fixture
def client(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap_servers})


def outcomes(futures: dict[Any, Any]) -> dict[Any, str]:
    """The name of each one's error, or ok."""
    found = {}
    for key, future in futures.items():
        try:
            future.result(PATIENCE_S)
            found[key] = "ok"
        except KafkaException as error:
            found[key] = error.args[0].name()
    return found


def creation(
    *topics: tuple[str, int, int], validate_only: bool = False, **more: Any
) -> CreateTopicsRequest:
    return asking(
        CreateTopicsRequest,
        topics=[
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": replicas,
                "assignments": [
                    {"partition_index": index, "broker_ids": brokers}
                    for index, brokers in more.get("assignments", {}).items()
                ],
                "configs": [
                    {"name": key, "value": value} for key, value in more.get("configs", {}).items()
                ],
            }
            for name, partitions, replicas in topics
        ],
        timeout_ms=1_000,
        validate_only=validate_only,
    )


def test_a_client_creates_widens_and_deletes_topics(
    db: eosdb.Database, client: AdminClient
) -> None:
    new = [NewTopic("a", 3, 1, config={"retention.ms": "1000"}), NewTopic("b", -1, -1)]
    assert outcomes(client.create_topics(new)) == {"a": "ok", "b": "ok"}
    assert db.broker.ask(requests.TopicPartitions()) == {"a": 3, "b": 1, "t": 2}
    assert db.admin.describe_topic("a").config == {"retention.ms": "1000"}
    assert outcomes(client.create_partitions([NewPartitions("a", 5)])) == {"a": "ok"}
    assert db.broker.ask(requests.TopicPartitions())["a"] == 5
    assert outcomes(client.delete_topics(["a", "none"])) == {
        "a": "ok",
        "none": "UNKNOWN_TOPIC_OR_PART",
    }
    assert db.admin.list_topics() == ["b", "t"]


def test_each_topic_of_a_request_has_its_own_answer(
    db: eosdb.Database, client: AdminClient
) -> None:
    new = [
        NewTopic("good", 1, 1),
        NewTopic("t", 1, 1),
        NewTopic("b d", 1, 1),
        NewTopic("copies", 1, 2),
        NewTopic("setting", 1, 1, config={"nope": "1"}),
        NewTopic("value", 1, 1, config={"segment.bytes": "5"}),
        NewTopic("elsewhere", 1, replica_assignment=[[2]]),
    ]
    assert outcomes(client.create_topics(new)) == {
        "good": "ok",
        "t": "TOPIC_ALREADY_EXISTS",
        "b d": "TOPIC_EXCEPTION",
        "copies": "INVALID_REPLICATION_FACTOR",
        "setting": "INVALID_CONFIG",
        "value": "INVALID_CONFIG",
        "elsewhere": "INVALID_REPLICA_ASSIGNMENT",
    }
    assert db.admin.list_topics() == ["good", "t"]


def test_what_is_only_validated_does_not_happen(db: eosdb.Database, client: AdminClient) -> None:
    before = Tools(db.admin).journal_position()
    new = [NewTopic("new", 1, 1), NewTopic("t", 1, 1)]
    assert outcomes(client.create_topics(new, validate_only=True)) == {
        "new": "ok",
        "t": "TOPIC_ALREADY_EXISTS",
    }
    for total, expected in ((9, "ok"), (2, "INVALID_PARTITIONS")):
        wider = client.create_partitions([NewPartitions("t", total)], validate_only=True)
        assert outcomes(wider) == {"t": expected}
    assert Tools(db.admin).journal_position() == before


def test_a_request_creates_10000_partitions_at_most(
    db: eosdb.Database, client: AdminClient
) -> None:
    much = [NewTopic("a", 6_000), NewTopic("b", 4_001)]
    assert outcomes(client.create_topics(much)) == dict.fromkeys("ab", "POLICY_VIOLATION")
    assert {"a", "b"}.isdisjoint(db.admin.list_topics())
    assert outcomes(client.create_topics([NewTopic("c", 10_000)], validate_only=True)) == {
        "c": "ok"
    }


@pytest.mark.parametrize("version", range(2, 8))
def test_the_answer_to_a_creation_has_what_its_version_has(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    answer = peer.ask(creation(("new", 3, 1), configs={"segment.ms": "7"}), version)
    (made,) = answer.topics
    assert (made.name, made.error_code) == ("new", 0)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        assert made.topic_config_error_code == 0
        values = {config.name: (config.value, config.config_source) for config in made.configs}
        assert values["segment.ms"] == ("7", 1)
        assert values["retention.ms"] == ("604800000", 5)
    if version >= 7:
        assert made.topic_id == db.broker.topic("new").topic_id


def test_who_may_not_see_settings_is_not_told_them(db: eosdb.Database, server: Server) -> None:
    allow = Acl("User:ANONYMOUS", "create", "topic", "new")
    db.admin.create_acls([Acl("User:admin", "all", "cluster", "kafka-cluster"), allow])
    with Peer(server) as peer:
        (made,) = peer.ask(creation(("new", 3, 1)), 7).topics
        assert (made.error_code, made.topic_config_error_code, made.configs) == (0, 29, [])
        assert (made.num_partitions, made.replication_factor) == (-1, -1)
        (refused,) = peer.ask(creation(("other", 3, 1)), 7).topics
        assert refused.error_code == 29


def test_a_topic_that_comes_twice_is_not_made(db: eosdb.Database, peer: Peer) -> None:
    answer = peer.ask(creation(("d", 1, 1), ("e", 1, 1), ("d", 2, 1)), 7)
    assert {topic.name: topic.error_code for topic in answer.topics} == {"e": 0, "d": 42}
    assert db.admin.list_topics() == ["e", "t"]


@each(
    ("topic", "assignments", "code"),
    [
        (("n", -1, -1), {0: [1], 1: [1]}, 0),
        (("n", 2, 1), {0: [1], 1: [1]}, 42),
        (("n", -1, -1), {1: [1]}, 39),
        (("n", -1, -1), {0: [1, 2]}, 39),
        (("n", -1, -1), {0: []}, 39),
        (("n", 0, 1), {}, 37),
        (("n", -2, 1), {}, 37),
        (("n", 1, 0), {}, 38),
    ],
)
def test_partitions_are_assigned_to_the_one_broker(
    peer: Peer, topic: tuple[str, int, int], assignments: dict[int, list[int]], code: int
) -> None:
    (made,) = peer.ask(creation(topic, assignments=assignments), 7).topics
    assert made.error_code == code, made.error_message
    if code == 0:
        assert made.num_partitions == 2


def test_topics_are_deleted_by_id_too(db: eosdb.Database, peer: Peer) -> None:
    known, unknown = db.broker.topic("t").topic_id, uuid4()
    asked = [(None, known), (None, unknown), ("none", NO_ID), ("both", known), (None, NO_ID)]
    topics = [{"name": name, "topic_id": topic_id} for name, topic_id in asked]
    answer = peer.ask(asking(DeleteTopicsRequest, topics=topics, timeout_ms=1_000), 6)
    assert [topic.error_code for topic in answer.responses] == [0, 100, 3, 42, 42]
    assert {"a", "b"}.isdisjoint(db.admin.list_topics())


@each("version", range(1, 7))
def test_a_topic_that_comes_twice_is_not_deleted(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    names = ["t", "none", "t"]
    request = asking(
        DeleteTopicsRequest,
        topics=[{"name": name, "topic_id": NO_ID} for name in names],
        topic_names=names,
        timeout_ms=1_000,
    )
    answer = peer.ask(request, version)
    assert {topic.name: topic.error_code for topic in answer.responses} == {"t": 42, "none": 3}
    assert db.admin.list_topics() == ["t"]


@pytest.mark.parametrize("version", range(4))
def test_added_partitions_are_assigned_to_the_one_broker(
    db: eosdb.Database, peer: Peer, version: int
) -> None:

    def ask(count: int, assignments: list[list[int]], *more: Any) -> list[int]:
        made = [{"broker_ids": brokers} for brokers in assignments]
        request = asking(
            CreatePartitionsRequest,
            topics=[{"name": "t", "count": count, "assignments": made}, *more],
            timeout_ms=1_000,
            validate_only=False,
        )
        return [result.error_code for result in peer.ask(request, version).results]

    assert ask(4, [[1]]) == [39]
    assert ask(4, [[1], [2]]) == [39]
    assert ask(4, [[1], [1]], {"name": "none", "count": 1, "assignments": None}) == [0, 3]
    assert ask(9, [[1]], {"name": "t", "count": 9, "assignments": None}) == [42]
    assert db.broker.ask(requests.TopicPartitions()) == {"t": 4}


def test_one_request_adds_ten_thousand_partitions_at_most(db: eosdb.Database, peer: Peer) -> None:
    """As the controller of Kafka 4.4.0: a topic that goes beyond is refused, not those behind it."""
    db.admin.create_topic("u", 9_000)
    db.admin.create_topic("v", 1)

    def ask(**counts: int) -> list[int]:
        request = asking(
            CreatePartitionsRequest,
            topics=[{"name": name, "count": n, "assignments": None} for name, n in counts.items()],
            timeout_ms=1_000,
            validate_only=True,
        )
        return [result.error_code for result in peer.ask(request, 3).results]

    assert ask(t=10_000, v=3) == [0, 0]
    assert ask(t=10_000, v=4) == [0, 44]
    assert ask(t=6_000, v=6_000, u=9_001, none=5) == [0, 44, 0, 3]
    assert ask(u=9_000, v=10_000, t=4) == [37, 0, 44]


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_partition_by_partition(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    for index in (0, 1):
        records = [Record(value=b"%d" % i) for i in range(5)]
        db.broker.append(TopicPartition("t", index), RecordBatch(records))
    asked = {"t": [(0, 3), (1, -1), (2, 0)], "none": [(0, 0)]}
    request = asking(
        DeleteRecordsRequest,
        topics=[
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "offset": offset} for index, offset in partitions
                ],
            }
            for name, partitions in asked.items()
        ],
        timeout_ms=1_000,
    )
    answer = peer.ask(request, version)
    found = [(p.low_watermark, p.error_code) for topic in answer.topics for p in topic.partitions]
    assert found == [(3, 0), (5, 0), (-1, 3), (-1, 3)]
    assert db.broker.offsets(TopicPartition("t", 0)).log_start_offset == 3
