"""The server: listens, gives each connection a thread, and ends them in good order."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from dataclasses import replace
from types import TracebackType
from typing import Final

from eosdb.admin.topics import Admin
from eosdb.broker.broker import Broker
from eosdb.broker.handler import Core
from eosdb.wire import listening
from eosdb.wire.connection import Connection, Interfere
from eosdb.wire.parking import REAL_TIME, Parking
from eosdb.wire.session import Session

_log = logging.getLogger("eosdb.wire")
_PATIENCE_MS: Final = 5_000
"""How long `close` waits for requests that are being answered."""


class Server:
    """Serves one open file to Kafka's clients until it is closed. A context manager that closes it.

    Kafka answers the requests of one connection one after another, so a thread for each connection is its
    queue; group commit makes the threads share syncs.
    """

    def __init__(
        self,
        core: Core,
        host: str = listening.LOOPBACK,
        port: int = 0,
        interfere: Interfere | None = None,
    ) -> None:
        """Raises ConfigError and ListenError."""
        addresses = listening.addresses_of(host)
        self._core = core
        self._interfere = interfere
        self._cluster_id = Broker(core).cluster_id()
        self._sockets = listening.listen(addresses, listening.check_port(port))
        self.host: Final[str] = self._sockets[0].getsockname()[0]
        self.port: Final[int] = self._sockets[0].getsockname()[1]
        self._parking = Parking(core)
        self._lock = threading.Lock()
        self._connections: dict[Connection, threading.Thread] = {}
        self._is_closed = False
        self._accepting = [
            threading.Thread(target=self._accept, args=(sock,), name="eosdb-wire", daemon=True)
            for sock in self._sockets
        ]
        for thread in self._accepting:
            thread.start()

    @property
    def bootstrap_servers(self) -> str:
        """Where clients reach it, as their setting of this name takes it."""
        return listening.shown(self.host, self.port)

    def close(self) -> None:
        """Answer what is being asked, and end all connections; idempotent."""
        self._close(orderly=True)

    def abandon(self) -> None:
        """Break all connections, like a process that dies. For tests."""
        self._close(orderly=False)

    def _close(self, *, orderly: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._accepting:
            thread.join()
        with self._lock:
            serving = dict(self._connections)
        for connection in serving:
            connection.close() if orderly else connection.abandon()
        self._parking.close()
        deadline = REAL_TIME.monotonic_ms() + _PATIENCE_MS
        for connection, thread in serving.items():
            thread.join(max(0, deadline - REAL_TIME.monotonic_ms()) / 1000)
            if thread.is_alive():  # Its client reads nothing.
                connection.abandon()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self, listener: socket.socket) -> None:
        while not self._is_closed:
            try:
                sock, address = listener.accept()
            except OSError as error:
                if not self._is_closed:
                    _log.warning("could not accept a connection: %s", error)
                continue
            self._start(sock, address[0])

    def _start(self, sock: socket.socket, client_host: str) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(sock, self._session(sock, client_host), self._interfere)
        thread = threading.Thread(
            target=self._serve, args=(connection,), name=f"eosdb-wire-{client_host}", daemon=True
        )
        with self._lock:
            self._connections[connection] = thread
        thread.start()

    def _serve(self, connection: Connection) -> None:
        try:
            connection.serve()
        finally:
            with self._lock:
                del self._connections[connection]

    def _session(self, sock: socket.socket, client_host: str) -> Session:
        core = replace(self._core, authorizer=self._core.authorizer.of("User:ANONYMOUS"))
        host, port = sock.getsockname()[:2]
        return Session(
            Broker(core), Admin(core), self._parking, self._cluster_id, host, port, client_host
        )
