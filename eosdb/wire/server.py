"""The server: it listens, serves each connection in a thread, and closes them in an orderly way."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from eosdb.admin.access import UserDirectory
from eosdb.broker.broker import Broker
from eosdb.broker.core import Core
from eosdb.errors import StorageError
from eosdb.model.closing import Closeable, Closing
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import Notice
from eosdb.model.threads import Thread
from eosdb.wire import listening
from eosdb.wire.connection import Connection, Interfere
from eosdb.wire.limits import Lease, Limits, Memory
from eosdb.wire.login import Login, Refusals, Users
from eosdb.wire.parking import REAL_TIME, Parking
from eosdb.wire.security import IN_THE_CLEAR, Security
from eosdb.wire.session import ANONYMOUS, Session, asking


class Server(Closeable):
    """Serves one open file to Kafka clients until it is closed. A context manager that closes it.

    Kafka handles the requests of a connection one after another, so each connection has one thread; group
    commit lets the threads share fsyncs.
    """

    def __init__(
        self,
        core: Core,
        host: str = listening.LOOPBACK,
        port: int = 0,
        security: Security = IN_THE_CLEAR,
        limits: Limits | None = None,
        interfere: Interfere | None = None,
        advertised: str | None = None,
    ) -> None:
        """Raises ConfigError, ListenError, and StorageError if no thread can be started."""
        addresses = listening.addresses_of(host)
        security.check(addresses)
        self._advertised = None if advertised is None else listening.check_advertised(advertised)
        self._security = security
        self._users = Users(UserDirectory(core).credential)
        self._refusals = Refusals()
        self._core = core
        self._limits = limits or Limits()
        self._memory = Memory(self._limits.buffered_bytes)
        self._interfere = interfere
        self._cluster_id = Broker(core).cluster_id()
        self._sockets = listening.listen(addresses, listening.check_port(port))
        self.host: Final[str] = self._sockets[0].getsockname()[0]
        self.port: Final[int] = self._sockets[0].getsockname()[1]
        try:
            self._parking = Parking(core)
        except StorageError:
            for sock in self._sockets:
                sock.close()
            raise
        self._lock = threading.Lock()
        self._connections: dict[Connection, threading.Thread] = {}
        self._strangers: dict[Connection, None] = {}
        """Unknown clients' connections, the oldest first, without those that are being closed."""
        self._full: Notice | None = None
        """The notice of too many connections, until there are fewer."""
        self._is_closed = threading.Event()
        self._closing: Closing | None = None
        listening.is_inherited(self)
        self._accepting: list[threading.Thread] = []
        for sock in self._sockets:
            args = sock, self._is_closed, self._take, self._close_oldest_stranger
            thread = Thread("serving", "eosdb-wire", listening.accept, *args)
            try:
                thread.start()
            except StorageError:
                self._close(orderly=False)
                raise
            self._accepting.append(thread)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for the clients' setting `bootstrap.servers`."""
        return listening.shown(self.host, self.port)

    def close(self) -> None:
        """Finish the current requests, and close all connections; idempotent.

        Clients that do not read their responses, and requests that take longer than `Limits.close_s`, are
        cut off.
        """
        self._close(orderly=True)

    def abandon(self) -> None:
        """Reset all connections, as if the process had died. For tests."""
        self._close(orderly=False)

    def _close(self, *, orderly: bool) -> None:
        if self._closing is None:
            end = Connection.close if orderly else Connection.abort
            self._closing = Closing(
                self._stop_accepting,
                partial(self._end_connections, end),
                self._parking.close,
                self._join_connections,
                self._memory.close,
                partial(self._end_connections, Connection.abort),
                self._join_connections,
            )
        self._closing.run()

    def _stop_accepting(self) -> None:
        self._is_closed.set()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._accepting:
            thread.join()
        for sock in self._sockets:
            sock.close()

    def _end_connections(self, end: Callable[[Connection], None]) -> None:
        # Without the lock, which an interrupt could leave held: one call into C.
        for connection in tuple(self._connections):
            end(connection)

    def _join_connections(self) -> None:
        deadline = REAL_TIME.monotonic_ms() + int(self._limits.close_s * 1000)
        for thread in tuple(self._connections.values()):
            thread.join(max(0, deadline - REAL_TIME.monotonic_ms()) / 1000)

    def forget(self) -> None:
        """In a forked child, close the copies of the parent's sockets without shutting them down."""
        self._closing = Closing()
        self._is_closed.set()
        for sock in self._sockets:
            sock.close()
        for connection in list(self._connections):
            connection.forget()

    def _take(self, sock: socket.socket, client_host: str) -> None:
        """Serve a new connection. With too many, the oldest stranger is closed for it; without a
        stranger, it is closed itself. Either is logged once."""
        full, count = None, len(self._connections)
        if count >= self._limits.connections:
            # Connections that are being closed may still be there, but within bounds.
            has_room = count < 2 * self._limits.connections and self._close_oldest_stranger()
            full = catalog.STRANGERS_CLOSED if has_room else catalog.TOO_MANY_CONNECTIONS
            if self._full is not full:
                full.say(connections=count)
        self._full = full
        if full is catalog.TOO_MANY_CONNECTIONS:
            sock.close()
            return
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(sock.close)
            listening.prepare(sock)
            sock = self._security.wrapped(sock)
            cleanup.callback(sock.close)
            lease = self._memory.lease()
            session = self._session(sock, client_host, lease)
            connection = Connection(
                sock, session, self._limits, lease, self._interfere, self._no_stranger
            )
            thread = Thread("serving", f"eosdb-wire-{client_host}", self._serve, connection)
            with self._lock:
                self._connections[connection] = thread
                self._strangers[connection] = None
            cleanup.callback(self._connections.pop, connection, None)
            cleanup.callback(self._no_stranger, connection)
            thread.start()
            cleanup.pop_all()

    def _serve(self, connection: Connection) -> None:
        try:
            connection.serve()
        finally:
            self._no_stranger(connection)
            with self._lock:
                del self._connections[connection]

    def _no_stranger(self, connection: Connection) -> None:
        with self._lock:
            self._strangers.pop(connection, None)

    # decisions/0031: known clients keep their connections.
    def _close_oldest_stranger(self) -> bool:
        """Close the oldest connection of a stranger; returns False if there is none."""
        with self._lock:
            oldest = next(iter(self._strangers), None)
            if oldest is not None:
                del self._strangers[oldest]
        if oldest is not None:
            oldest.abort()
        return oldest is not None

    def _session(self, sock: socket.socket, client_host: str, lease: Lease) -> Session:
        login = Login(
            self._users, is_required=self._security.is_sasl_required, refusals=self._refusals,
            lifetime_ms=self._core.config.connections_max_reauth_ms,
        )  # fmt: skip
        host, port = self._advertised or sock.getsockname()[:2]
        return Session(
            *asking(self._core, ANONYMOUS), self._core, login, self._parking, sock,
            self._limits, lease, self._cluster_id, host, port, client_host,
            is_advertised=self._advertised is not None,
        )  # fmt: skip
