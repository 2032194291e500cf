"""Every API is refused to whoever lacks one right that it needs, and given to whoever has those alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.producer.transaction import AddPartitionsToTxnRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

import eosdb
from eosdb import Acl, BrokerConfig
from eosdb.wire.session import ANONYMOUS
from tests.wire import every_api
from tests.wire.every_api import HIDDEN, ID, REFUSALS, TABLE, TOPIC, Right, Row
from tests.wire.peer import Peer

pytestmark = pytest.mark.slow

KINDS = ("topic", "group", "transactional_id")
EVERYTHING = [
    *(Acl(ANONYMOUS, "all", kind, "*") for kind in KINDS),
    Acl(ANONYMOUS, "all", "cluster", "kafka-cluster"),
]
ADMIN = "User:admin"


def denied(right: Right) -> list[Acl]:
    """The right, and what would be as good."""
    ways = [(right.operation, right.resource_type, right.name), *right.instead]
    return [Acl(ANONYMOUS, *way, permission="deny") for way in ways]


def allowed(row: Row, principal: str, way: int) -> list[Acl]:
    """The row's rights, or the others that are as good."""
    ways = [[right[1:4], *right.instead] for right in row.rights]
    given = [Acl(principal, *each[min(way, len(each) - 1)]) for each in ways]
    return given or [Acl(ADMIN, "all", "cluster", "kafka-cluster")]


@contextmanager
def asked(db_path: Path, row: Row, acls: list[Acl], user: str = "") -> Iterator[Any]:
    """The answer to somebody for whom these rows are; with `user` who has logged in."""
    config = BrokerConfig(super_users=ADMIN)
    with eosdb.connect(db_path, principal=ADMIN, config=config, durability="off") as db:
        request = row.make(every_api.prepare(db))
        db.admin.create_acls(acls)
        if user:
            db.admin.set_password(user, "secret")
        with db.serve() as server, Peer(server) as peer:
            if user:
                log_in(peer, user)
            yield peer.ask(request, row.version)


def log_in(peer: Peer, user: str) -> None:
    assert peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    token = f"\0{user}\0secret".encode()
    assert peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0


def codes(message: Any) -> set[int]:
    """Every error code in an answer."""
    if isinstance(message, list):
        return set().union(*map(codes, message))
    fields = getattr(message, "fields", None) or {}
    found = set[int]()
    for name in fields:
        value: Any = getattr(message, str(name), None)
        if name in ("error_code", "partition_error_code"):
            found.add(value)
        elif isinstance(value, list) or hasattr(value, "fields"):
            found |= codes(value)
    return found


@pytest.mark.parametrize(
    ("row", "right"),
    [(row, right) for row in TABLE for right in row.rights],
    ids=lambda value: value.name if isinstance(value, Row) else "_".join(value[1:3]),
)
def test_whoever_lacks_one_right_is_refused(db_path: Path, row: Row, right: Right) -> None:
    with asked(db_path, row, EVERYTHING + denied(right)) as answer:
        if right.code == HIDDEN:
            assert codes(answer) <= {0}
            assert right.name not in repr(answer)
        else:
            assert right.code in codes(answer)
            assert codes(answer) <= {0, right.code}


@pytest.mark.parametrize(
    ("row", "way"),
    [(row, 0) for row in TABLE]
    + [(row, 1) for row in TABLE if any(right.instead for right in row.rights)],
    ids=lambda value: value.name if isinstance(value, Row) else str(value),
)
def test_whoever_has_the_rights_alone_is_answered(db_path: Path, row: Row, way: int) -> None:
    """A user who has logged in; nobody, whom the connection began as, has none."""
    user = "alice" if row.rights else ""
    with asked(db_path, row, allowed(row, f"User:{user}", way), user) as answer:
        assert not codes(answer) & REFUSALS
        for right in row.rights:
            assert right.code != HIDDEN or right.name in repr(answer)


def test_what_may_not_be_added_is_named_and_the_rest_was_not_tried(db_path: Path) -> None:
    names = ("no", TOPIC, "neither", "gone")
    row = Row(
        AddPartitionsToTxnRequest, 3,
        lambda who: {
            "v3_and_below_transactional_id": ID, "v3_and_below_producer_id": who[0],
            "v3_and_below_producer_epoch": who[1],
            "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in names],
        },
    )  # fmt: skip
    denials = [
        Acl(ANONYMOUS, "write", "topic", name, permission="deny") for name in ("no", "neither")
    ]
    with asked(db_path, row, EVERYTHING + denials) as answer:
        told = {
            topic.name: topic.results_by_partition[0].partition_error_code
            for topic in answer.results_by_topic_v3_and_below
        }
    assert told == {"no": 29, TOPIC: 55, "neither": 29, "gone": 3}
