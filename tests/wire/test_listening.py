"""Where a server listens, and what clients are told of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest
from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest
from kafka.protocol.metadata.metadata import MetadataRequest

import eosdb
from eosdb.wire import listening
from tests.cases import each
from tests.wire.clients import consume, produce
from tests.wire.peer import Address, Peer


@pytest.fixture
def shop(db: eosdb.Database) -> eosdb.Database:
    db.admin.create_topic("orders")
    return db


def can_listen(address: str) -> bool:
    try:
        listening.listen([address], 0)[0].close()
    except eosdb.ListenError:
        return False
    return True


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


@pytest.mark.slow
def test_it_listens_at_every_loopback_address_under_one_port(shop: eosdb.Database) -> None:
    """The client is sent on to the address by which it came, so that it stays there."""
    with shop.serve() as server:
        assert server.bootstrap_servers == f"127.0.0.1:{server.port}"
        addresses = [a for a in ("127.0.0.1", "::1") if can_listen(a)]
        for at, address in enumerate(addresses):
            where = listening.shown(address, server.port)
            produce(where, "orders", [address.encode()])
            assert consume(where, "orders", at + 1)[-1] == address.encode()


def test_several_servers_serve_one_file(shop: eosdb.Database) -> None:
    with shop.serve() as one, shop.serve() as other:
        produce(one.bootstrap_servers, "orders", [b"a"])
        assert consume(other.bootstrap_servers, "orders", 1) == [b"a"]


def test_a_port_that_is_taken_is_named(shop: eosdb.Database, taken: int) -> None:
    with pytest.raises(eosdb.ListenError, match=f"127.0.0.1:{taken}: Address already in use"):
        shop.serve(taken)
    with shop.serve():
        pass


def test_a_port_that_is_taken_at_one_address_leaves_the_others_free(taken: int) -> None:
    if not can_listen("::1"):
        return
    with pytest.raises(eosdb.ListenError, match=f"127.0.0.1:{taken}"):
        listening.listen(["::1", "127.0.0.1"], taken)
    listening.listen(["::1"], taken)[0].close()


def test_an_address_of_another_machine_is_refused_and_left_out_among_others() -> None:
    with pytest.raises(eosdb.ListenError, match="this machine has no such address"):
        listening.listen(["192.0.2.1"], 0)
    (sock,) = listening.listen(["192.0.2.1", "127.0.0.1"], 0)
    assert sock.getsockname()[0] == "127.0.0.1"
    sock.close()


@pytest.mark.parametrize("port", [-1, 65_536, "9092", True, None])
def test_a_port_is_a_number(shop: eosdb.Database, port: object) -> None:
    with pytest.raises(eosdb.ConfigError, match="port"):
        shop.serve(port)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["", "a\0b", "a\ud800", 5, None])
def test_an_address_is_text(shop: eosdb.Database, host: object) -> None:
    with pytest.raises(eosdb.ConfigError, match="host"):
        shop.serve(0, host)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["x" * 64 + ".example", "nowhere.invalid"])
def test_a_name_without_an_address_is_named(shop: eosdb.Database, host: str) -> None:
    with pytest.raises(eosdb.ListenError, match=f"{host}: no address"):
        shop.serve(0, host)


class Forwarding:
    """A port that is forwarded to another, as to a container. A context manager."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.links = 0
        self._ends = ExitStack()
        self._ends.enter_context(closing(self._listener))

    def to(self, port: int) -> None:
        threading.Thread(target=self._accept, args=(port,), daemon=True).start()

    def _accept(self, port: int) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.links += 1
                server = socket.create_connection(("127.0.0.1", port))
                for ends in ((client, server), (server, client)):
                    self._ends.callback(ends[0].close)
                    threading.Thread(target=self._copy, args=ends, daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Forwarding:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._ends.close()


def test_clients_stay_with_the_advertised_address(shop: eosdb.Database) -> None:
    """Behind a forwarded port the address by which they reach the server is not one of theirs."""
    with Forwarding() as outside:
        where = f"localhost:{outside.port}"
        with shop.serve(advertised=where) as server:
            outside.to(server.port)
            produce(where, "orders", [b"a"])
            assert consume(where, "orders", 1) == [b"a"]
            with Peer(Address("127.0.0.1", outside.port)) as peer:
                (broker,) = peer.ask(MetadataRequest(topics=[]), 9).brokers
                assert (broker.host, broker.port) == ("localhost", outside.port)
                asked = FindCoordinatorRequest(key="g", key_type=0)
                assert peer.ask(asked, 1).port == outside.port
            assert outside.links > 2, "bootstrap and the advertised address"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("kafka.example.org:9092", ("kafka.example.org", 9092)),
        ("[2001:db8::1]:9092", ("2001:db8::1", 9092)),
    ],
)
def test_an_advertised_address_is_a_host_and_a_port(
    address: str, expected: tuple[str, int]
) -> None:
    assert listening.check_advertised(address) == expected


@each(
    "address", ["", "kafka", "kafka:", ":9092", "kafka:0", "kafka:65536", "::1:9092", "a b:1", 9092]
)
def test_another_one_is_refused(shop: eosdb.Database, address: object) -> None:
    with pytest.raises(eosdb.ConfigError, match="advertised"):
        shop.serve(advertised=address)  # type: ignore[arg-type]
