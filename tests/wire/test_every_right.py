"""Every API is refused to whoever lacks one right that it needs, and given to whoever has those alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pytest
from kafka.protocol.producer.transaction import AddPartitionsToTxnRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

import eosdb
from eosdb import Acl, BrokerConfig, ProducerIdAndEpoch
from eosdb.wire.session import ANONYMOUS
from tests.readers import copy_as_original
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


CONFIG = BrokerConfig(super_users=ADMIN)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ProducerIdAndEpoch]:
    """A file in which alice has a password, and the producer of its open transaction."""
    path = tmp_path_factory.mktemp("prepared") / "t.db"
    with eosdb.connect(path, principal=ADMIN, config=CONFIG, durability="off") as db:
        db.admin.set_password("alice", "secret")
        return path, every_api.prepare(db)


class Ask(Protocol):
    def __call__(self, row: Row, acls: list[Acl], user: str = "") -> Any: ...


@pytest.fixture
def asked(prepared: tuple[Path, ProducerIdAndEpoch], db_path: Path) -> Ask:
    """asked(row, acls, user=""): the answer to somebody for whom these rows are; with `user` who has
    logged in."""
    copy_as_original(prepared[0], db_path)

    def ask(row: Row, acls: list[Acl], user: str = "") -> Any:
        with eosdb.connect(db_path, principal=ADMIN, config=CONFIG, durability="off") as db:
            db.admin.create_acls(acls)
            with db.serve() as server, Peer(server) as peer:
                if user:
                    log_in(peer, user)
                return peer.ask(row.make(prepared[1]), row.version)

    return ask


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
def test_whoever_lacks_one_right_is_refused(asked: Ask, row: Row, right: Right) -> None:
    answer = asked(row, EVERYTHING + denied(right))
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
def test_whoever_has_the_rights_alone_is_answered(asked: Ask, row: Row, way: int) -> None:
    """A user who has logged in; nobody, whom the connection began as, has none."""
    user = "alice" if row.rights else ""
    answer = asked(row, allowed(row, f"User:{user}", way), user)
    assert not codes(answer) & REFUSALS
    for right in row.rights:
        assert right.code != HIDDEN or right.name in repr(answer)


def test_what_may_not_be_added_is_named_and_the_rest_was_not_tried(asked: Ask) -> None:
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
    told = {
        topic.name: topic.results_by_partition[0].partition_error_code
        for topic in asked(row, EVERYTHING + denials).results_by_topic_v3_and_below
    }
    assert told == {"no": 29, TOPIC: 55, "neither": 29, "gone": 3}
