"""Groups whose partitions the coordinator assigns (KIP-848), over the wire: each answer as Kafka 4.4.0 gave
it to the same request."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, ConsumerGroupType
from confluent_kafka.admin import AdminClient
from kafka.protocol.admin.groups import DescribeGroupsRequest, ListGroupsRequest

import eosdb
from eosdb import Acl
from eosdb.wire import schemas
from eosdb.wire.server import Server
from tests.cases import each
from tests.wire.clients import PATIENCE_S
from tests.wire.clients import produce as send
from tests.wire.group_requests import commit, leave
from tests.wire.peer import Peer, asking

NONE, ILLEGAL_GENERATION, UNKNOWN_MEMBER, NOT_AUTHORIZED, UNSUPPORTED_VERSION = 0, 22, 25, 29, 35
INVALID_REQUEST, NON_EMPTY, NOT_FOUND, FENCED_INSTANCE, SUBSCRIBED = 42, 68, 69, 82, 86
FENCED_EPOCH, UNRELEASED, NO_SUCH_ASSIGNOR, STALE_EPOCH, INVALID_REGEX = 110, 111, 112, 113, 128
_Describe: Any = schemas.ConsumerGroupDescribeRequest
Owned = Mapping[UUID, Collection[int]]


def beat(
    peer: Peer,
    member: str,
    epoch: int = 0,
    owned: Owned | None = None,
    version: int = 1,
    **fields: Any,
) -> Any:
    """The answer to a heartbeat; a new member says all it has to."""
    if epoch == 0:
        new = {"rebalance_timeout_ms": 45_000, "subscribed_topic_names": ["t"]}
        fields, owned = new | fields, owned or {}
    if owned is not None:
        fields["topic_partitions"] = [
            {"topic_id": topic_id, "partitions": [*numbers]} for topic_id, numbers in owned.items()
        ]
    given: dict[str, Any] = {"group_id": "g", "member_id": member, "member_epoch": epoch}
    return peer.ask(asking(schemas.ConsumerGroupHeartbeatRequest, **given | fields), version)


def told(answer: Any) -> tuple[int, list[int] | None]:
    """The member's epoch and its partitions of the one topic, if it is told of them."""
    assert (answer.error_code, answer.error_message) == (NONE, None)
    if answer.assignment is None:
        return answer.member_epoch, None
    parts = answer.assignment.topic_partitions
    return answer.member_epoch, [number for part in parts for number in part.partitions]


def id_of(db: eosdb.Database, topic: str = "t") -> UUID:
    return db.broker.topic(topic).topic_id


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_stays_and_leaves(peer: Peer, db: eosdb.Database, version: int) -> None:
    joined = beat(peer, "" if version == 0 else "m", version=version)
    assert told(joined) == (2, [0, 1])
    assert joined.assignment.topic_partitions[0].topic_id == id_of(db)
    assert joined.heartbeat_interval_ms == 5_000
    member = joined.member_id
    assert member
    assert told(beat(peer, member, 2, {id_of(db): [0, 1]}, version)) == (2, None)
    assert told(beat(peer, member, -1, version=version)) == (-1, None)
    assert beat(peer, member, 2, version=version).error_code == UNKNOWN_MEMBER


@each(
    ("fields", "code"),
    [
        ({"group_id": ""}, INVALID_REQUEST),
        ({"member": ""}, INVALID_REQUEST),
        ({"member": "", "epoch": 5, "version": 0}, INVALID_REQUEST),
        ({"owned": {UUID(int=7): [0]}}, INVALID_REQUEST),
        ({"subscribed_topic_regex": "(?=a)"}, INVALID_REGEX),
        ({"subscribed_topic_names": ["nosuch", "t", "t"]}, NONE),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": ""}, NONE),
    ],
)
def test_a_first_heartbeat_says_all_that_it_has_to(
    peer: Peer, fields: dict[str, Any], code: int
) -> None:
    answer = beat(peer, **{"member": "m"} | fields)
    assert answer.error_code == code
    assert (answer.error_message is None) == (code == NONE)


@pytest.mark.parametrize(
    ("member", "epoch", "code"),
    [
        ("m", 2, NONE),
        ("m", 1, UNSUPPORTED_VERSION),
        ("m", -1, UNSUPPORTED_VERSION),
        ("x", 1, UNKNOWN_MEMBER),
    ],
)
def test_who_does_not_know_of_epochs_is_told_of_none(
    peer: Peer, member: str, epoch: int, code: int
) -> None:
    beat(peer, "m")
    assert commit(peer, member, epoch, 8) == code


def listed(peer: Peer, states: Collection[str] = (), types: Collection[str] = ()) -> list[Any]:
    answer = peer.ask(ListGroupsRequest(states_filter=[*states], types_filter=[*types]), 5)
    return [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups]


