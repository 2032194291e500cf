"""TLS: what is asked of clients, what they see, and what they cannot do to others."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from kafka.protocol.metadata.api_versions import ApiVersionsRequest
from kafka.protocol.metadata.metadata import MetadataRequest

import eosdb
from eosdb.wire.limits import Limits
from eosdb.wire.security import Security, security
from eosdb.wire.server import Server
from tests.waiting import eventually
from tests.wire import clients
from tests.wire.peer import PATIENCE_S, Peer, fetch, fetched
from tests.wire.secured import Certificates, make_certificates
from tests.wire.waiting import Waiting


@pytest.fixture
def shop(db: eosdb.Database) -> eosdb.Database:
    db.admin.create_topic("t", partitions=2)
    return db


class SecurePeer(Peer):
    """Speaks TLS, and calls the server by a name."""

    def __init__(self, server: Server, context: ssl.SSLContext, name: str = "localhost") -> None:
        super().__init__(server)
        try:
            self.socket = context.wrap_socket(self.socket, server_hostname=name)
        except OSError:
            self.socket.close()
            raise


def of(made: Certificates, *, ca: bool = False) -> Any:
    asked = {"tls_cert": made.cert, "tls_key": made.key}
    return {**asked, "tls_ca": made.ca} if ca else asked


def test_what_is_said_is_enciphered(shop: eosdb.Database, certificates: Certificates) -> None:
    with shop.serve(**of(certificates)) as server:
        settings = {"security.protocol": "SSL", "ssl.ca.location": str(certificates.ca)}
        clients.produce(server.bootstrap_servers, "t", [b"a"], partition=0, **settings)
        assert clients.consume(server.bootstrap_servers, "t", 1, **settings) == [b"a"]
        with SecurePeer(server, certificates.context()) as peer:
            assert peer.ask(ApiVersionsRequest(), 0).error_code == 0
        untrusting = ssl.create_default_context()
        with pytest.raises(ssl.SSLCertVerificationError):
            SecurePeer(server, untrusting)


def test_a_client_is_sent_on_to_the_name_by_which_it_came(
    shop: eosdb.Database, certificates: Certificates
) -> None:
    """The certificate has that name, and may have no address."""
    with shop.serve(**of(certificates)) as server:
        for name in ("localhost", "127.0.0.1"):
            with SecurePeer(server, certificates.context(), name) as peer:
                (broker,) = peer.ask(MetadataRequest(topics=[]), 9).brokers
                assert (broker.host, broker.port) == (name, server.port)


def test_old_versions_are_not_spoken(certificates: Certificates) -> None:
    made = security(certificates.cert, certificates.key, None, False)
    assert made.tls is not None
    assert made.tls.context().minimum_version >= ssl.TLSVersion.TLSv1_2


def test_a_certificate_that_is_replaced_is_shown_to_the_next_client(
    shop: eosdb.Database, tmp_path: Path
) -> None:
    folder, renewed = tmp_path / "now", tmp_path / "renewed"
    folder.mkdir()
    renewed.mkdir()
    before, after = make_certificates(folder), make_certificates(renewed)
    with shop.serve(**of(before)) as server, SecurePeer(server, before.context()) as peer:
        for old, new in ((before.cert, after.cert), (before.key, after.key)):
            new.replace(old)
        with SecurePeer(server, after.context()) as client:
            assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        with pytest.raises(ssl.SSLCertVerificationError):
            SecurePeer(server, before.context())
        assert peer.ask(ApiVersionsRequest(), 0).error_code == 0, "who is connected stays so"


def test_a_certificate_that_is_not_in_order_is_not_taken(
    shop: eosdb.Database,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # Short names: a long line loses its middle.
    made = make_certificates(Path())
    certificate = made.cert.read_bytes()
    with shop.serve(**of(made, ca=True)) as server:

        def check_served() -> None:
            context = made.context(shows_certificate=True)
            with SecurePeer(server, context) as peer:
                assert peer.ask(ApiVersionsRequest(), 0).error_code == 0

        made.cert.write_bytes(certificate[:100])
        check_served()
        check_served()
        made.cert.unlink()
        check_served()
        told = [it for it in caplog.messages if "the earlier certificate is kept" in it]
        assert len(told) == 2, "once for each change"
        assert "expected a certificate" in told[0]
        assert "No such file" in told[1]
        made.cert.write_bytes(certificate)
        check_served()


def test_a_client_is_sent_to_the_advertised_name_whatever_name_it_asks_for(
    shop: eosdb.Database, certificates: Certificates
) -> None:
    with (
        shop.serve(advertised="kafka.example.org:19092", **of(certificates)) as server,
        SecurePeer(server, certificates.context()) as peer,
    ):
        (broker,) = peer.ask(MetadataRequest(topics=[]), 9).brokers
        assert (broker.host, broker.port) == ("kafka.example.org", 19092)


def test_with_an_authority_clients_must_show_a_certificate(
    shop: eosdb.Database, certificates: Certificates, tmp_path: Path
) -> None:
    with shop.serve(**of(certificates, ca=True)) as server:
        with SecurePeer(server, certificates.context(shows_certificate=True)) as peer:
            assert peer.ask(ApiVersionsRequest(), 0).error_code == 0
        other = make_certificates(tmp_path)
        stranger = certificates.context()
        stranger.load_cert_chain(other.client)
        for context in (certificates.context(), stranger):
            # Of TLS 1.3 a client hears only with the first answer that it was refused.
            with pytest.raises(OSError), SecurePeer(server, context) as peer:  # noqa: PT011
                peer.ask(ApiVersionsRequest(), 0)


def test_who_speaks_no_tls_is_cut_off_and_holds_up_nobody(
    shop: eosdb.Database, certificates: Certificates
) -> None:
    with shop.serve(**of(certificates)) as server:
        silent = [Peer(server) for _ in range(5)]
        with Peer(server) as plain:
            plain.send(ApiVersionsRequest(), 0)
            said = b""
            with contextlib.suppress(ConnectionResetError):
                while more := plain.socket.recv(100):
                    said += more
            assert len(said) <= 7, "an alert of TLS and nothing else"
        with SecurePeer(server, certificates.context()) as peer:
            assert peer.ask(ApiVersionsRequest(), 0).error_code == 0
        for one in silent:
            one.socket.close()


def test_a_handshake_that_is_not_made_ends(
    shop: eosdb.Database, certificates: Certificates
) -> None:
    limits = Limits(stranger_s=0.1)
    with shop.serve(limits=limits, **of(certificates)) as server, Peer(server) as silent:
        assert silent.socket.recv(1) == b""


def test_what_is_answered_at_the_end_is_enciphered_too(
    shop: eosdb.Database, certificates: Certificates
) -> None:
    server = shop.serve(**of(certificates))
    with SecurePeer(server, certificates.context()) as peer:
        waiting = Waiting(lambda: peer.ask(fetch(0, wait_ms=int(PATIENCE_S * 1000)), 11))
        eventually(lambda: bool(server._parking._waiters))
        server.close()
        assert fetched(waiting.answer()) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
@pytest.mark.parametrize(("tls", "sasl"), [(False, False), (True, False), (False, True)])
def test_other_machines_are_let_in_only_with_tls_and_a_login(
    shop: eosdb.Database, certificates: Certificates, host: str, tls: bool, sasl: bool
) -> None:
    with pytest.raises(eosdb.ConfigError, match="other machines reach this address"):
        shop.serve(0, host, require_sasl=sasl, **of(certificates) if tls else {})


def test_with_both_they_are(shop: eosdb.Database, certificates: Certificates) -> None:
    shop.admin.set_password("alice", "secret")
    with shop.serve(0, "0.0.0.0", require_sasl=True, **of(certificates)) as server:
        settings: dict[str, Any] = {
            "security.protocol": "SASL_SSL", "ssl.ca.location": str(certificates.ca),
            "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "secret",
        }  # fmt: skip
        clients.produce(f"127.0.0.1:{server.port}", "t", [b"a"], **settings)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "::1%lo"])
def test_only_this_machine_reaches_loopback(address: str) -> None:
    Security().check([address])
    with pytest.raises(eosdb.ConfigError, match=r"^192\.0\.2\.1: other machines"):
        Security().check([address, "192.0.2.1"])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"tls_cert": "CERT"}, "TLS needs the certificate's key"),
        ({"tls_key": "KEY"}, "TLS needs a certificate"),
        ({"tls_ca": "CA"}, "TLS needs a certificate"),
        ({"tls_cert": "MISSING", "tls_key": "KEY"}, "missing.pem: No such file"),
        ({"tls_cert": "CERT", "tls_key": "MISSING"}, "missing.pem: No such file"),
        ({"tls_cert": "CERT", "tls_key": "KEY", "tls_ca": "MISSING"}, "missing.pem: No such file"),
        ({"tls_cert": "KEY", "tls_key": "KEY"}, "expected a certificate and its key"),
        ({"tls_cert": "CERT", "tls_key": "OTHER"}, "KEY_VALUES_MISMATCH"),
        ({"tls_cert": "CERT", "tls_key": "LOCKED"}, "the key has a password"),
        ({"tls_cert": "CERT", "tls_key": "KEY", "tls_ca": "KEY"}, "expected certificates in PEM"),
        ({"tls_cert": 5}, "tls_cert: got 5"),
        ({"require_sasl": "yes"}, "require_sasl: got 'yes'"),
    ],
)
def test_what_is_wrong_with_the_files_is_said(
    shop: eosdb.Database,
    certificates: Certificates,
    tmp_path: Path,
    given: dict[str, Any],
    named: str,
) -> None:
    other, locked = tmp_path / "other.pem", tmp_path / "locked.pem"
    trustme.CA().issue_cert("other").private_key_pem.write_to_path(str(other))
    locked.write_bytes(locked_key())
    files = {
        "CERT": certificates.cert, "KEY": certificates.key, "CA": certificates.ca, "OTHER": other,
        "LOCKED": locked, "MISSING": tmp_path / "missing.pem",
    }  # fmt: skip
    with pytest.raises(eosdb.ConfigError, match=named):
        shop.serve(**{name: files.get(value, value) for name, value in given.items()})


def locked_key() -> bytes:
    """A key with a password, which OpenSSL would ask a terminal for."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(b"secret"),
    )


def test_a_client_that_goes_before_the_handshake_leaves_nothing(
    shop: eosdb.Database, certificates: Certificates
) -> None:
    with shop.serve(**of(certificates)) as server:
        for _ in range(20):
            socket.create_connection((server.host, server.port)).close()
        with SecurePeer(server, certificates.context()) as peer:
            assert peer.ask(ApiVersionsRequest(), 0).error_code == 0
