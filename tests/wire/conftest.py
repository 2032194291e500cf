"""A served file, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import eosdb
from eosdb.wire.server import Server
from tests.wire.peer import Peer
from tests.wire.secured import Certificates, make_certificates


@pytest.fixture
def server(db: eosdb.Database) -> Iterator[Server]:
    """`db` with the topic "t" of two partitions, behind a server."""
    db.admin.create_topic("t", partitions=2)
    with db.serve() as made:
        yield made


@pytest.fixture
def peer(server: Server) -> Iterator[Peer]:
    with Peer(server) as made:
        yield made


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))
