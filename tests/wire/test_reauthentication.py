"""A login that ends: its client logs in again on the same connection, as itself, or is disconnected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from kafka.protocol.metadata.metadata import MetadataRequest

import eosdb
from eosdb import BrokerConfig, ManualClock
from eosdb.errors import SaslAuthenticationFailedError
from eosdb.wire.login import Login, Users
from eosdb.wire.messages import SASL_AUTHENTICATE, SASL_HANDSHAKE
from eosdb.wire.server import CarryOut, Server
from eosdb.wire.session import Session
from tests.waiting import eventually
from tests.wire.peer import PATIENCE_S, Peer
from tests.wire.secured import (
    FAILED,
    PASSWORD,
    USER,
    confluent_settings,
    hello,
    is_closed,
    log_in,
    plain,
    python_settings,
    say,
)

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
Serve = Callable[..., AbstractContextManager[Server]]


@pytest.fixture
def serve(db_path: Path) -> Serve:
    """Serves a file with a topic "t" and a user, whose logins last for so long."""

    @contextmanager
    def serving(lifetime_ms: int, interfere: Any = None) -> Iterator[Server]:
        config = BrokerConfig(connections_max_reauth_ms=lifetime_ms)
        with eosdb.connect(db_path, durability="off", config=config) as db:
            db.admin.create_topic("t")
            db.admin.set_password(USER, PASSWORD)
            db.admin.set_password("bob", PASSWORD)
            with db.serve(require_sasl=True, interfere=interfere) as server:
                yield server

    return serving


def metadata(peer: Peer) -> int:
    found: int = peer.ask(MetadataRequest(topics=[]), 9).controller_id
    return found


def test_a_client_hears_how_long_its_login_lasts_and_logs_in_again_on_the_same_connection(
    serve: Serve,
) -> None:
    with serve(HOUR_MS) as server, Peer(server) as peer:
        for _ in range(2):
            assert hello(peer, "PLAIN").error_code == 0
            answer = say(peer, plain())
            assert (answer.error_code, answer.session_lifetime_ms) == (0, HOUR_MS)
            assert metadata(peer) == 1


@pytest.mark.parametrize(
    ("mechanism", "message", "told"),
    [
        (
            "PLAIN",
            plain("bob"),
            f"Cannot change principals during re-authentication from User.{USER}",
        ),
        (
            "SCRAM-SHA-256",
            b"n,,n=bob,r=abc",
            "mechanism 'SCRAM-SHA-256' requested by client is not",
        ),
        ("PLAIN", plain(USER, "guessed"), "invalid credentials"),
    ],
    ids=["another user", "another mechanism", "another password"],
)
def test_who_is_somebody_else_by_then_is_told_so_and_disconnected(
    serve: Serve, mechanism: str, message: bytes, told: str
) -> None:
    with serve(HOUR_MS) as server, Peer(server) as peer:
        log_in(peer)
        assert hello(peer, mechanism).error_code == 0
        answer = say(peer, message)
        assert answer.error_code == FAILED
        assert told in answer.error_message
        assert is_closed(peer)


def test_a_user_that_is_removed_gets_in_no_more(serve: Serve, db_path: Path) -> None:
    with serve(HOUR_MS) as server, Peer(server) as peer:
        log_in(peer)
        with eosdb.connect(db_path) as operator:
            operator.admin.remove_user(USER)
        assert hello(peer, "PLAIN").error_code == 0
        assert say(peer, plain()).error_code == FAILED
        assert is_closed(peer)


def test_nothing_else_is_asked_for_amid_a_login(serve: Serve) -> None:
    with serve(HOUR_MS) as server, Peer(server) as peer:
        log_in(peer)
        assert hello(peer, "PLAIN").error_code == 0
        peer.send(MetadataRequest(topics=[]), 9)
        assert is_closed(peer)


def test_who_does_not_log_in_again_is_disconnected(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(1) as server, Peer(server) as peer:
        log_in(peer)
        with pytest.raises(ConnectionResetError):
            while True:  # Until the millisecond is over.
                metadata(peer)
    assert "Metadata was requested after the login had expired" in caplog.text


def test_a_login_can_be_renewed_late_but_not_twice_a_second() -> None:
    clock = ManualClock()
    login = Login(Users(lambda *_: None), is_required=True, lifetime_ms=5_000, clock=clock)
    login.user, login._expires_ms = "alice", 5_000
    clock.advance(5_001)
    for key in (MetadataRequest.API_KEY, SASL_AUTHENTICATE):
        with pytest.raises(SaslAuthenticationFailedError, match="after the login had expired"):
            login.check_may_ask(key, "It")
    login.check_may_ask(SASL_HANDSHAKE, "SaslHandshake")
    login.begin("PLAIN", takes_tokens=False)
    login._exchange = None
    clock.advance(999)
    assert not login.may_begin
    with pytest.raises(SaslAuthenticationFailedError, match="after the login had expired"):
        login.check_may_ask(SASL_HANDSHAKE, "SaslHandshake")
    clock.advance(1)
    assert login.may_begin


def of_confluent(where: str) -> Callable[[], None]:
    settings = confluent_settings("SCRAM-SHA-256", None)
    producer = confluent_kafka.Producer({"bootstrap.servers": where, **settings})

    def send() -> None:
        producer.produce("t", b"a")
        assert producer.flush(PATIENCE_S) == 0

    return send


def of_kafka_python(where: str) -> Callable[[], None]:
    settings = python_settings("SCRAM-SHA-256", None)
    producer = kafka.KafkaProducer(bootstrap_servers=where, **settings)

    def send() -> None:
        producer.send("t", b"a").get(PATIENCE_S)

    return send


@pytest.mark.parametrize("client", [of_confluent, of_kafka_python])
def test_clients_log_in_again_and_keep_their_connections(
    serve: Serve, client: Callable[[str], Callable[[], None]]
) -> None:
    logins: dict[int, int] = {}
    producing: set[int] = set()

    def watch(api: str, session: Session, carry_out: CarryOut) -> Any:
        key = id(session)
        logins[key] = logins.get(key, 0) + (api == "SaslHandshake")
        if api == "Produce":
            producing.add(key)
        return carry_out(session)

    with serve(1_200, watch) as server:
        send = client(server.bootstrap_servers)
        send()
        (connection,) = producing

        def has_logged_in_again() -> bool:
            send()
            return logins[connection] == 2

        eventually(has_logged_in_again)
        send()
        assert producing == {connection}