def test_groups_are_listed_by_type_and_state(peer: Peer, db: eosdb.Database) -> None:
    beat(peer, "m")
    db.broker.offset_commit("h", {eosdb.TopicPartition("t", 0): eosdb.OffsetAndMetadata(1)})
    new, old = ("g", "consumer", "Stable", "consumer"), ("h", "", "Empty", "classic")
    assert listed(peer) == [new, old]
    assert listed(peer, types=["CONSUMER"]) == [new]
    assert listed(peer, types=["classic"]) == [old]
    assert listed(peer, ["stable"]) == [new]
    assert listed(peer, ["nosuch"]) == listed(peer, types=["nosuch"]) == []
    beat(peer, "n")
    assert listed(peer, ["Reconciling"]) == [("g", "consumer", "Reconciling", "consumer")]


def test_each_kind_of_group_is_not_found_as_the_other(peer: Peer, db: eosdb.Database) -> None:
    beat(peer, "m")
    for version, code in ((5, NONE), (6, NOT_FOUND)):
        (group,) = peer.ask(DescribeGroupsRequest(groups=["g"]), version).groups
        assert (group.error_code, group.group_state, group.members) == (code, "Dead", [])
    db.broker.join_group("h", protocols=[("range", b"")])
    (group,) = peer.ask(_Describe(group_ids=["h"]), 1).groups
    assert (group.error_code, group.members) == (NOT_FOUND, [])


@each("version", [0, 1])
def test_a_group_is_described(peer: Peer, db: eosdb.Database, version: int) -> None:
    beat(peer, "a", instance_id="i", rack_id="r", server_assignor="range")
    beat(peer, "b", subscribed_topic_names=[], subscribed_topic_regex="t.*")
    asked = _Describe(group_ids=["g", "nosuch"], include_authorized_operations=True)
    group, nosuch = peer.ask(asked, version).groups
    assert (nosuch.error_code, nosuch.group_id) == (NOT_FOUND, "nosuch")
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 3, 3)
    assert (group.assignor_name, group.authorized_operations) == ("range", {3, 6, 8, 10, 11})
    a, b = sorted(group.members, key=lambda member: str(member.member_id))
    assert (a.instance_id, a.rack_id, a.member_epoch, a.client_id) == ("i", "r", 2, "peer")
    assert (a.client_host, a.subscribed_topic_names, a.subscribed_topic_regex) == (
        "/127.0.0.1", ["t"], "",
    )  # fmt: skip
    assert (b.subscribed_topic_names, b.subscribed_topic_regex) == ([], "t.*")

    def parts(assignment: Any) -> list[Any]:
        return [(it.topic_id, it.topic_name, it.partitions) for it in assignment.topic_partitions]

    assert parts(a.assignment) == [(id_of(db), "t", [0, 1])]
    assert (parts(a.target_assignment), parts(b.target_assignment)) == (
        [(id_of(db), "t", [0])], [(id_of(db), "t", [1])],
    )  # fmt: skip
    assert a.member_type == (1 if version else -1)


def test_a_regular_expression_matches_what_its_member_may_see(
    peer: Peer, db: eosdb.Database
) -> None:
    db.admin.create_topic("tt")
    db.admin.create_acls(
        [Acl("User:*", "read", "group", "g"), Acl("User:*", "describe", "topic", "tt")]
    )
    answer = beat(peer, "m", subscribed_topic_names=[], subscribed_topic_regex="t+")
    assert [it.topic_id for it in answer.assignment.topic_partitions] == [id_of(db, "tt")]
    assert beat(peer, "n").error_code == NOT_AUTHORIZED


def test_librdkafka_reads_by_a_regular_expression_and_describes_its_group(
    server: Server, peer: Peer, db: eosdb.Database
) -> None:
    send(server.bootstrap_servers, "t", [b"a", b"b"], partition=0)
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    try:
        consumer.subscribe(["^t.*"])
        found = consumer.consume(2, PATIENCE_S)
        assert [message.value() for message in found] == [b"a", b"b"]
        consumer.commit(asynchronous=False)
        groups = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER})
        assert [group.group_id for group in groups.result(PATIENCE_S).valid] == ["g"]
        (described,) = admin.describe_consumer_groups(["g"]).values()
        group = described.result(PATIENCE_S)
        assert (group.type, len(group.members)) == (ConsumerGroupType.CONSUMER, 1)
    finally:
        consumer.close()
    assert db.broker.offset_fetch("g")[eosdb.TopicPartition("t", 0)].offset == 2
    assert listed(peer) == [("g", "consumer", "Empty", "consumer")]


def test_an_administrator_removes_members_by_their_names(peer: Peer) -> None:
    beat(peer, "a")
    beat(peer, "b", instance_id="i")
    names = [("a", "i"), ("", "j"), ("", None), ("", "i"), ("a", None)]
    codes = [FENCED_INSTANCE, UNKNOWN_MEMBER, UNKNOWN_MEMBER, NONE, NONE]
    assert leave(peer, *names) == codes
    assert listed(peer) == [("g", "consumer", "Empty", "consumer")]
