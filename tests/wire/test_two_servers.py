"""Several servers of one file are one cluster: groups, transactions and long polls go across them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import BrokerConfig
from eosdb.wire.server import Server
from tests.wire.members import Confluent, Reading, settle
from tests.wire.peer import Peer, batch, fetch, fetched, produce, produced

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


def test_a_commit_at_one_ends_a_long_poll_at_the_other(servers: tuple[Server, Server]) -> None:
    with Peer(servers[0]) as reader, Peer(servers[1]) as writer:
        asked = fetch(0, wait_ms=_LONG_MS)
        reader.send(asked, 12)
        assert produced(writer.ask(produce({("t", 0): batch(b"a")}), 9)) == [(0, 0)]
        assert fetched(reader.answer(asked, 12)) == [(0, b"a")]
