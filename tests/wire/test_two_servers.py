"""Several servers of one file are one cluster: groups, transactions and long polls go across them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaException

import eosdb
from eosdb import BrokerConfig
from eosdb.wire.server import Server
from tests.wire.members import Confluent, Reading, settle
from tests.wire.peer import PATIENCE_S, Peer, batch, fetch, fetched, produce, produced

pytestmark = pytest.mark.slow

_LONG_MS = 100_000


@pytest.fixture
def servers(db_path: Path) -> Iterator[tuple[Server, Server]]:
    """Each has opened the file for itself, as two processes do."""
    config = BrokerConfig(group_min_session_timeout_ms=100)
    with (
        eosdb.connect(db_path, durability="normal", config=config) as db,
        eosdb.connect(db_path, durability="normal", config=config) as other,
        db.serve() as one,
        other.serve() as two,
    ):
        db.admin.create_topic("t", partitions=2)
        yield one, two
        assert db.verify().ok


def test_a_group_has_members_at_both(servers: tuple[Server, Server]) -> None:
    members = [Reading(Confluent(server, "g", "range")) for server in servers]
    try:
        settle(members, 2)
    finally:
        for member in members:
            member.close()


def test_a_producer_at_one_fences_its_predecessor_at_the_other(
    servers: tuple[Server, Server],
) -> None:
    def producer(server: Server) -> confluent_kafka.Producer:
        made = confluent_kafka.Producer(
            {"bootstrap.servers": server.bootstrap_servers, "transactional.id": "x"}
        )
        made.init_transactions(PATIENCE_S)
        return made

    former = producer(servers[0])
    former.begin_transaction()
    former.produce("t", b"zombie", partition=0)
    former.flush(PATIENCE_S)
    successor = producer(servers[1])
    with pytest.raises(KafkaException):
        former.commit_transaction(PATIENCE_S)
    successor.begin_transaction()
    successor.produce("t", b"successor", partition=0)
    successor.commit_transaction(PATIENCE_S)
    with Peer(servers[0]) as peer:
        assert [value for _, value in fetched(peer.ask(fetch(0), 12))] == [b"successor"]


def test_a_commit_at_one_ends_a_long_poll_at_the_other(servers: tuple[Server, Server]) -> None:
    with Peer(servers[0]) as reader, Peer(servers[1]) as writer:
        asked = fetch(0, wait_ms=_LONG_MS)
        reader.send(asked, 12)
        assert produced(writer.ask(produce({("t", 0): batch(b"a")}), 9)) == [(0, 0)]
        assert fetched(reader.answer(asked, 12)) == [(0, b"a")]
