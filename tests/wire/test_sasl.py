"""Who says who it is, and is believed; who must, and does not; and what each may do then."""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka.protocol.metadata.api_versions import ApiVersionsRequest
from kafka.protocol.metadata.metadata import MetadataRequest

import eosdb
from eosdb.wire.login import MECHANISMS, Login, Users
from eosdb.wire.server import Server
from tests.waiting import eventually
from tests.wire import clients
from tests.wire.peer import PATIENCE_S, Peer, batch, produce, produced
from tests.wire.secured import (
    CLIENTS,
    FAILED,
    PASSWORD,
    USER,
    Certificates,
    confluent_settings,
    hello,
    is_closed,
    log_in,
    plain,
    say,
)

pytestmark = pytest.mark.slow

SCRAM = MECHANISMS[:2]
UNSUPPORTED, ILLEGAL = 33, 34
TOPIC_AUTHORIZATION_FAILED = 29


@pytest.fixture
def shop(db: eosdb.Database) -> eosdb.Database:
    """Topic "t", and a user."""
    db.admin.create_topic("t", partitions=2)
    db.admin.set_password(USER, PASSWORD)
    return db


@pytest.fixture
def guarded(shop: eosdb.Database) -> Iterator[Server]:
    with shop.serve(require_sasl=True) as made:
        yield made


@pytest.fixture
def stranger(guarded: Server) -> Iterator[Peer]:
    with Peer(guarded) as made:
        yield made


def raw(peer: Peer, message: bytes) -> bytes:
    """A message of the mechanism as a frame of its own, as clients sent them first (KIP-43)."""
    peer.socket.sendall(struct.pack(">i", len(message)) + message)
    return peer._read(*struct.unpack(">i", peer._read(4)))


class Scram:
    """The client's side, written from RFC 5802 and not from the server's."""

    def __init__(self, mechanism: str, user: str = USER, password: str = PASSWORD) -> None:
        self._hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self._password = password.encode()
        self.first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r=abcDEF0123"

    def answer(self, challenge: bytes, header: bytes = b"n,,") -> bytes:
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, rounds)
        bare = f"c={base64.b64encode(header).decode()},r={fields['r']}"
        message = f"{self.first},{challenge.decode()},{bare}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored, message, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self.expected = b"v=" + base64.b64encode(hmac.digest(server_key, message, self._hash))
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize("tls", [False, True], ids=["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_clients_of_every_make_log_in_by_every_mechanism(
    shop: eosdb.Database, certificates: Certificates, client: str, mechanism: str, tls: bool
) -> None:
    files = {"tls_cert": certificates.cert, "tls_key": certificates.key} if tls else {}
    with shop.serve(require_sasl=True, **files) as server:  # type: ignore[arg-type]
        ca = certificates.ca if tls else None
        assert CLIENTS[client](server, mechanism, ca) == b"a"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_is_told_that_its_password_is_another(guarded: Server, mechanism: str) -> None:
    errors: list[Any] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": guarded.bootstrap_servers,
            "error_cb": errors.append,
            **confluent_settings(mechanism, None, password="guessed"),
        }
    )
    while not any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in errors):
        assert producer.poll(PATIENCE_S) or errors, "no error has come"


def test_a_name_may_have_what_the_mechanism_writes_in_another_way(
    shop: eosdb.Database, guarded: Server
) -> None:
    """Not every client does; librdkafka does."""
    shop.admin.set_password("a,b=c=2C", PASSWORD)
    settings = confluent_settings("SCRAM-SHA-256", None, "a,b=c=2C")
    clients.produce(guarded.bootstrap_servers, "t", [b"a"], **settings)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("mechanism", SCRAM)
def test_both_sides_prove_that_they_know_the_password(
    stranger: Peer, mechanism: str, version: int
) -> None:
    assert hello(stranger, mechanism).mechanisms == list(MECHANISMS)
    client = Scram(mechanism)
    challenge = say(stranger, b"n,," + client.first.encode(), version)
    assert challenge.error_code == 0
    last = say(stranger, client.answer(challenge.auth_bytes), version)
    assert (last.error_code, bytes(last.auth_bytes)) == (0, client.expected)
    assert stranger.ask(MetadataRequest(topics=[]), 9).controller_id == 1


