"""One group of members of different kinds: whoever leads, the others understand what they are assigned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb.wire.server import Server
from tests.waiting import eventually
from tests.wire.members import Reading, join, settle

pytestmark = pytest.mark.slow

PARTITIONS = 6


@pytest.fixture
def db(db_path: Path) -> Iterator[eosdb.Database]:
    with eosdb.connect(db_path, durability="normal") as opened:
        opened.admin.create_topic("t", partitions=PARTITIONS)
        yield opened
        assert opened.verify().ok


@pytest.fixture
def server(db: eosdb.Database) -> Iterator[Server]:
    with db.serve() as made:
        yield made


def send(db: eosdb.Database, name: str) -> set[bytes]:
    """A value to every partition."""
    values = {f"{name}-{index}".encode() for index in range(PARTITIONS)}
    with db.producer() as producer:
        for index, value in enumerate(sorted(values)):
            producer.send("t", value, partition=index)
    return values


GROUPS = [
    ("range", ["library", "confluent-kafka", "aiokafka", "kafka-python"]),
    ("roundrobin", ["confluent-kafka", "library", "kafka-python", "aiokafka"]),
    ("sticky", ["library", "aiokafka"]),
    ("sticky", ["aiokafka", "library"]),
    ("sticky", ["library", "kafka-python"]),
    ("cooperative-sticky", ["library", "confluent-kafka", "kafka-python"]),
    ("cooperative-sticky", ["confluent-kafka", "library"]),
]


@pytest.mark.parametrize(
    ("strategy", "kinds"), GROUPS, ids=[f"{name}: {', '.join(kinds)}" for name, kinds in GROUPS]
)
def test_members_of_every_kind_share_the_partitions(
    db: eosdb.Database, server: Server, strategy: str, kinds: list[str]
) -> None:
    """They come one by one, and go from the first, which leads, so that each of them leads once."""
    members: list[Reading] = []
    everybody: list[Reading] = []
    sent: set[bytes] = set()

    def all_read() -> bool:
        return {value for member in everybody for value in member.values} == sent

    for kind in kinds:
        members.append(join(kind, db, server, "g", strategy))
        everybody.append(members[-1])
        settle(members, PARTITIONS)
        assert db.broker.describe_group("g").protocol_name == strategy
    sent |= send(db, "all")
    eventually(all_read)
    while len(members) > 1:
        before = [set(member.share) for member in members[1:]]
        members.pop(0).close()
        settle(members, PARTITIONS)
        if "sticky" in strategy:
            for member, share in zip(members, before, strict=True):
                assert share <= member.share, member.name
    sent |= send(db, "last")
    eventually(all_read)
    members[0].close()
    assert db.broker.describe_group("g").state == "Empty"


def test_the_server_notices_a_member_of_another_process_that_died(
    db: eosdb.Database, server: Server, db_path: Path
) -> None:
    dies = eosdb.connect(db_path, clock=db.clock)
    consumer = dies.consumer("g", session_timeout_ms=300_000)
    consumer.subscribe("t")
    assert len(db.broker.describe_group("g").members) == 1
    dies.abandon()
    eventually(lambda: not db.broker.describe_group("g").members)
