"""Connections of clients that have not logged in or, where no login is required, asked anything: they keep
nobody out, and soon end."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.protocol.metadata.api_versions import ApiVersionsRequest
from kafka.protocol.sasl import SaslAuthenticateRequest

import eosdb
from eosdb.wire.limits import Limits
from eosdb.wire.parking import REAL_TIME
from eosdb.wire.server import Server
from tests.wire.peer import PATIENCE_S, Peer
from tests.wire.raw import eventually
from tests.wire.secured import (
    PASSWORD,
    USER,
    Certificates,
    hello,
    is_closed,
    log_in,
)

pytestmark = pytest.mark.slow

MOST = 8
SECURITY = ("in the clear", "TLS", "login", "TLS and login")


class Place:
    """A server, and how one comes in."""

    def __init__(self, server: Server, kind: str, certificates: Certificates) -> None:
        self.server = server
        self._tls = certificates.context() if "TLS" in kind else None
        self._needs_login = "login" in kind

    def user(self) -> Peer:
        """A client that is no stranger. Raises OSError."""
        peer = Peer(self.server)
        try:
            if self._tls is not None:
                peer.socket = self._tls.wrap_socket(peer.socket, server_hostname="localhost")
            if self._needs_login:
                log_in(peer)
            self.ask(peer)
        except BaseException:
            peer.socket.close()
            raise
        return peer

    def stranger(self) -> socket.socket:
        address = (self.server.host, self.server.port)
        return socket.create_connection(address, timeout=PATIENCE_S)

    @staticmethod
    def ask(peer: Peer) -> None:
        assert peer.ask(ApiVersionsRequest(), 0).error_code == 0


@pytest.fixture(params=SECURITY)
def place(
    request: pytest.FixtureRequest, db: eosdb.Database, certificates: Certificates
) -> Iterator[Callable[..., Place]]:
    with contextlib.ExitStack() as opened:

        def made(**limits: Any) -> Place:
            db.admin.set_password(USER, PASSWORD)
            settings: dict[str, Any] = {"require_sasl": "login" in request.param}
            if "TLS" in request.param:
                settings |= {"tls_cert": certificates.cert, "tls_key": certificates.key}
            server = opened.enter_context(db.serve(limits=Limits(**limits), **settings))
            return Place(server, request.param, certificates)

        yield made


def test_silent_strangers_keep_nobody_out_and_the_oldest_goes_first(
    place: Callable[..., Place], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="eosdb.wire")
    at = place(connections=MOST, stranger_s=PATIENCE_S)
    with contextlib.ExitStack() as opened:
        first = opened.enter_context(at.user())
        strangers = [opened.enter_context(at.stranger()) for _ in range(MOST - 1)]
        assert eventually(lambda: len(at.server._connections) == MOST, REAL_TIME)
        assert not caplog.records
        # Each comes in, and each time it is the oldest who goes.
        for oldest in strangers[:-1]:
            at.ask(opened.enter_context(at.user()))
            with contextlib.suppress(ConnectionResetError):
                assert oldest.recv(1) == b""
        at.ask(first)
        assert len(at.server._strangers) == 1, "the others are untouched"
        assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
            f"{MOST} connections"
        ], "said once"


def test_users_are_not_closed_for_a_stranger(place: Callable[..., Place]) -> None:
    at = place(connections=MOST)
    with contextlib.ExitStack() as opened:
        users = [opened.enter_context(at.user()) for _ in range(MOST)]
        for _ in range(3):
            with at.stranger() as late, contextlib.suppress(ConnectionResetError):
                assert late.recv(1) == b""
        for user in users:
            at.ask(user)


def test_a_stranger_that_says_nothing_is_closed_soon_and_a_user_is_not(
    place: Callable[..., Place],
) -> None:
    at = place(stranger_s=2.0)
    with at.user() as user, at.stranger() as stranger:
        assert stranger.recv(1) == b""
        at.ask(user)


@pytest.mark.parametrize("kind", ["a frame byte by byte", "the same question for ever"])
def test_a_stranger_that_says_little_or_much_is_closed_soon(db: eosdb.Database, kind: str) -> None:
    db.admin.set_password(USER, PASSWORD)
    limits = Limits(stranger_s=1.0)
    with db.serve(limits=limits, require_sasl=True) as server, Peer(server) as peer:
        if kind == "a frame byte by byte":
            peer.socket.sendall(struct.pack(">i", 60_000))

        def is_over() -> bool:
            try:
                if kind == "a frame byte by byte":
                    peer.socket.sendall(b"\0")
                else:
                    peer.ask(ApiVersionsRequest(), 0)
            except ConnectionError:
                return True
            return False

        assert eventually(is_over, REAL_TIME)


def test_a_login_that_is_begun_and_not_ended_is_a_strangers(db: eosdb.Database) -> None:
    db.admin.set_password(USER, PASSWORD)
    with db.serve(limits=Limits(stranger_s=1.0), require_sasl=True) as server, Peer(server) as peer:
        assert hello(peer, "PLAIN").error_code == 0
        assert len(server._strangers) == 1
        assert is_closed(peer)


def test_a_guess_that_waits_for_its_answer_goes_when_its_place_is_needed(
    db: eosdb.Database,
) -> None:
    db.admin.set_password(USER, PASSWORD)
    limits = Limits(connections=1, stranger_s=PATIENCE_S)
    with db.serve(limits=limits, require_sasl=True) as server:
        server._refusals._told_ms = REAL_TIME.monotonic_ms() + 3_600_000
        told_ms = server._refusals._told_ms
        with Peer(server) as guessing:
            assert hello(guessing, "PLAIN").error_code == 0
            guessing.send(SaslAuthenticateRequest(auth_bytes=b"\0nobody\0x"), 2)
            assert eventually(lambda: server._refusals._told_ms != told_ms, REAL_TIME)
            with Peer(server) as user:
                log_in(user)
                assert eventually(lambda: len(server._connections) == 1, REAL_TIME)


def test_strangers_take_nothing_of_the_memory_for_users(db: eosdb.Database) -> None:
    db.admin.set_password(USER, PASSWORD)
    with db.serve(require_sasl=True) as server, Peer(server) as stranger:
        stranger.socket.sendall(struct.pack(">i", 65_536) + bytes(60_000))
        assert eventually(lambda: len(server._strangers) == 1, REAL_TIME)
        with Peer(server) as user:
            log_in(user)
        assert server._memory.used == 0
        with Peer(server) as more, contextlib.suppress(ConnectionResetError):
            more.socket.sendall(struct.pack(">i", 65_537))
            assert is_closed(more)


def test_where_no_descriptor_is_left_a_stranger_goes_too(db: eosdb.Database) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with db.serve(limits=Limits(stranger_s=PATIENCE_S)) as server, contextlib.ExitStack() as opened:
        strangers = [opened.enter_context(Peer(server)) for _ in range(5)]
        assert eventually(lambda: len(server._strangers) == 5, REAL_TIME)
        user = opened.enter_context(socket.socket())
        user.settimeout(PATIENCE_S)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (user.fileno() + 1, hard))
            user.connect((server.host, server.port))
            assert eventually(lambda: len(server._strangers) < 5, REAL_TIME)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with contextlib.suppress(ConnectionResetError):
            assert is_closed(strangers[0])
