"""Access control: nothing is refused without rows; with rows, Kafka's order and Kafka's errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import Acl, BrokerConfig, Record, RecordBatch, TopicPartition
from eosdb.errors import InvalidRequestError
from tests.cases import each
from tests.readers import committed_values

TP = TopicPartition("t", 0)
ADMIN, ALICE = "User:admin", "User:alice"
CONFIG = BrokerConfig(transaction_version=1, super_users=f"{ADMIN};User:other")


@pytest.fixture
def admin(db_path: Path) -> Iterator[eosdb.Database]:
    with eosdb.connect(db_path, principal=ADMIN, config=CONFIG) as db:
        db.admin.create_topic("t")
        yield db


@pytest.fixture
def alice(admin: eosdb.Database, db_path: Path) -> Iterator[eosdb.Database]:
    """Somebody whom no row mentions, on a file that has rows."""
    admin.admin.create_acls([Acl("User:somebody", "all", "cluster", "kafka-cluster")])
    with eosdb.connect(db_path, principal=ALICE, config=CONFIG) as db:
        yield db


def allow(admin: eosdb.Database, operation: str, kind: str, name: str, **more: str) -> None:
    admin.admin.create_acls([Acl(ALICE, operation, kind, name, **more)])


BATCH = RecordBatch([Record(value=b"v")])


def test_without_rows_everything_is_allowed(admin: eosdb.Database, db_path: Path) -> None:
    with eosdb.connect(db_path, principal=ALICE) as db:
        assert db.broker.append(TP, BATCH).base_offset == 0


def test_the_order_of_a_transactional_produce(admin: eosdb.Database, alice: eosdb.Database) -> None:
    def outcome(tp: TopicPartition = TP) -> str:
        batch = RecordBatch([Record()], 0, 0, 0, True)
        (result,) = alice.broker.produce({tp: batch}, transactional_id="x").values()
        assert result.error is not None
        return result.error.name

    assert outcome() == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    allow(admin, "write", "transactional_id", "x")
    assert outcome(TopicPartition("nope", 0)) == "TOPIC_AUTHORIZATION_FAILED"
    assert outcome() == "TOPIC_AUTHORIZATION_FAILED"
    allow(admin, "write", "topic", "*")
    assert outcome(TopicPartition("nope", 0)) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert outcome() == "INVALID_PRODUCER_ID_MAPPING"


def test_an_idempotent_batch_needs_its_topic_and_nothing_else(
    admin: eosdb.Database, alice: eosdb.Database
) -> None:
    """KafkaApis.handleProduceRequest leaves IDEMPOTENT_WRITE to InitProducerId."""
    admin.admin.create_topic("u")
    batch, other = RecordBatch([Record()], 0, 0, 0), TopicPartition("u", 0)
    with pytest.raises(eosdb.TopicAuthorizationFailedError):
        alice.broker.append(TP, batch)
    allow(admin, "idempotent_write", "cluster", "kafka-cluster")
    with pytest.raises(eosdb.TopicAuthorizationFailedError):
        alice.broker.append(TP, batch)
    allow(admin, "write", "topic", "t")
    admin.admin.delete_acls(lambda acl: acl.operation == "idempotent_write")
    results = alice.broker.produce({TP: batch, other: batch})
    assert results[TP].base_offset == 0
    assert isinstance(results[other].error, eosdb.TopicAuthorizationFailedError)


@pytest.mark.parametrize("among_others", [False, True], ids=["all rights", "of one topic"])
def test_an_idempotent_producer_whose_right_is_taken_away_goes_on_when_it_is_given_back(
    admin: eosdb.Database, alice: eosdb.Database, among_others: bool
) -> None:
    if among_others:
        admin.admin.create_topic("u")
        allow(admin, "write", "topic", "u")
    allow(admin, "write", "topic", "t")
    producer = alice.producer()
    assert producer.send("t", "before").result().offset == 0
    admin.admin.delete_acls(lambda acl: acl.resource_name == "t")
    refused = producer.send("t", "refused")
    with pytest.raises(eosdb.TopicAuthorizationFailedError):
        refused.result()
    allow(admin, "write", "topic", "t")
    assert producer.send("t", "after").result().offset == 1
    assert committed_values(admin, TP) == [b"before", b"after"]
    assert admin.verify().ok


def test_a_denial_wins_and_prefixes_match(admin: eosdb.Database, alice: eosdb.Database) -> None:
    allow(admin, "all", "topic", "te", pattern_type="prefixed")
    admin.admin.create_topic("test")
    test = TopicPartition("test", 0)
    alice.broker.append(test, BATCH)
    with pytest.raises(eosdb.TopicAuthorizationFailedError):
        alice.broker.append(TP, BATCH)
    admin.admin.create_acls([Acl("User:*", "write", "topic", "test", permission="deny")])
    with pytest.raises(eosdb.TopicAuthorizationFailedError):
        alice.broker.append(test, BATCH)
    assert len(alice.broker.fetch(test, 0).records) == 1


def test_what_implies_describing(admin: eosdb.Database, alice: eosdb.Database) -> None:
    allow(admin, "read", "topic", "t")
    assert alice.admin.list_topics() == ["t"]
    assert alice.broker.offsets(TP).log_end_offset == 0


def test_a_typed_view_belongs_to_its_topic(admin: eosdb.Database, alice: eosdb.Database) -> None:
    admin.admin.create_view("typed", "t", {"a": "TEXT"})
    assert alice.admin.list_views() == []
    with pytest.raises(eosdb.TopicAuthorizationFailedError):
        alice.admin.drop_view("typed")
    allow(admin, "alter_configs", "topic", "t")
    allow(admin, "describe", "topic", "t")
    assert [view.name for view in alice.admin.list_views()] == ["typed"]
    alice.admin.drop_view("TYPED")
    assert admin.admin.list_views() == []


def test_rows_are_kept_once_listed_and_removed(admin: eosdb.Database) -> None:
    acl = Acl(ALICE, "Read", "Topic", "t")
    admin.admin.create_acls([acl, acl])
    stored = Acl(ALICE, "read", "topic", "t", "literal", "allow")
    assert admin.admin.list_acls() == [stored]
    assert admin.verify().ok
    assert admin.admin.delete_acls(lambda row: row.principal == ALICE) == [stored]
    assert admin.admin.list_acls() == []


@each("acl", [
        Acl("alice", "read", "topic", "t"), Acl(ALICE, "burn", "topic", "t"),
        Acl(ALICE, "read", "planet", "t"), Acl(ALICE, "read", "topic", "t", "fuzzy"),
        Acl(ALICE, "read", "topic", "t", "literal", "maybe"),
    ])  # fmt: skip
def test_rows_that_mean_nothing_are_refused(admin: eosdb.Database, acl: Acl) -> None:
    with pytest.raises(eosdb.InvalidRequestError):
        admin.admin.create_acls([acl])


def test_an_acl_of_the_cluster_names_the_cluster(admin: eosdb.Database) -> None:
    for name in ("other", ""):
        with pytest.raises(InvalidRequestError, match="resource_name"):
            allow(admin, "create", "cluster", name)
