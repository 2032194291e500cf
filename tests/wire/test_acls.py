"""Access control lists, made, listed and removed by foreign clients."""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin.acl import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

import eosdb
from eosdb import Acl
from tests.cases import each
from tests.wire.peer import Peer

ADMIN = Acl("User:ANONYMOUS", "all", "cluster", "kafka-cluster")
ORDERS = Acl("User:bob", "read", "topic", "orders")
PREFIXED = Acl("User:bob", "write", "topic", "ord", "prefixed")
EVERY = Acl("User:eve", "read", "topic", "*", "literal", "deny")
TX = Acl("User:bob", "describe", "transactional_id", "orders")
ROWS = [ADMIN, ORDERS, PREFIXED, EVERY, TX]
TOPIC, CLUSTER = 2, 4
ANY, MATCH, LITERAL, PREFIX = 1, 2, 3, 4
READ, WRITE = 3, 4


def wanted(**fields: Any) -> dict[str, Any]:
    given = {
        "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY,
        "principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY,
    }  # fmt: skip
    return given | fields


def creation(**fields: Any) -> CreateAclsRequest.AclCreation:
    given: dict[str, Any] = {
        "resource_type": TOPIC, "resource_name": "orders", "resource_pattern_type": LITERAL,
        "principal": "User:bob", "host": "*", "operation": READ, "permission_type": 3,
    }  # fmt: skip
    return CreateAclsRequest.AclCreation(**(given | fields))


def names(peer: Peer, version: int = 3, **fields: Any) -> set[str]:
    """The names of the resources whose rows are found."""
    answer = peer.ask(DescribeAclsRequest(**wanted(**fields)), version)
    assert answer.error_code == 0, answer.error_message
    return {resource.resource_name for resource in answer.resources}


@each("version", range(1, 4))
def test_a_filter_finds_what_it_says(db: eosdb.Database, peer: Peer, version: int) -> None:
    db.admin.create_acls(ROWS)

    def found(**fields: Any) -> set[str]:
        return names(peer, version, **fields)

    assert found() == {"kafka-cluster", "orders", "ord", "*"}
    assert found(resource_type_filter=CLUSTER) == {"kafka-cluster"}
    assert found(resource_name_filter="ord") == {"ord"}
    assert found(pattern_type_filter=PREFIX) == {"ord"}
    assert found(pattern_type_filter=LITERAL, resource_name_filter="ord") == set()
    match = {"pattern_type_filter": MATCH, "resource_type_filter": TOPIC}
    assert found(**match, resource_name_filter="orders") == {"orders", "ord", "*"}
    assert found(**match, resource_name_filter="order") == {"ord", "*"}
    assert found(**match) == {"orders", "ord", "*"}
    assert found(principal_filter="User:eve") == {"*"}
    assert found(operation=WRITE) == {"ord"}
    assert found(permission_type=2) == {"*"}
    assert found(host_filter="*", permission_type=2) == {"*"}
    assert found(host_filter="10.0.0.1") == set()
    assert found(resource_type_filter=6) == set()


def test_a_filter_with_an_unknown_element_is_refused(peer: Peer) -> None:
    answer = peer.ask(DescribeAclsRequest(**wanted(operation=0)), 3)
    assert (answer.error_code, answer.resources) == (42, [])


@each("version", range(1, 4))
def test_what_cannot_be_a_row_is_refused_alone(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    db.admin.create_acls([ADMIN])
    creations = [
        creation(),
        creation(host="10.0.0.1"),
        creation(resource_type=6),
        creation(resource_type=ANY),
        creation(resource_type=CLUSTER, resource_name="other"),
        creation(resource_name=""),
        creation(resource_pattern_type=MATCH),
        creation(operation=ANY),
        creation(permission_type=ANY),
        creation(principal="bob"),
    ]
    answer = peer.ask(CreateAclsRequest(creations=creations), version)
    assert [result.error_code for result in answer.results] == [0] + [42] * 9
    assert "got '10.0.0.1', expected *" in answer.results[1].error_message
    assert db.admin.list_acls() == sorted([ADMIN, ORDERS])


@each("version", range(1, 4))
def test_each_filter_is_told_what_it_has_removed(
    db: eosdb.Database, peer: Peer, version: int
) -> None:
    db.admin.create_acls(ROWS)
    one = DeleteAclsRequest.DeleteAclsFilter
    filters = [
        one(**wanted(resource_name_filter="orders")),
        one(**wanted(resource_type_filter=TOPIC, principal_filter="User:bob")),
        one(**wanted(permission_type=0)),
    ]
    answer = peer.ask(DeleteAclsRequest(filters=filters), version)
    results = [
        (result.error_code, {(acl.resource_type, acl.resource_name) for acl in result.matching_acls})
        for result in answer.filter_results
    ]  # fmt: skip
    assert results == [
        (0, {(TOPIC, "orders"), (5, "orders")}),
        (0, {(TOPIC, "orders"), (TOPIC, "ord")}),
        (42, set()),
    ]
    assert db.admin.list_acls() == sorted([ADMIN, EVERY])
