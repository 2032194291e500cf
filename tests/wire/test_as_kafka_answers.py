"""Answers in which servers easily differ from Kafka's broker, each as Kafka 4.4.0 gave it to the same
request."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kafka.protocol.admin.configs import IncrementalAlterConfigsRequest
from kafka.protocol.admin.topics import CreateTopicsRequest, DescribeTopicPartitionsRequest
from kafka.protocol.consumer.group import (
    JoinGroupRequest,
    OffsetFetchRequest,
)
from kafka.protocol.consumer.offsets import ListOffsetsRequest
from kafka.protocol.metadata.api_versions import ApiVersionsRequest
from kafka.protocol.metadata.metadata import MetadataRequest
from kafka.protocol.producer.transaction import (
    AddPartitionsToTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

import eosdb
from eosdb import Record, RecordBatch
from eosdb.wire.server import Server
from tests.cases import each
from tests.requests import TP, begin
from tests.wire.group_requests import commit, join, sync
from tests.wire.peer import Peer, asking, batch, fetch, fetched, part_of, produce, produced
from tests.wire.raw import Raw, message

NONE, OUT_OF_RANGE, UNKNOWN_TOPIC, UNSUPPORTED_VERSION = 0, 1, 3, 35
ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, INVALID_GROUP, UNKNOWN_MEMBER = 22, 23, 24, 25
FENCED_INSTANCE, NOT_AUTHORIZED, EXISTS, INVALID_CONFIG, INVALID_REQUEST = 82, 29, 36, 40, 42
INVALID_TXN_STATE, SESSION_NOT_FOUND, INVALID_RECORD, INVALID_TIMESTAMP = 48, 70, 87, 32


# -- Produce ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(9, 13))
def test_a_plain_batch_in_the_producers_open_transaction_is_one_of_the_wrong_state(
    peer: Peer, db: eosdb.Database, version: int
) -> None:
    who = begin(db)
    data = batch(b"a", producer=who, sequence=0, transactional=True)
    assert produced(peer.ask(produce({("t", 0): data}, transactional_id="a"), 9)) == [(NONE, 0)]
    plain = batch(b"b", producer=who, sequence=1)
    for name in (None, "a"):
        asked = produce({("t", 0): plain}, transactional_id=name)
        assert produced(peer.ask(asked, version)) == [(INVALID_TXN_STATE, -1)]


@each("version", range(3))
def test_versions_of_produce_that_are_only_named_close_the_connection(
    peer: Peer, db: eosdb.Database, version: int
) -> None:
    with pytest.raises(ConnectionError):
        peer.ask(produce({("t", 0): batch(b"a")}), version)
    assert db.broker.offsets(TP).high_watermark == 0


def test_the_records_at_fault_are_named(peer: Peer, db: eosdb.Database) -> None:
    def errors(data: bytes, version: int) -> tuple[int, list[int]]:
        answer = peer.ask(produce({("t", 0): data}), version)
        (part,) = answer.responses[0].partition_responses
        for one in part.record_errors or []:
            assert one.batch_index_error_message == part.error_message
        return part.error_code, [one.batch_index for one in part.record_errors or []]

    times = batch(b"a", b"b", time_ms=-7)
    assert errors(times, 11) == (INVALID_TIMESTAMP, [0])
    db.admin.alter_topic_config("t", {"cleanup.policy": "compact"})
    assert errors(batch(b"a", b"b"), 8) == (INVALID_RECORD, [0, 1])
    assert errors(batch(b"a", b"b"), 7) == (INVALID_RECORD, [])
    assert errors(b"", 11) == (INVALID_RECORD, [])


# -- Fetch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", [-1, 0, 5])
def test_a_fetch_that_begins_or_ends_a_session_is_a_full_one(
    peer: Peer, db: eosdb.Database, session_id: int
) -> None:
    db.broker.append(TP, RecordBatch([Record(value=b"a")]))
    for epoch in (-1, 0):
        answer = peer.ask(fetch(0, session=(session_id, epoch)), 12)
        assert (answer.error_code, answer.session_id) == (NONE, 0)
        assert fetched(answer) == [(0, b"a")]
    for epoch in (1, 3):
        answer = peer.ask(fetch(0, session=(session_id, epoch)), 12)
        assert (answer.error_code, answer.responses) == (SESSION_NOT_FOUND, [])


def test_of_a_partition_that_is_fetched_twice_the_last_counts(
    peer: Peer, db: eosdb.Database
) -> None:
    db.broker.append(TP, RecordBatch([Record(value=b"a"), Record(value=b"b")]))
    asked = fetch(9)
    asked.topics += fetch(1).topics
    answer = peer.ask(asked, 12)
    assert len(answer.responses[0].partitions) == 1
    assert fetched(answer) == [(1, b"b")]


def test_any_leader_epoch_below_0_is_none_to_a_fetch(peer: Peer) -> None:
    asked = fetch(0)
    asked.topics[0].partitions[0].current_leader_epoch = -2
    assert part_of(peer.ask(asked, 12)).error_code == NONE


# -- ListOffsets, Metadata, ApiVersions ---------------------------------------------------------


def offsets_at(peer: Peer, version: int, *times: int, epoch: int = -1) -> list[tuple[int, int]]:
    request = asking(
        ListOffsetsRequest,
        replica_id=-1,
        isolation_level=0,
        topics=[
            {
                "name": "t",
                "partitions": [
                    {"partition_index": 0, "current_leader_epoch": epoch, "timestamp": time}
                    for time in times
                ],
            }
        ],
    )
    (topic,) = peer.ask(request, version).topics
    return [(part.error_code, part.offset) for part in topic.partitions]


@pytest.mark.parametrize("version", range(1, 12))
def test_times_that_mean_something_are_known_from_their_versions_on(
    peer: Peer, db: eosdb.Database, version: int
) -> None:
    db.broker.append(TP, RecordBatch([Record(value=b"a"), Record(value=b"b")]))
    unknown = (UNSUPPORTED_VERSION, -1)
    assert [offsets_at(peer, version, time) for time in range(-7, 0)] == [
        [unknown],
        [(NONE, -1) if version >= 11 else unknown],
        [(NONE, -1) if version >= 9 else unknown],
        [(NONE, 0) if version >= 8 else unknown],
        [(NONE, 0) if version >= 7 else unknown],
        [(NONE, 0)],
        [(NONE, 2)],
    ]


def test_a_partition_whose_offset_is_asked_twice_has_an_error(peer: Peer) -> None:
    assert offsets_at(peer, 7, -1, -2) == [(INVALID_REQUEST, -1)]


def test_a_topic_that_is_asked_twice_is_described_once(peer: Peer) -> None:
    asked = asking(
        MetadataRequest,
        topics=[{"name": name} for name in ("t", "t", "gone", "gone", "a b")],
        include_topic_authorized_operations=True,
    )
    described = peer.ask(asked, 12).topics
    assert [(one.name, one.error_code) for one in described] == [("t", 0), ("gone", 3), ("a b", 17)]
    first, *others = [one.authorized_operations for one in described]
    assert others == [first, first]
    assert len(first) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "limit", "cursor", "listed", "following"),
    [
        (["b", "a", "a"], 2_000, None, ["a 0 1 2", "b 0 1 2"], None),
        (["a", "b"], 2, None, ["a 0 1"], ("a", 2)),
        (["a", "b"], 3, None, ["a 0 1 2"], ("b", 0)),
        (["a", "b"], -1, None, ["a 0"], ("a", 1)),
        (["a", "b"], 2, ("a", 2), ["a 2", "b 0"], ("b", 1)),
        (["a", "b"], 2, ("a", 7), ["a", "b 0 1"], ("b", 2)),
        (["a", "b"], 9, ("b", -1), ["a error 42", "b error 42"], None),
        (["a", "b"], 9, ("aa", 0), ["a error 42", "b error 42"], None),
        (["a", "z"], 3, None, ["a 0 1 2"], ("z", 0)),
        (["a", "z", "zz"], 4, None, ["a 0 1 2", "z error 3", "zz error 3"], None),
        (["a", "z"], 2, ("z", 0), ["z error 3"], None),
        ([], 2_000, None, ["a 0 1 2", "b 0 1 2", "t 0 1"], None),
        ([], 2_000, ("aa", 1), ["b 0 1 2", "t 0 1"], None),
        ([], 2_000, ("zzz", 1), [], None),
        ([], 2_000, ("b", -1), [], None),
    ],
)  # fmt: skip
def test_topics_are_described_page_by_page(
    peer: Peer,
    db: eosdb.Database,
    names: list[str],
    limit: int,
    cursor: tuple[str, int] | None,
    listed: list[str],
    following: tuple[str, int] | None,
) -> None:
    for name in ("a", "b"):
        db.admin.create_topic(name, partitions=3)
    begin = cursor and {"topic_name": cursor[0], "partition_index": cursor[1]}
    topics = [{"name": name} for name in names]
    asked = asking(
        DescribeTopicPartitionsRequest, topics=topics, response_partition_limit=limit, cursor=begin
    )
    answer = peer.ask(asked, 0)
    assert listed == [
        f"{one.name} error {one.error_code}"
        if one.error_code
        else " ".join(map(str, [one.name, *(part.partition_index for part in one.partitions)]))
        for one in answer.topics
    ]
    end = answer.next_cursor
    assert (end and (end.topic_name, end.partition_index)) == following


@each(("name", "software", "code"), [
        ("x", "1", NONE), ("x.y-z", "1.0-rc", NONE), ("x" * 300, "1", NONE),
        ("", "1", INVALID_REQUEST), ("x", "", INVALID_REQUEST), ("a b", "1", INVALID_REQUEST),
        ("-x", "1", INVALID_REQUEST), ("x-", "1", INVALID_REQUEST), ("x_y", "1", INVALID_REQUEST),
        ("x", "1 2", INVALID_REQUEST), ("é", "1", INVALID_REQUEST), ("x\n", "1", INVALID_REQUEST),
    ])  # fmt: skip
def test_what_a_client_may_call_itself(server: Server, name: str, software: str, code: int) -> None:
    asked = ApiVersionsRequest(client_software_name=name, client_software_version=software)
    with Raw(server) as raw:
        for version, expected in ((2, NONE), (3, code), (4, code)):  # Before, clients did not say.
            raw.send_frame(message(asked, version))
            answer = raw.answer()
            assert answer is not None
            assert struct.unpack_from(">h", answer, 4) == (expected,)
            assert (len(answer) > 50) == (expected == NONE)


def test_a_client_id_that_is_no_text_is_answered(server: Server) -> None:
    with Raw(server) as raw:
        raw.send_frame(b"\0\x12\0\0\0\0\0\x07\0\x02\xff\xfe")
        answer = raw.answer()
        assert answer is not None
        assert answer[:6] == b"\0\0\0\x07\0\0"
        # A member's id begins with it, and is kept as text.
        body = asking(JoinGroupRequest,
            group_id="g", session_timeout_ms=10_000, protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        ).encode(version=0)  # fmt: skip
        raw.send_frame(b"\0\x0b\0\0\0\0\0\x08\0\x02\xff\xfe" + bytes(body))
        answer = raw.answer()
        assert answer is not None
        assert answer[:6] == b"\0\0\0\x08\0\0"


# -- groups -------------------------------------------------------------------------------------


@each("fields", [{"names": ()}, {"protocol_type": ""}])
@each("version", [0, 3, 4, 9])
def test_a_join_without_protocols_is_refused_before_anything_else_of_it(
    peer: Peer, db: eosdb.Database, version: int, fields: dict[str, Any]
) -> None:
    for member_id in ("", "nobody"):
        assert join(peer, member_id, version, **fields).error_code == INCONSISTENT_PROTOCOL
    assert join(peer, version=version, group_id="", **fields).error_code == INVALID_GROUP
    assert db.broker.list_groups() == []


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocol_type": "consumer", "protocol_name": "range"}, NONE),
        ({"protocol_type": None, "protocol_name": "range"}, INCONSISTENT_PROTOCOL),
        ({"protocol_type": "consumer", "protocol_name": None}, INCONSISTENT_PROTOCOL),
        ({"protocol_type": "consumer", "protocol_name": "x"}, INCONSISTENT_PROTOCOL),
    ],
)
def test_a_sync_says_which_protocol_it_is_about_from_version_5_on(
    peer: Peer, fields: dict[str, Any], code: int
) -> None:
    joined = join(peer, version=3)
    assert sync(peer, joined, 5, **fields).error_code == code
    assert sync(peer, joined, 4).error_code == NONE


@pytest.mark.parametrize("offset", [-1, -2, -(2**63)])
def test_a_committed_offset_may_be_any_number_and_none_to_consumers_of_the_library(
    peer: Peer, db: eosdb.Database, offset: int
) -> None:
    db.broker.append(TP, RecordBatch([Record(value=b"a")]))
    assert commit(peer, offset=offset) == NONE
    asked = {"name": "t", "partition_indexes": [0]}
    answer = peer.ask(asking(OffsetFetchRequest, group_id="g", topics=[asked]), 7)
    assert answer.topics[0].partitions[0].committed_offset == offset
    with db.consumer(group_id="g", auto_offset_reset="earliest") as consumer:
        assert consumer.committed([TP]) == {}
        consumer.subscribe(["t"])
        assert [record.value for record in consumer.poll(0)] == [b"a"]
    assert db.admin.describe_group_offsets("g").partitions[0].committed_offset == offset
    assert db.verify().ok


def test_an_offset_in_a_transaction_may_be_any_number(peer: Peer, db: eosdb.Database) -> None:
    given = peer.ask(InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=60_000), 2)
    db.broker.add_offsets_to_txn("a", given.producer_id, given.producer_epoch, "g")
    partition = {"partition_index": 0, "committed_offset": -7}
    request = asking(TxnOffsetCommitRequest,
        transactional_id="a", group_id="g", producer_id=given.producer_id,
        producer_epoch=given.producer_epoch, generation_id=-2,
        topics=[{"name": "t", "partitions": [partition]}],
    )  # fmt: skip
    assert peer.ask(request, 3).topics[0].partitions[0].error_code == NONE
    db.broker.end_txn("a", given.producer_id, given.producer_epoch, True)
    assert db.broker.offset_fetch("g", [TP])[TP].offset == -7


# -- topics -------------------------------------------------------------------------------------

INTERNAL = ("__consumer_offsets", "__transaction_state")


@pytest.mark.parametrize("name", INTERNAL)
def test_kafkas_own_topics_are_there_to_whoever_makes_them_and_closed_to_transactions(
    peer: Peer, name: str
) -> None:
    for validate_only in (False, True):
        asked = asking(
            CreateTopicsRequest,
            topics=[{"name": name, "num_partitions": 1, "replication_factor": 1}],
            timeout_ms=10_000,
            validate_only=validate_only,
        )
        assert [one.error_code for one in peer.ask(asked, 7).topics] == [EXISTS]
    given = peer.ask(InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=60_000), 2)
    request = asking(
        AddPartitionsToTxnRequest,
        v3_and_below_transactional_id="a",
        v3_and_below_producer_id=given.producer_id,
        v3_and_below_producer_epoch=given.producer_epoch,
        v3_and_below_topics=[{"name": name, "partitions": [0]}, {"name": "t", "partitions": [0]}],
    )
    codes = {
        found.name: found.results_by_partition[0].partition_error_code
        for found in peer.ask(request, 3).results_by_topic_v3_and_below
    }
    assert codes == {name: NOT_AUTHORIZED, "t": 55}


@pytest.mark.parametrize(
    ("name", "operation", "code"),
    [
        ("nonsense", 1, NONE), ("", 1, NONE), ("retention.ms", 1, NONE),
        ("nonsense", 0, INVALID_CONFIG), ("nonsense", 2, INVALID_CONFIG),
    ],
)  # fmt: skip
def test_a_setting_that_nobody_knows_can_be_deleted_and_not_set(
    peer: Peer, name: str, operation: int, code: int
) -> None:
    change = {"name": name, "config_operation": operation, "value": "x"}
    request = asking(
        IncrementalAlterConfigsRequest,
        resources=[{"resource_type": 2, "resource_name": "t", "configs": [change]}],
        validate_only=False,
    )
    assert [one.error_code for one in peer.ask(request, 1).responses] == [code]
