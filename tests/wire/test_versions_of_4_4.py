"""The versions that are new in Kafka 4.2 to 4.4: each answer is that of Kafka 4.4.0 to the same request."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import eosdb
from eosdb.wire import schemas
from tests.requests import TP
from tests.wire.peer import Peer, asking

NONE, BAD_EPOCH, NO_REQUEST, NON_EMPTY, NO_GROUP = 0, 47, 42, 68, 69
UNKNOWN_ID, ILLEGAL, NO_MEMBER, STALE, REBOOTSTRAP, TOO_LARGE, NO_PARTITION = (
    100, 22, 25, 113, 129, 12, 3
)  # fmt: skip
OTHER, NULL = UUID(int=12_345), UUID(int=0)


def test_a_client_learns_that_it_has_reached_another_cluster_or_broker(
    peer: Peer, db: eosdb.Database
) -> None:
    own = db.broker.cluster_id()

    def answered(cluster: str | None, node: int, version: int = 5) -> tuple[int, bool]:
        asked = asking(
            schemas.ApiVersionsRequest, client_software_name="a", client_software_version="1",
            cluster_id=cluster, node_id=node,
        )  # fmt: skip
        peer.send(asked, version)
        frame = peer._read(int.from_bytes(peer._read(4)))  # kafka-python cannot read an error here.
        return int.from_bytes(frame[4:6]), frame[6] > 1

    table: dict[tuple[str | None, int], int] = {
        (None, -1): NONE, (own, 1): NONE,
        (None, 1): NO_REQUEST, (None, -2): NO_REQUEST, (own, -1): NO_REQUEST, ("other", -1): NO_REQUEST,
        ("", -1): NO_REQUEST,
        (own, 2): REBOOTSTRAP, (own, 0): REBOOTSTRAP, ("other", 1): REBOOTSTRAP, ("", 1): REBOOTSTRAP,
        (own, -2): REBOOTSTRAP,
    }  # fmt: skip
    assert {case: answered(*case) for case in table} == {
        case: (code, code == NONE) for case, code in table.items()
    }
    assert answered("other", 2, 4) == (NONE, True), "older versions do not say it"


def test_transactional_offsets_name_topics_by_ids_and_get_the_errors_of_groups(
    peer: Peer, db: eosdb.Database
) -> None:
    own = db.broker.topic("t").topic_id
    beat: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"]}
    asked = asking(
        schemas.ConsumerGroupHeartbeatRequest, group_id="new", member_id="m", member_epoch=0,
        topic_partitions=[], **beat,
    )  # fmt: skip
    epoch = peer.ask(asked, 1).member_epoch
    classic = db.broker.join_group("old", protocols=[("range", b"")])
    db.broker.sync_group("old", classic.generation_id, classic.member_id)

    def answered(
        version: int, group: str, member: str, epoch: int,
        ids: tuple[UUID, ...] = (own,), index: int = 0, metadata: str = "", bad_epoch: bool = False,
    ) -> list[int]:  # fmt: skip
        who = db.broker.init_producer_id("x")
        part = {"partition_index": index, "committed_offset": 7, "committed_metadata": metadata}
        topics = [{"name": "t", "topic_id": one, "partitions": [part]} for one in ids]
        asked = asking(
            schemas.TxnOffsetCommitRequest, transactional_id="x", group_id=group, member_id=member,
            generation_id_or_member_epoch=epoch, producer_id=who.producer_id,
            producer_epoch=who.producer_epoch - bad_epoch, topics=topics,
        )  # fmt: skip
        answer = peer.ask(asked, version)
        if version >= 6:
            assert [topic.topic_id or NULL for topic in answer.topics] == list(ids)
        if db.broker.describe_transactions(["x"])["x"].state == "Ongoing":
            db.broker.end_txn("x", *who, True)
        return [topic.partitions[0].error_code for topic in answer.topics]

    groups: dict[tuple[str, str, int], tuple[int, int]] = {
        # Group, member, epoch or generation: the answers in versions 5 and 6.
        ("new", "", -1): (NONE, NONE),
        ("new", "m", epoch): (NONE, NONE),
        ("new", "m", -1): (ILLEGAL, STALE),
        ("new", "m", epoch - 1): (ILLEGAL, STALE),
        ("new", "m", epoch + 1): (ILLEGAL, STALE),
        ("new", "nobody", 1): (NO_MEMBER, NO_MEMBER),
        ("none", "", -1): (NONE, NONE),
        ("nowhere", "m", 1): (ILLEGAL, NO_GROUP),
        ("nowhere", "", 1): (ILLEGAL, NO_GROUP),
        ("old", classic.member_id, classic.generation_id): (NONE, NONE),
        ("old", classic.member_id, classic.generation_id + 1): (ILLEGAL, ILLEGAL),
        ("old", "nobody", classic.generation_id): (NO_MEMBER, NO_MEMBER),
        ("old", "", -1): (NONE, NONE),
    }
    for version in (5, 6):
        assert {case: answered(version, *case) for case in groups} == {
            case: [codes[version - 5]] for case, codes in groups.items()
        }
    mixed = OTHER, own, NULL
    assert answered(6, "new", "m", epoch, mixed) == [UNKNOWN_ID, NONE, UNKNOWN_ID]
    assert answered(6, "new", "nobody", 1, mixed) == [UNKNOWN_ID, NO_MEMBER, UNKNOWN_ID]
    assert answered(6, "new", "m", epoch, mixed, bad_epoch=True) == [
        UNKNOWN_ID,
        BAD_EPOCH,
        UNKNOWN_ID,
    ]
    assert answered(6, "new", "m", epoch, index=17) == [NO_PARTITION]
    assert answered(6, "new", "m", epoch, metadata="x" * 5_000) == [TOO_LARGE]
    assert answered(6, "new", "m", epoch, ()) == []
    assert answered(6, "new", "m", epoch, (OTHER,)) == [UNKNOWN_ID]
    assert db.broker.describe_transactions(["x"])["x"].state == "Empty", (
        "nothing joins by an unknown id"
    )
    assert db.broker.offset_fetch("new", [TP])[TP].offset == 7


def test_a_marker_says_its_transaction_version_and_a_repeat_is_taken(
    peer: Peer, db: eosdb.Database
) -> None:
    def written(version: int, of_marker: int, *more: int) -> list[tuple[int, int]]:
        """The codes of markers with epochs relative to that of an open transaction, and the last stable
        offset, relative to the transaction's record, after each."""
        name = f"{version} {of_marker}"
        db.broker.init_producer_id(name)
        who = db.broker.init_producer_id(name)
        batch = eosdb.RecordBatch([eosdb.Record(value=b"a")], *who, 0, is_transactional=True)
        db.broker.append(TP, batch, transactional_id=name)
        first = db.broker.offsets(TP).last_stable_offset
        found = []
        for epoch in more:
            marker = {
                "producer_id": who.producer_id, "producer_epoch": who.producer_epoch + epoch,
                "transaction_result": False, "coordinator_epoch": 0, "transaction_version": of_marker,
                "topics": [{"name": "t", "partition_indexes": [0]}],
            }  # fmt: skip
            answer = peer.ask(asking(schemas.WriteTxnMarkersRequest, markers=[marker]), version)
            code = answer.markers[0].topics[0].partitions[0].error_code
            found.append((code, db.broker.offsets(TP).last_stable_offset - first))
        return found

    for classic in ((1, 0), (1, 2), (2, 0), (2, 1)):
        assert written(*classic, -1, 0, -1, 0, 1) == [
            (BAD_EPOCH, 0), (NONE, 2), (BAD_EPOCH, 2), (NONE, 3), (NONE, 4),
        ]  # fmt: skip
    for newer in ((2, 2), (2, 3)):
        assert written(*newer, -1, 0, 1, 0, 1, 2) == [
            (BAD_EPOCH, 0), (BAD_EPOCH, 0), (NONE, 2), (BAD_EPOCH, 2), (NONE, 3), (NONE, 4),
        ]  # fmt: skip


def test_a_group_that_is_not_deleted_has_a_text_about_it(peer: Peer, db: eosdb.Database) -> None:
    db.broker.join_group("g", protocols=[("range", b"")])
    for version in (2, 3):
        asked = asking(schemas.DeleteGroupsRequest, groups_names=["nosuch", "g"])
        found = [(one.error_code, one.error_message) for one in peer.ask(asked, version).results]
        assert [code for code, _ in found] == [NO_GROUP, NON_EMPTY]
        assert all((text is not None) == (version == 3) for _, text in found)