@pytest.mark.parametrize("mechanism", SCRAM)
def test_messages_may_come_without_requests_around_them(stranger: Peer, mechanism: str) -> None:
    hello(stranger, mechanism, version=0)
    client = Scram(mechanism)
    last = client.answer(raw(stranger, b"n,," + client.first.encode()))
    assert raw(stranger, last) == client.expected
    assert stranger.ask(MetadataRequest(topics=[]), 9).controller_id == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_fails_that_way_is_cut_off_without_a_word(stranger: Peer, mechanism: str) -> None:
    hello(stranger, mechanism, version=0)
    with pytest.raises(ConnectionResetError):
        raw(stranger, b"n,,n=alice")


def test_before_a_login_only_what_leads_to_it_is_answered(
    stranger: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    assert stranger.ask(ApiVersionsRequest(), 0).error_code == 0
    stranger.send(MetadataRequest(topics=[]), 9)
    assert is_closed(stranger)
    assert "Metadata was requested before authentication" in caplog.text


def test_a_handshake_is_no_login(stranger: Peer) -> None:
    hello(stranger, "SCRAM-SHA-256")
    say(stranger, b"n,," + Scram("SCRAM-SHA-256").first.encode())
    stranger.send(produce({("t", 0): batch(b"a")}), 9)
    assert is_closed(stranger)


def test_before_a_login_frames_are_small(guarded: Server) -> None:
    with Peer(guarded) as stranger:
        stranger.socket.sendall(struct.pack(">i", 1_048_577))
        assert is_closed(stranger)
    with Peer(guarded) as peer:
        log_in(peer)
        values = [bytes(600_000)] * 3
        assert produced(peer.ask(produce({("t", 0): batch(*values)}), 9)) != []


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_stranger_and_a_wrong_password_get_the_same_answer(
    guarded: Server, mechanism: str
) -> None:
    answers = []
    for user in (USER, "nobody"):
        with Peer(guarded) as peer:
            hello(peer, mechanism)
            if mechanism == "PLAIN":
                last = say(peer, plain(user, "guessed"))
            else:
                client = Scram(mechanism, user, "guessed")
                challenge = say(peer, b"n,," + client.first.encode())
                last = say(peer, client.answer(challenge.auth_bytes))
            answers.append((last.error_code, last.error_message, bytes(last.auth_bytes)))
            assert is_closed(peer)
    assert answers[0] == answers[1]
    assert answers[0][0] == FAILED
    assert "invalid credentials" in answers[0][1]


def test_a_stranger_has_the_same_salt_at_every_attempt(guarded: Server) -> None:
    salts = []
    for _ in range(2):
        with Peer(guarded) as peer:
            hello(peer, "SCRAM-SHA-256")
            challenge = bytes(say(peer, b"n,,n=nobody,r=abc").auth_bytes)
            salts.append(challenge.partition(b",s=")[2])
    assert salts[0] == salts[1]


def test_a_proof_is_good_for_one_exchange(guarded: Server) -> None:
    """Whoever has heard one cannot say it again."""
    with Peer(guarded) as peer:
        hello(peer, "SCRAM-SHA-256")
        client = Scram("SCRAM-SHA-256")
        challenge = say(peer, b"n,," + client.first.encode())
        proof = client.answer(challenge.auth_bytes)
        assert say(peer, proof).error_code == 0
    with Peer(guarded) as peer:
        hello(peer, "SCRAM-SHA-256")
        say(peer, b"n,," + client.first.encode())
        assert say(peer, proof).error_code == FAILED


def test_a_user_may_not_act_for_another(guarded: Server) -> None:
    for acting, code in (("", 0), (USER, 0), ("bob", FAILED)):
        with Peer(guarded) as peer:
            hello(peer, "PLAIN")
            assert say(peer, plain(acting=acting)).error_code == code


@pytest.mark.parametrize("version", [0, 1])
def test_another_mechanism_is_answered_with_those_there_are(stranger: Peer, version: int) -> None:
    refused = hello(stranger, "GSSAPI", version)
    assert (refused.error_code, refused.mechanisms) == (UNSUPPORTED, list(MECHANISMS))
    assert is_closed(stranger)


def test_a_connection_logs_in_once(guarded: Server) -> None:
    with Peer(guarded) as peer:
        assert say(peer, plain()).error_code == ILLEGAL, "before the handshake"
        log_in(peer)
        assert hello(peer, "PLAIN").error_code == ILLEGAL
        assert say(peer, plain()).error_code == ILLEGAL
        assert peer.ask(MetadataRequest(topics=[]), 9).controller_id == 1
        assert say(peer, plain(), 1).session_lifetime_ms == 0


def test_passwords_are_those_of_the_moment(guarded: Server, db_path: Path) -> None:
    """Whichever process changes them; a connection that is there stays."""
    with Peer(guarded) as before:
        log_in(before)
        with eosdb.connect(db_path) as other:
            other.admin.set_password(USER, "another")
        with Peer(guarded) as peer:
            hello(peer, "PLAIN")
            assert say(peer, plain()).error_code == FAILED
        with Peer(guarded) as peer:
            log_in(peer, password="another")
        with eosdb.connect(db_path) as other:
            other.admin.remove_user(USER)
        with Peer(guarded) as peer:
            hello(peer, "PLAIN")
            assert say(peer, plain(password="another")).error_code == FAILED
        assert before.ask(MetadataRequest(topics=[]), 9).controller_id == 1


def test_plain_takes_a_password_that_is_stored_for_either_mechanism(
    shop: eosdb.Database, guarded: Server
) -> None:
    for mechanism in SCRAM:
        shop.admin.set_password(mechanism, "secret", [mechanism])
        with Peer(guarded) as peer:
            log_in(peer, mechanism, "secret")


def test_acls_hold_for_who_has_logged_in(shop: eosdb.Database, guarded: Server) -> None:
    shop.admin.set_password("reader", "secret")
    shop.admin.create_acls(
        [
            eosdb.Acl(f"User:{USER}", "write", "topic", "t"),
            eosdb.Acl("User:reader", "read", "topic", "t"),
            eosdb.Acl("User:reader", "read", "group", "*"),
        ]
    )
    where = guarded.bootstrap_servers
    writer = confluent_settings("SCRAM-SHA-512", None)
    reader = confluent_settings("SCRAM-SHA-512", None, "reader", "secret")
    clients.produce(where, "t", [b"a"], partition=0, **writer)
    assert clients.consume(where, "t", 1, **reader) == [b"a"]
    with pytest.raises(AssertionError, match="TOPIC_AUTHORIZATION_FAILED"):
        clients.produce(where, "t", [b"b"], **reader)
    with Peer(guarded) as peer:
        log_in(peer, "reader", "secret")
        (topic,) = peer.ask(MetadataRequest(topics=None), 9).topics
        assert (topic.error_code, len(topic.partitions)) == (0, 2)
    # Its group, or its topic: whichever the client asks for first.
    with pytest.raises(AssertionError, match=r"(GROUP|TOPIC)_AUTHORIZATION_FAILED"):
        clients.consume(where, "t", 1, **writer)


def test_without_a_login_one_is_nobody_and_may_log_in_all_the_same(shop: eosdb.Database) -> None:
    """On loopback, where nobody must."""
    shop.admin.create_acls([eosdb.Acl(f"User:{USER}", "write", "topic", "t")])
    with shop.serve() as server, Peer(server) as peer:
        request = produce({("t", 0): batch(b"a")})
        assert produced(peer.ask(request, 9))[0][0] == TOPIC_AUTHORIZATION_FAILED
        log_in(peer)
        assert produced(peer.ask(request, 9)) == [(0, 0)]


def test_a_file_that_cannot_be_read_lets_nobody_in() -> None:
    def find(user: str, mechanism: str) -> None:
        raise eosdb.DatabaseLockedError("busy")

    login = Login(Users(find), is_required=True)
    login.begin("PLAIN", takes_tokens=False)
    with pytest.raises(eosdb.DatabaseLockedError):
        login.step(plain())
    assert (login.user, login.is_refused, login.has_begun) == (None, True, False)


def test_a_connection_that_says_nothing_holds_up_nobody(guarded: Server) -> None:
    silent = [Peer(guarded) for _ in range(20)]
    with Peer(guarded) as peer:
        log_in(peer)
    for one in silent:
        one.socket.close()
    eventually(lambda: not guarded._connections)
