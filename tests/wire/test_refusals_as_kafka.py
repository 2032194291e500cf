"""Requests that Kafka refuses in a way of its own: which error, in what order, and what the answer lists.
Each answer is the one that Kafka 4.4.0 gave to the same request."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest
from kafka.protocol.admin.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.admin.transactions import ListTransactionsRequest
from kafka.protocol.consumer.group import OffsetDeleteRequest, OffsetFetchRequest
from kafka.protocol.metadata.metadata import MetadataRequest
from kafka.protocol.producer.transaction import InitProducerIdRequest

import eosdb
from eosdb import Record, RecordBatch
from tests.cases import each
from tests.requests import TP
from tests.wire.group_requests import join, leave, sync
from tests.wire.peer import Peer, asking, fetch, part_of
from tests.wire.test_consumer_groups import _Describe, beat, id_of

NONE, NOT_LEADER, INVALID_TOPIC, INCONSISTENT_PROTOCOL, INVALID_GROUP = 0, 6, 17, 23, 24
ILLEGAL_GENERATION, UNKNOWN_MEMBER, NO_QUOTAS, INVALID_REQUEST, NOT_FOUND = 22, 25, 35, 42, 69
MEMBER_ID_REQUIRED, STALE_EPOCH, UNKNOWN_ID = 79, 113, 100


# -- groups -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"names": ("other",)}, {"protocol_type": "connect"}])
@pytest.mark.parametrize("version", [0, 3, 4, 9])
def test_a_member_without_a_protocol_in_common_learns_it_before_it_gets_an_id(
    peer: Peer, version: int, fields: dict[str, Any]
) -> None:
    joined = join(peer, version=3)
    assert sync(peer, joined, 3).error_code == NONE
    for member_id in ("", "nobody", joined.member_id):
        answer = join(peer, member_id, version, **fields)
        assert (answer.error_code, answer.member_id) == (INCONSISTENT_PROTOCOL, member_id)
    assert join(peer, "", 9).error_code == MEMBER_ID_REQUIRED
    assert join(peer, "nobody", 9).error_code == UNKNOWN_MEMBER


@pytest.mark.parametrize("instance", [None, "i"])
def test_a_member_that_a_request_names_twice_is_unknown_the_second_time(
    peer: Peer, instance: str | None
) -> None:
    names = (
        [("the id", instance)]
        if instance is None
        else [("the id", "i"), ("", "i"), ("the id", None)]
    )
    for first in names:
        for second in names:
            joined = join(peer, version=5 if instance else 3, group_instance_id=instance)
            assert sync(peer, joined, 3).error_code == NONE
            asked = [(joined.member_id if m else "", i) for m, i in (first, second)]
            assert leave(peer, *asked) == [NONE, UNKNOWN_MEMBER]
            assert leave(peer, asked[0]) == [UNKNOWN_MEMBER]


def test_an_id_that_was_only_given_out_leaves_once(peer: Peer) -> None:
    given = join(peer, version=9)
    assert given.error_code == MEMBER_ID_REQUIRED
    assert leave(peer, (given.member_id, None), (given.member_id, None)) == [NONE, UNKNOWN_MEMBER]


def test_a_group_of_the_new_protocol_takes_both(peer: Peer) -> None:
    beat(peer, "m")
    assert leave(peer, ("m", None), ("m", None)) == [NONE, NONE]


def test_a_group_needs_a_name_to_be_described_by_its_epochs_or_to_lose_offsets(peer: Peer) -> None:
    answers = peer.ask(_Describe(group_ids=["", "x"]), 1).groups
    assert [one.error_code for one in answers] == [INVALID_GROUP, NOT_FOUND]
    assert peer.ask(OffsetDeleteRequest(group_id="", topics=[]), 0).error_code == INVALID_GROUP
    (described,) = peer.ask(DescribeGroupsRequest(groups=[""]), 6).groups
    assert described.error_code == NOT_FOUND


def test_a_group_in_error_lists_no_partitions(peer: Peer, db: eosdb.Database) -> None:
    beat(peer, "m")
    for version, asked in (
        (9, {"name": "t", "partition_indexes": [0]}),
        (10, {"topic_id": id_of(db), "partition_indexes": [0]}),
        (10, {"topic_id": UUID(int=7), "partition_indexes": [0]}),
    ):
        for member, epoch, code in (
            ("m", 9, STALE_EPOCH),
            ("x", 2, UNKNOWN_MEMBER),
            ("m", 2, NONE),
        ):
            given = {"group_id": "g", "member_id": member, "member_epoch": epoch, "topics": [asked]}
            (found,) = peer.ask(asking(OffsetFetchRequest, groups=[given]), version).groups
            assert found.error_code == code
            assert len(found.topics) == (code == NONE)


# -- reading ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("version", [11, 12, 15, 17])
@pytest.mark.parametrize(
    ("replica", "code"), [(-2, NONE), (-1, NONE), (0, NOT_LEADER), (1, NOT_LEADER)]
)
def test_the_broker_has_no_followers_that_could_fetch(
    peer: Peer, db: eosdb.Database, version: int, replica: int, code: int
) -> None:
    db.broker.append(TP, RecordBatch([Record(value=b"a")]))
    asked = fetch(0)
    asked.topics[0].topic_id = id_of(db)
    if version < 15:
        asked.replica_id = replica
    else:
        asked.replica_state = asked.ReplicaState(replica_id=replica, replica_epoch=-1)
    part = part_of(peer.ask(asked, version))
    assert (part.error_code, part.high_watermark) == (code, 1 if code == NONE else -1)


@each(("version", "asked", "answered"), [
        (9, "tt", "t"), (12, "tt", "t"), (12, "it", "t"), (12, "ti", "t"), (12, "ii", "t"),
        (12, "i", "t"), (13, "ix", "tx"), (13, "xx", "x"), (12, "gh", "gh"), (12, "gg", "g"),
        (10, "i", "!"), (10, "ii", "!!"), (11, "it", "!!"), (11, "xt", "!!"), (11, "tt", "t"),
    ])  # fmt: skip
def test_topics_by_name_and_by_id_are_described_once_and_by_id_from_version_12_on(
    peer: Peer, db: eosdb.Database, version: int, asked: str, answered: str
) -> None:
    """t: by name; i: by id; x: an id of no topic; g, h: names of no topic; !: INVALID_REQUEST."""
    ids = {"i": id_of(db), "x": UUID(int=9)}
    request = asking(
        MetadataRequest,
        topics=[
            {"topic_id": ids[one], "name": None} if one in ids else {"name": one} for one in asked
        ],
        allow_auto_topic_creation=False,
    )
    found = peer.ask(request, version).topics
    shown = {NONE: "t", INVALID_REQUEST: "!", UNKNOWN_ID: "x"}
    assert "".join(shown.get(one.error_code, one.name) for one in found) == answered


@pytest.mark.slow
@each(("states", "unknown", "listed"), [
        ([], [], True), (["Empty"], [], True), (["Ongoing"], [], False),
        (["Nosuch"], ["Nosuch"], False), (["empty"], ["empty"], False), ([""], [""], False),
        (["Empty", "Nosuch"], ["Nosuch"], True), (["Ongoing", "Nosuch"], ["Nosuch"], False),
    ])  # fmt: skip
@each("version", range(3))
def test_no_transaction_is_in_a_state_that_there_is_not(
    peer: Peer, version: int, states: list[str], unknown: list[str], listed: bool
) -> None:
    peer.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4)
    for duration in (-1, -2, -(2**63)):
        request = ListTransactionsRequest(
            state_filters=states, producer_id_filters=[], duration_filter=duration
        )
        answer = peer.ask(request, version)
        assert (answer.error_code, answer.unknown_state_filters) == (NONE, unknown)
        assert [one.transactional_id for one in answer.transaction_states] == ["x"] * listed


# -- settings and quotas ------------------------------------------------------------------------


@each(("name", "code"), [
        ("a b", INVALID_TOPIC), (".", INVALID_TOPIC), ("x" * 250, INVALID_TOPIC),
        ("", INVALID_REQUEST), ("x", 3),
    ])  # fmt: skip
def test_a_topic_whose_settings_change_has_a_name_that_a_topic_can_have(
    peer: Peer, name: str, code: int
) -> None:
    for operation in (0, 1):
        change = {"name": "retention.ms", "config_operation": operation, "value": "1000"}
        request = asking(
            IncrementalAlterConfigsRequest,
            resources=[{"resource_type": 2, "resource_name": name, "configs": [change]}],
            validate_only=False,
        )
        assert [one.error_code for one in peer.ask(request, 1).responses] == [code]
    setting = {"name": "retention.ms", "value": "1000"}
    replaced = asking(
        AlterConfigsRequest,
        resources=[{"resource_type": 2, "resource_name": name, "configs": [setting]}],
        validate_only=False,
    )
    assert [one.error_code for one in peer.ask(replaced, 2).responses] == [code]


@pytest.mark.slow
@each(
    ("kind", "key", "value", "removed", "code"),
    [
        ("user", "producer_byte_rate", 1.0, False, NO_QUOTAS),
        ("user", "request_percentage", 0.5, False, NO_QUOTAS),
        ("user", "nosuch", 1.0, False, INVALID_REQUEST),
        ("user", "producer_byte_rate", -1.0, False, INVALID_REQUEST),
        ("user", "producer_byte_rate", 0.0, False, INVALID_REQUEST),
        ("user", "connection_creation_rate", 1.0, False, INVALID_REQUEST),
        ("user", "connection_creation_rate", 1.0, True, NONE),
        ("ip", "connection_creation_rate", 1.0, False, NO_QUOTAS),
        ("ip", "producer_byte_rate", 1.0, True, NONE),
    ],
)
def test_a_quota_that_cannot_be_is_refused_as_such(
    peer: Peer, kind: str, key: str, value: float, removed: bool, code: int
) -> None:
    request = asking(
        AlterClientQuotasRequest,
        entries=[
            {
                "entity": [{"entity_type": kind, "entity_name": "127.0.0.1"}],
                "ops": [{"key": key, "value": value, "remove": removed}],
            }
        ],
        validate_only=True,
    )
    assert [one.error_code for one in peer.ask(request, 1).entries] == [code]
