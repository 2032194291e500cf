"""The server's end: in good order where clients let it, and in any case."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb.wire.limits import Limits
from eosdb.wire.messages import Response
from eosdb.wire.server import CarryOut, Server
from eosdb.wire.session import Session
from tests.testing.clients import API_VERSIONS, ask_without_reading

PATIENCE_S = 60


@pytest.mark.slow
def test_closing_waits_for_no_client_that_reads_nothing(tmp_path: Path) -> None:
    limits = Limits(close_s=0.1)
    with eosdb.connect(tmp_path / "a.db") as db, db.serve(limits=limits) as server:
        db.admin.create_topic("t", partitions=500)
        with socket.create_connection((server.host, server.port)) as mute:
            ask_without_reading(mute)
            server.close()
            with pytest.raises(ConnectionError):
                while True:
                    mute.sendall(API_VERSIONS)


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def server(tmp_path: Path, held: Held) -> Iterator[Server]:
    with eosdb.connect(tmp_path / "a.db") as db, db.serve(interfere=held) as server:
        yield server


def test_a_server_that_is_closed_answers_what_is_being_asked(server: Server, held: Held) -> None:
    with held.asking(server) as client:
        ending = threading.Thread(target=server.close)
        ending.start()
        wait_until_refused(server)
        held.may_go_on.set()
        assert client.recv(4)
        ending.join(PATIENCE_S)


def test_a_server_that_is_abandoned_breaks_off(server: Server, held: Held) -> None:
    with held.asking(server) as client:
        ending = threading.Thread(target=server.abandon)
        ending.start()
        assert answer_of(client) == b""
        held.may_go_on.set()
        ending.join(PATIENCE_S)


class Held:
    """Requests that wait until the test lets them go on."""

    def __init__(self) -> None:
        self.arrived, self.may_go_on = threading.Event(), threading.Event()

    def __call__(self, name: str, session: Session, carry_out: CarryOut) -> Response | None:
        self.arrived.set()
        assert self.may_go_on.wait(PATIENCE_S)
        return carry_out(session)

    def asking(self, server: Server) -> socket.socket:
        """A client whose request has arrived."""
        client = socket.create_connection((server.host, server.port))
        client.settimeout(PATIENCE_S)
        client.sendall(API_VERSIONS)
        assert self.arrived.wait(PATIENCE_S)
        return client


def wait_until_refused(server: Server) -> None:
    with pytest.raises(ConnectionRefusedError):
        while True:
            socket.create_connection((server.host, server.port)).close()


def answer_of(client: socket.socket) -> bytes:
    try:
        return client.recv(4)
    except ConnectionError:
        return b""
