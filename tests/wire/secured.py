"""Certificates, a peer that logs in, and clients of three makes that do: a record there and back."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import trustme
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from eosdb.wire.server import Server
from tests.wire import clients
from tests.wire.peer import PATIENCE_S, Peer

USER, PASSWORD = "älice", "pass,word=ö"
FAILED = 58


@dataclass(frozen=True)
class Certificates:
    """Files of an authority, of a server on this machine, and of a client."""

    ca: Path
    cert: Path
    key: Path
    client: Path

    def context(self, *, shows_certificate: bool = False) -> ssl.SSLContext:
        """A client's, which trusts the authority alone."""
        context = ssl.create_default_context(cafile=self.ca)
        if shows_certificate:
            context.load_cert_chain(self.client)
        return context


def make_certificates(folder: Path) -> Certificates:
    authority = trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1", "::1")
    made = Certificates(
        *(folder / name for name in ("ca.pem", "cert.pem", "key.pem", "client.pem"))
    )
    authority.cert_pem.write_to_path(str(made.ca))
    server.private_key_pem.write_to_path(str(made.key))
    for i, blob in enumerate(server.cert_chain_pems):
        blob.write_to_path(str(made.cert), append=i > 0)
    client = authority.issue_cert("client@example.org")
    client.private_key_and_cert_chain_pem.write_to_path(str(made.client))
    return made


def confluent_settings(
    mechanism: str, ca: Path | None, user: str = USER, password: str = PASSWORD
) -> dict[str, Any]:
    tls = {} if ca is None else {"ssl.ca.location": str(ca)}
    return {
        "security.protocol": "SASL_PLAINTEXT" if ca is None else "SASL_SSL",
        "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password, **tls,
    }  # fmt: skip


def python_settings(mechanism: str, ca: Path | None) -> dict[str, Any]:
    """Of aiokafka and kafka-python alike."""
    return {
        "security_protocol": "SASL_PLAINTEXT" if ca is None else "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "ssl_context": None if ca is None else ssl.create_default_context(cafile=ca),
    }


def with_confluent(server: Server, mechanism: str, ca: Path | None) -> bytes:
    settings = confluent_settings(mechanism, ca)
    clients.produce(server.bootstrap_servers, "t", [b"a"], partition=0, **settings)
    (value,) = clients.consume(server.bootstrap_servers, "t", 1, **settings)
    return value


def with_kafka_python(server: Server, mechanism: str, ca: Path | None) -> bytes:
    settings = {"bootstrap_servers": server.bootstrap_servers, **python_settings(mechanism, ca)}
    producer = kafka.KafkaProducer(**settings)
    producer.send("t", b"a", partition=0).get(PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE_S * 1000, **settings
    )
    consumer.assign([kafka.TopicPartition("t", 0)])
    value = next(consumer).value
    consumer.close()
    assert isinstance(value, bytes)
    return value


def with_aiokafka(server: Server, mechanism: str, ca: Path | None) -> bytes:
    settings = {"bootstrap_servers": server.bootstrap_servers, **python_settings(mechanism, ca)}

    async def there_and_back() -> bytes:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("t", b"a", partition=0)
        async with aiokafka.AIOKafkaConsumer(auto_offset_reset="earliest", **settings) as consumer:
            consumer.assign([aiokafka.TopicPartition("t", 0)])
            value = (await consumer.getone()).value
            assert isinstance(value, bytes)
            return value

    return asyncio.run(asyncio.wait_for(there_and_back(), PATIENCE_S))


CLIENTS = {
    "confluent-kafka": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


def hello(peer: Peer, mechanism: str, version: int = 1) -> Any:
    return peer.ask(SaslHandshakeRequest(mechanism=mechanism), version)


def say(peer: Peer, message: bytes, version: int = 2) -> Any:
    return peer.ask(SaslAuthenticateRequest(auth_bytes=message), version)


def plain(user: str = USER, password: str = PASSWORD, acting: str = "") -> bytes:
    return f"{acting}\0{user}\0{password}".encode()


def log_in(peer: Peer, user: str = USER, password: str = PASSWORD) -> None:
    assert hello(peer, "PLAIN").error_code == 0
    assert say(peer, plain(user, password)).error_code == 0


def is_closed(peer: Peer) -> bool:
    """Whether the server ends the connection, having said nothing more."""
    return peer.socket.recv(1) == b""
