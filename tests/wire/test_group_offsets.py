"""Offsets of groups over the wire: an answer for every partition, and the groups as administrators see
them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer.group import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from kafka.protocol.producer.transaction import TxnOffsetCommitRequest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from eosdb.model.protocol.consumer_protocol import Subscription
from tests.cases import each
from tests.wire.peer import Peer, asking

UNKNOWN_TOPIC, TOO_LARGE, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, UNSTABLE = 3, 12, 22, 25, 88
NON_EMPTY, GROUP_ID_NOT_FOUND, SUBSCRIBED, INVALID_PRODUCER_EPOCH = 68, 69, 86, 47
TOPIC_REFUSED, GROUP_REFUSED = 29, 30
TP = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def verified(db: eosdb.Database) -> Iterator[None]:
    yield
    assert db.verify().ok


def commit(
    peer: Peer, version: int = 9, *, generation: int = -1, member_id: str = "",
    metadata: str = "", topics: tuple[str, ...] = ("t",),
) -> list[tuple[str, int, int]]:  # fmt: skip
    """Offset 5 of partition 0 with this metadata, and 6 of partition 1, of these topics."""
    partitions = [
        {
            "partition_index": index, "committed_offset": 5 + index, "committed_leader_epoch": 0,
            "committed_metadata": None if index else metadata,
        }
        for index in (0, 1)
    ]  # fmt: skip
    asked = asking(
        OffsetCommitRequest, group_id="g", member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[{"name": name, "partitions": partitions} for name in topics],
    )  # fmt: skip
    answer = peer.ask(asked, version)
    return [
        (topic.name, p.partition_index, p.error_code)
        for topic in answer.topics
        for p in topic.partitions
    ]


def committed(db: eosdb.Database) -> dict[TopicPartition, int]:
    return {tp: found.offset for tp, found in db.broker.offset_fetch("g").items()}


def pend(db: eosdb.Database, tp: TopicPartition = TP) -> None:
    """An offset of the group in a transaction that has not ended."""
    who = db.broker.init_producer_id("pending", 60_000)
    db.broker.txn_offset_commit("pending", "g", *who, {tp: OffsetAndMetadata(9)})


@each("version", range(2, 10))
def test_offsets_of_nobody_in_particular_are_committed(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    assert commit(peer, version) == [("t", 0, 0), ("t", 1, 0)]
    found = db.broker.offset_fetch("g")
    epoch = 0 if version >= 6 else -1
    assert found[TP] == OffsetAndMetadata(5, "", epoch)
    assert found[TopicPartition("t", 1)].offset == 6


def test_what_one_partition_is_refused_the_others_are_not(db: eosdb.Database, peer: Peer) -> None:
    answered = commit(peer, metadata="x" * 5_000, topics=("t", "nosuch"))
    assert answered == [
        ("t", 0, TOO_LARGE), ("t", 1, 0),
        ("nosuch", 0, UNKNOWN_TOPIC), ("nosuch", 1, UNKNOWN_TOPIC),
    ]  # fmt: skip
    assert committed(db) == {TopicPartition("t", 1): 6}


def test_a_topic_that_may_not_be_read_is_refused_alone(db_path: Path, clock: ManualClock) -> None:
    with eosdb.connect(db_path, clock=clock) as db:
        for topic in ("t", "secret"):
            db.admin.create_topic(topic, partitions=2)
        db.broker.offset_commit("g", {TopicPartition("secret", 0): OffsetAndMetadata(5)})
        db.admin.create_acls(
            [
                eosdb.Acl("User:*", "all", "group", "*", "literal", "allow"),
                eosdb.Acl("User:*", "all", "topic", "t", "literal", "allow"),
            ]
        )
        with db.serve() as server, Peer(server) as peer:
            answered = commit(peer, topics=("t", "secret"))
            assert [code for *_, code in answered] == [0, 0, TOPIC_REFUSED, TOPIC_REFUSED]
            everything = {("t", 0): (5, 0), ("t", 1): (6, 0)}
            assert fetch(peer, 9, all_partitions=True) == everything
            assert fetch(peer, 9, topic_name="secret") == {
                ("secret", 0): (-1, TOPIC_REFUSED), ("secret", 1): (-1, TOPIC_REFUSED),
            }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("version", range(2, 10))
def test_a_member_that_there_is_not_commits_nothing(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    gone = GROUP_ID_NOT_FOUND if version >= 9 else ILLEGAL_GENERATION
    answered = commit(peer, version, generation=3, member_id="gone", topics=("t",))
    assert answered == [("t", 0, gone), ("t", 1, gone)]
    db.broker.join_group("g", protocols=[("range", b"")])
    answered = commit(peer, version, generation=1, member_id="gone")
    assert {code for *_, code in answered} == {UNKNOWN_MEMBER_ID}
    assert committed(db) == {}


def in_transaction(
    who: ProducerIdAndEpoch, topics: tuple[str, ...], metadata: tuple[str | None, ...]
) -> Any:
    """Offset 7 for as many partitions of these topics as metadata are given."""
    partitions = [
        {"partition_index": index, "committed_offset": 7, "committed_metadata": one}
        for index, one in enumerate(metadata)
    ]
    return asking(
        TxnOffsetCommitRequest, transactional_id="x", group_id="g", generation_id=-1, member_id="",
        producer_id=who.producer_id, producer_epoch=who.producer_epoch,
        topics=[{"name": name, "partitions": partitions} for name in topics],
    )  # fmt: skip


def test_a_transaction_takes_the_offsets_that_can_be_taken(db: eosdb.Database, peer: Peer) -> None:
    who = db.broker.init_producer_id("x", 60_000)
    asked = in_transaction(who, ("nosuch", "t"), (None, "x" * 5_000, ""))
    answer = peer.ask(asked, 5)
    assert [[p.error_code for p in topic.partitions] for topic in answer.topics] == [
        [UNKNOWN_TOPIC] * 3,
        [0, TOO_LARGE, UNKNOWN_TOPIC],
    ]
    db.broker.end_txn("x", *who, True)
    assert committed(db) == {TP: 7}
    for version in (0, 5):
        answer = peer.ask(asked, version)
        assert answer.topics[1].partitions[0].error_code == INVALID_PRODUCER_EPOCH


def test_a_transaction_that_may_take_no_offset_does_not_begin(
    db: eosdb.Database, peer: Peer
) -> None:
    who = db.broker.init_producer_id("x", 60_000)
    answer = peer.ask(in_transaction(who, ("nosuch",), ("",)), 5)
    assert answer.topics[0].partitions[0].error_code == UNKNOWN_TOPIC
    assert db.broker.describe_transactions(["x"])["x"].state == "Empty"


def fetch(
    peer: Peer,
    version: int,
    *,
    topic_name: str = "t",
    all_partitions: bool = False,
    stable: bool = False,
) -> dict[tuple[str, int], tuple[int, int]]:
    """Offset and error of the partitions 0 and 1 of a topic, or of all."""
    topics = None if all_partitions else [{"name": topic_name, "partition_indexes": [0, 1]}]
    group: dict[str, Any] = {"group_id": "g", "topics": topics}
    fields = {"groups": [group]} if version >= 8 else group
    answer = peer.ask(asking(OffsetFetchRequest, require_stable=stable, **fields), version)
    (found,) = answer.groups if version >= 8 else (answer,)
    return {
        (topic.name, p.partition_index): (
            p.committed_offset,
            p.error_code or (found.error_code if version >= 8 else 0),
        )
        for topic in found.topics
        for p in topic.partitions
    }


@pytest.mark.slow
@pytest.mark.parametrize("version", range(1, 10))
def test_committed_offsets_are_fetched(db: eosdb.Database, peer: Peer, version: int) -> None:
    assert fetch(peer, version) == {("t", 0): (-1, 0), ("t", 1): (-1, 0)}
    db.broker.offset_commit("g", {TP: OffsetAndMetadata(5)})
    assert fetch(peer, version) == {("t", 0): (5, 0), ("t", 1): (-1, 0)}
    if version >= 2:
        assert fetch(peer, version, all_partitions=True) == {("t", 0): (5, 0)}


@pytest.mark.parametrize("version", [7, 8, 9])
def test_only_the_partitions_that_a_transaction_holds_are_unstable(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    other = TopicPartition("t", 1)
    db.broker.offset_commit("g", {TP: OffsetAndMetadata(5), other: OffsetAndMetadata(6)})
    pend(db)
    held = {("t", 0): (-1, UNSTABLE), ("t", 1): (6, 0)}
    assert fetch(peer, version, stable=True) == held
    assert fetch(peer, version, stable=True, all_partitions=True) == held
    assert fetch(peer, version) == {("t", 0): (5, 0), ("t", 1): (6, 0)}


@pytest.mark.parametrize("version", range(1, 10))
def test_offsets_of_a_group_that_may_not_be_seen_are_one_error_or_before_version_2_one_each(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    db.admin.create_acls([eosdb.Acl("User:a", "read", "topic", "u", "literal", "allow")])
    answered = fetch(peer, version)
    assert answered == (
        dict.fromkeys([("t", 0), ("t", 1)], (-1, GROUP_REFUSED)) if version < 2 else {}
    )


def test_offsets_are_deleted_partition_by_partition(db: eosdb.Database, peer: Peer) -> None:
    def delete() -> tuple[int, list[int]]:
        topics = [
            {"name": name, "partitions": [{"partition_index": 0}]} for name in ("t", "u", "nosuch")
        ]
        answer = peer.ask(asking(OffsetDeleteRequest, group_id="g", topics=topics), 0)
        return answer.error_code, [t.partitions[0].error_code for t in answer.topics]

    assert delete() == (GROUP_ID_NOT_FOUND, [])
    db.admin.create_topic("u")
    other = TopicPartition("u", 0)
    db.broker.offset_commit("g", {TP: OffsetAndMetadata(1), other: OffsetAndMetadata(1)})
    wanted = Subscription(("t",)).encode()
    db.broker.join_group("g", protocols=[("range", wanted)])
    assert delete() == (0, [SUBSCRIBED, 0, UNKNOWN_TOPIC])
    assert committed(db) == {TP: 1}


@pytest.mark.slow
@pytest.mark.parametrize("version", range(7))
def test_groups_are_described(db: eosdb.Database, peer: Peer, version: int) -> None:
    joined = db.broker.join_group(
        "g", client_id="c", client_host="/1.2.3.4", protocols=[("range", b"wants")]
    )
    db.broker.offset_commit("simple", {TP: OffsetAndMetadata(1)})

    asked = DescribeGroupsRequest(groups=["g", "simple", "nosuch"])
    forming, simple, unknown = peer.ask(asked, version).groups
    assert (forming.group_state, forming.protocol_data) == ("CompletingRebalance", "")
    assert [m.member_metadata for m in forming.members] == [b""]
    assert (simple.group_state, simple.protocol_type, simple.members) == ("Empty", "", [])
    not_found = GROUP_ID_NOT_FOUND if version >= 6 else 0
    assert (unknown.group_state, unknown.error_code) == ("Dead", not_found)

    db.broker.sync_group("g", 1, joined.member_id, assignments={joined.member_id: b"gets"})
    stable = peer.ask(asked, version).groups[0]
    assert (stable.group_state, stable.protocol_type, stable.protocol_data) == (
        "Stable", "consumer", "range",
    )  # fmt: skip
    (member,) = stable.members
    assert (member.client_id, member.client_host) == ("c", "/1.2.3.4")
    assert (member.member_metadata, member.member_assignment) == (b"wants", b"gets")


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_by_their_states_and_types(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    db.broker.join_group("g", protocols=[("range", b"wants")])
    db.broker.offset_commit("simple", {TP: OffsetAndMetadata(1)})

    def listed(states: str = "", types: str = "") -> list[str]:
        asked = ListGroupsRequest(states_filter=states.split(), types_filter=types.split())
        answer = peer.ask(asked, version)
        if version >= 4:
            found = {group.group_state for group in answer.groups}
            assert found <= {"CompletingRebalance", "Empty"}
        assert {group.protocol_type for group in answer.groups} <= {"consumer", ""}
        return [group.group_id for group in answer.groups]

    assert listed() == ["g", "simple"]
    if version >= 4:
        assert listed(states="empty") == ["simple"]
    if version >= 5:
        assert listed(types="Classic") == ["g", "simple"]
        assert listed(types="consumer") == []


@each("version", range(3))
def test_groups_are_deleted(db: eosdb.Database, peer: Peer, version: int) -> None:
    db.broker.join_group("g", protocols=[("range", b"wants")])
    db.broker.offset_commit("simple", {TP: OffsetAndMetadata(1)})
    answer = peer.ask(DeleteGroupsRequest(groups_names=["g", "simple", "nosuch"]), version)
    assert {result.group_id: result.error_code for result in answer.results} == {
        "g": NON_EMPTY, "simple": 0, "nosuch": GROUP_ID_NOT_FOUND,
    }  # fmt: skip
    assert db.broker.list_groups() == ["g"]
