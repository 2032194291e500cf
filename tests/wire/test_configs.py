"""Settings of topics and of the broker, as foreign clients see and change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from kafka.protocol.admin.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)

import eosdb
from eosdb import BrokerConfig
from eosdb.admin.tools import Tools
from eosdb.coordinator.groups.configs import GROUP_SETTINGS
from eosdb.model.topic_config import TOPIC_SETTINGS
from eosdb.wire.server import Server
from tests.cases import each
from tests.wire.clients import PATIENCE_S
from tests.wire.peer import Peer, asking

SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def client(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap_servers})


def described(client: AdminClient, kind: ResourceType, name: str) -> dict[str, Any]:
    (future,) = client.describe_configs([ConfigResource(kind, name)]).values()
    found: dict[str, Any] = future.result(PATIENCE_S)
    return found


def altered(
    peer: Peer, changes: Sequence[tuple[str, int, str | None]], version: int = 1, **more: Any
) -> int:
    request = asking(
        IncrementalAlterConfigsRequest,
        resources=[
            {
                "resource_type": more.get("kind", 2),
                "resource_name": more.get("name", "t"),
                "configs": [
                    {"name": name, "config_operation": operation, "value": value}
                    for name, operation, value in changes
                ],
            }
        ]
        * more.get("times", 1),
        validate_only=more.get("validate_only", False),
    )
    codes = {one.error_code for one in peer.ask(request, version).responses}
    assert len(codes) == 1
    return int(codes.pop())


def test_a_topic_shows_all_settings_of_kafka_and_where_they_come_from(
    db: eosdb.Database, client: AdminClient
) -> None:
    db.admin.alter_topic_config("t", {"retention.ms": 5, "segment.bytes": 2_097_152})
    found = described(client, ResourceType.TOPIC, "t")
    assert set(found) == set(TOPIC_SETTINGS)
    kept, own, default = found["segment.bytes"], found["retention.ms"], found["cleanup.policy"]
    assert (kept.value, kept.source, kept.is_read_only) == ("2097152", 1, False)
    assert (own.value, own.source, default.value, default.source) == ("5", 1, "delete", 5)
    assert [s.value for s in own.synonyms.values()] == ["5", "604800000"]


def test_the_broker_shows_the_settings_it_was_opened_with(db_path: Any) -> None:
    config = BrokerConfig(max_message_bytes=777, auto_create_topics_enable=True)
    with eosdb.connect(db_path, config=config) as db, db.serve() as server:
        client = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        found = described(client, ResourceType.BROKER, "1")
    largest, creates = found["message.max.bytes"], found["auto.create.topics.enable"]
    assert (largest.value, largest.source, largest.is_read_only) == ("777", 4, True)
    assert (creates.value, creates.source) == ("true", 4)
    assert (found["log.retention.ms"].source, found["node.id"].value) == (5, "1")


@each("version", range(1, 5))
def test_asked_for_by_name_they_come_with_what_the_version_has(peer: Peer, version: int) -> None:
    names = ["retention.ms", "segment.ms", "nope"]
    request = asking(
        DescribeConfigsRequest,
        resources=[{"resource_type": 2, "resource_name": "t", "configuration_keys": names}],
        include_synonyms=True,
        include_documentation=True,
    )
    (found,) = peer.ask(request, version).results
    assert [config.name for config in found.configs] == ["retention.ms", "segment.ms"]
    own, kept = found.configs
    assert [(s.name, s.value, s.source) for s in own.synonyms] == [
        ("log.retention.ms", "604800000", 5)
    ]
    if version >= 3:
        assert (own.config_type, own.documentation) == (5, None)
        assert kept.documentation == "eosdb keeps it for its clients; it has no effect."


@each(
    ("kind", "name", "code"),
    [
        (2, "none", 3),
        (2, "b d", 17),
        (2, "", 17),
        (4, "7", 42),
        (32, "", 42),
        (16, "m", 42),
        (3, "x", 42),
    ],
)
def test_what_has_no_settings_is_refused(peer: Peer, kind: int, name: str, code: int) -> None:
    asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    (found,) = peer.ask(asking(DescribeConfigsRequest, resources=asked), 4).results
    assert (found.error_code, found.configs) == (code, [])


def test_settings_are_changed_one_by_one(db: eosdb.Database, client: AdminClient) -> None:
    db.admin.alter_topic_config("t", {"retention.ms": 5, "segment.ms": 7})
    set_, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    resource = ConfigResource(
        ResourceType.TOPIC,
        "t",
        incremental_configs=[
            ConfigEntry("retention.ms", "9", incremental_operation=set_),
            ConfigEntry("segment.ms", None, incremental_operation=delete),
            ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
            ),
        ],
    )
    for future in client.incremental_alter_configs([resource]).values():
        future.result(PATIENCE_S)
    assert db.admin.describe_topic("t").config == {
        "retention.ms": "9",
        "cleanup.policy": "delete,compact",
    }
    assert Tools(db.admin).topic_config("t").compact


@pytest.mark.parametrize("version", range(2))
def test_lists_are_appended_to_and_subtracted_from(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    def policy() -> str:
        return db.admin.describe_topic("t").config["cleanup.policy"]

    assert altered(peer, [("cleanup.policy", APPEND, "compact,delete")], version) == 0
    assert policy() == "delete,compact"
    assert altered(peer, [("cleanup.policy", SUBTRACT, "delete")], version) == 0
    assert policy() == "compact"


@each(
    ("changes", "code"),
    [
        ([("nope", SET, "1")], 40),
        ([("retention.ms", SET, "x")], 40),
        ([("retention.ms", APPEND, "1")], 40),
        ([("cleanup.policy", APPEND, "bogus")], 40),
        ([("retention.ms", SET, None)], 42),
        ([("retention.ms", 7, "1")], 42),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], 42),
    ],
)
def test_a_bad_change_changes_nothing(
    db: eosdb.Database, peer: Peer, changes: list[tuple[str, int, str | None]], code: int
) -> None:
    assert altered(peer, [("segment.ms", SET, "5"), *changes]) == code
    assert db.admin.describe_topic("t").config == {}


def test_a_change_is_refused_where_there_is_nothing_to_change(peer: Peer) -> None:
    change = [("retention.ms", SET, "1")]
    assert altered(peer, change, name="none") == 3
    assert altered(peer, [("log.retention.ms", SET, "1")], kind=4, name="1") == 42
    assert altered(peer, [("nonsense", DELETE, None)], kind=4, name="1") == 0
    assert altered(peer, [("nonsense", DELETE, None)], kind=4, name="7") == 42
    assert altered(peer, [], kind=4, name="") == 0
    assert altered(peer, change, kind=8, name="1") == 42
    assert altered(peer, change, times=2) == 42


@each("version", range(2))
def test_a_group_has_settings_before_there_is_such_a_group(
    db: eosdb.Database, client: AdminClient, peer: Peer, version: int
) -> None:
    def change(*changes: tuple[str, int, str | None], **more: Any) -> int:
        return altered(peer, changes, version, kind=32, name="g", **more)

    def values() -> dict[str, tuple[str, int]]:
        found = described(client, ResourceType.GROUP, "g")
        return {name: (entry.value, entry.source) for name, entry in found.items()}

    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

    def changed() -> dict[str, tuple[str, int]]:
        return {name: values()[name] for name in (session, heartbeat)}

    default = {session: ("45000", 5), heartbeat: ("5000", 5)}
    assert values().keys() == GROUP_SETTINGS.keys()
    assert change((session, SET, "50000"), validate_only=True) == 0
    assert changed() == default
    assert change((session, SET, "50000"), ("nonsense", DELETE, None)) == 0
    assert changed() == default | {session: ("50000", 8)}
    assert Tools(db.admin).list_group_configs() == ["g"]
    for name, operation, value in (
        (session, SET, "1"), (session, SET, "x"), (session, APPEND, "50000"), ("nonsense", SET, "1"),
    ):  # fmt: skip
        assert change((name, operation, value)) == 40
    assert change((session, SET, "50000"), (session, DELETE, None)) == 42
    listed = peer.ask(ListConfigResourcesRequest(resource_types=[32]), 1).config_resources
    assert [(one.resource_type, one.resource_name) for one in listed] == [(32, "g")]
    config = {"name": heartbeat, "value": "6000"}
    older = asking(
        AlterConfigsRequest,
        resources=[{"resource_type": 32, "resource_name": "g", "configs": [config]}],
        validate_only=False,
    )
    assert peer.ask(older, 2).responses[0].error_code == 0
    assert changed() == default | {heartbeat: ("6000", 8)}
    assert change((heartbeat, DELETE, None)) == 0
    assert changed() == default
    assert db.verify().ok


def test_a_change_that_is_only_validated_does_not_happen(db: eosdb.Database, peer: Peer) -> None:
    assert altered(peer, [("retention.ms", SET, "1")], validate_only=True) == 0
    assert altered(peer, [("retention.ms", SET, "x")], validate_only=True) == 40
    assert db.admin.describe_topic("t").config == {}


@each("version", range(3))
def test_the_older_request_drops_what_it_does_not_name(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    db.admin.alter_topic_config("t", {"retention.ms": 5, "segment.ms": 7})

    def alter(value: str | None, validate_only: bool) -> int:
        config = {"name": "retention.ms", "value": value}
        request = asking(
            AlterConfigsRequest,
            resources=[{"resource_type": 2, "resource_name": "t", "configs": [config]}],
            validate_only=validate_only,
        )
        return int(peer.ask(request, version).responses[0].error_code)

    assert alter("9", validate_only=True) == 0
    assert alter(None, validate_only=False) == 42
    assert db.admin.describe_topic("t").config == {"retention.ms": "5", "segment.ms": "7"}
    assert alter("9", validate_only=False) == 0
    assert db.admin.describe_topic("t").config == {"retention.ms": "9"}


def test_what_has_settings_is_listed(peer: Peer) -> None:
    def listed(version: int, *kinds: int) -> tuple[int, list[tuple[int, str]]]:
        answer = peer.ask(ListConfigResourcesRequest(resource_types=list(kinds)), version)
        found = [(one.resource_type, one.resource_name) for one in answer.config_resources]
        return answer.error_code, found

    assert listed(0) == (0, [])
    assert listed(1) == (0, [(2, "t"), (4, "1")])
    assert listed(1, 4) == (0, [(4, "1")])
    assert listed(1, 99) == (35, [])
