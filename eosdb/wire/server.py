"""The server: it listens, serves each connection in a thread, and closes connections in an orderly way.

A connection answers its requests one at a time, in their order, as Kafka does.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from kafka.protocol.api_message import ApiMessage

from eosdb.admin.access import credential
from eosdb.broker.broker import Broker
from eosdb.broker.core import Core
from eosdb.errors import EosdbError, StorageError
from eosdb.model.closing import Closeable, Closing
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import Notice
from eosdb.model.threads import Thread
from eosdb.wire import listening, messages
from eosdb.wire.apis import Api
from eosdb.wire.errors import UNKNOWN_SERVER_ERROR, UNSUPPORTED_VERSION, RefusedByFileError
from eosdb.wire.handlers import APIS
from eosdb.wire.limits import UNCOUNTED, Lease, Limits, Memory
from eosdb.wire.login import Login, Refusals, Users
from eosdb.wire.messages import MalformedMessageError, Pieces, RequestHeader, Response
from eosdb.wire.parking import REAL_TIME, Parking
from eosdb.wire.security import IN_THE_CLEAR, Security, shake_hands, shut_down
from eosdb.wire.session import ANONYMOUS, Session, asking

_SIZE: Final = struct.Struct(">i")
_FIRST: Final = 4_096
_PIECE: Final = 65_536
"""The most bytes that one call reads. Its memory grows with this size."""
_STALL_MS: Final = 2_000
"""How long a client may pause while it holds memory that other connections wait for."""
_LOOK_S: Final = 0.5
"""The interval of checking whether others wait for memory."""
_NOT_YET: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""The errors of a call that has taken as long as `SO_RCVTIMEO` or `SO_SNDTIMEO` allows."""


class Frames:
    """Reads requests and writes responses of a connection. `lease` holds the shared memory of a request
    until the next request is read."""

    def __init__(self, sock: socket.socket, limits: Limits, lease: Lease) -> None:
        self._socket = sock
        self._limits = limits
        self.lease: Final = lease
        self._ahead = b""
        """Bytes of later requests, received with the last one."""
        self._read_s = 0.0
        # The client must log in or send a first request by this time; None if it has done so.
        self.stranger_until_ms: int | None = REAL_TIME.monotonic_ms() + int(
            limits.stranger_s * 1000
        )

    @property
    def patience_s(self) -> float:
        """The time (s) that the client may be silent."""
        if self.stranger_until_ms is None:
            return self._limits.idle_s
        left_ms = self.stranger_until_ms - REAL_TIME.monotonic_ms()
        return min(left_ms / 1000, self._limits.idle_s)

    def read(self, largest: int) -> bytearray | None:
        """Read the next request; None if the client has disconnected or was idle for too long. Raises
        MalformedMessageError for a size beyond `largest`, before any allocation. Raises TimeoutError for
        a frame that is not completed in time, a pause while others wait for its memory, and an unknown
        client that sends for too long."""
        self.lease.release()
        if (patience_s := self.patience_s) <= 0:
            raise TimeoutError(f"no login or request within {self._limits.stranger_s:.0f} s")
        try:
            data = bytearray(self._ahead or self._received(_FIRST, patience_s))
        except _NOT_YET:
            return None
        if not data or not self._fill(data, _SIZE.size):
            return None
        (size,) = _SIZE.unpack_from(data)
        if not 0 <= size <= largest:
            raise MalformedMessageError(f"a frame of {size} bytes, at most {largest} are read")
        del data[: _SIZE.size]
        self._ahead = bytes(data[size:])
        del data[size:]
        return data if self._fill(data, size) else None

    def _received(self, size: int, seconds: float) -> bytes:
        # SO_RCVTIMEO is cheaper than Python's time-outs, which need two more system calls and take the GIL.
        if seconds != self._read_s:
            self._read_s = seconds
            limit = struct.pack("ll", int(seconds), max(1, int(seconds % 1 * 1_000_000)))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        return self._socket.recv(size)

    def write(self, answer: Pieces) -> None:
        """Send a response. Raises TimeoutError if the client does not read it."""
        size = sum(map(len, answer))
        if (more := size - UNCOUNTED - self.lease.size) > 0:
            self.lease.take(more)
        patience = _Patience(self._limits.seconds_for(size), self.lease)
        for piece in answer:
            left = memoryview(piece)
            while left:
                try:
                    sent = self._socket.send(left)
                except _NOT_YET:
                    patience.seconds(f"the client has not read {size} bytes of a response")
                    continue
                left, size = left[sent:], size - sent
                patience.renew()

    def _fill(self, data: bytearray, size: int) -> bool:
        """Read until `data` has `size` bytes. Returns False if the client disconnects first."""
        patience = _Patience(min(self._limits.seconds_for(size), self.patience_s), self.lease)
        while (left := size - len(data)) > 0:
            wait_s = patience.seconds(f"received {len(data)} of the {size} bytes of a frame")
            try:
                received = self._received(min(left, _PIECE), wait_s)
            except _NOT_YET:
                continue
            if not received:
                return False
            if len(data) + len(received) > UNCOUNTED:
                patience.renew()
                self.lease.take(len(received), size)
                patience.extend()
            data += received
            patience.renew()
        return True


class _Patience:
    """The deadline for transferring one frame."""

    def __init__(self, seconds: float, lease: Lease) -> None:
        self._seconds, self._lease = seconds, lease
        self._renewed = REAL_TIME.monotonic_ms()
        self._deadline = self._renewed + int(seconds * 1000)

    def seconds(self, progress: str) -> float:
        """The time until the next check. Raises TimeoutError, with `progress` in its text, after the
        deadline, or if the client pauses while others wait for its memory."""
        now = REAL_TIME.monotonic_ms()
        if (left := self._deadline - now) <= 0:
            raise TimeoutError(f"{progress} in {self._seconds:.0f} s")
        if self._lease.keeps_others and now - self._renewed >= _STALL_MS:
            raise TimeoutError(f"{progress}, while others wait for its memory")
        return min(left / 1000, _LOOK_S)

    def renew(self) -> None:
        """Note progress of the client: it may pause anew."""
        self._renewed = REAL_TIME.monotonic_ms()

    # decisions/0031: the client must not lose time while the server waits for memory.
    def extend(self) -> None:
        """Extend the deadline by the time since the last progress, spent waiting for memory."""
        self._deadline += REAL_TIME.monotonic_ms() - self._renewed


_RESET: Final = struct.pack("ii", 1, 0)

CarryOut = Callable[[Session], Response | None]
Interfere = Callable[[str, Session, CarryOut], Response | None]
"""A test's hook around a handler: it gets the API's name, the session and a function that runs the
handler. It returns the response; its OSError breaks the connection."""


class Connection:
    """Serves one client until it disconnects or `close` is called. `serve` runs in a thread of its own."""

    def __init__(
        self,
        session: Session,
        interfere: Interfere | None,
        on_known: Callable[[Connection], object],
    ) -> None:
        """`on_known` is called once, after the login or, without a required login, the first request."""
        self._on_known = on_known
        self._is_known = False
        self._socket = session.client
        self._session = session
        self._frames = Frames(session.client, session.limits, session.lease)
        self._interfere = interfere
        self._is_closing = False

    def serve(self) -> None:
        """Answer requests until the connection ends for any reason; never raises."""
        peer = self._session.client_host
        catalog.CONNECTED.say(client_host=peer)
        try:
            asked_for = shake_hands(self._socket, max(self._frames.patience_s, 0.001))
            if asked_for and not self._session.is_advertised:
                self._session.host = asked_for
            while not self._is_closing:
                is_login, limits = self._session.login.is_due, self._session.limits
                largest = limits.frame_bytes_before_login if is_login else limits.frame_bytes
                frame = self._frames.read(largest)
                if frame is None:
                    catalog.DISCONNECTED.say(client_host=peer)
                    return
                answer = self._answer(frame)
                self._know_if_logged_in()
                del frame  # Free the request's memory: the client may read slowly.
                if answer is not None:
                    self._frames.write(answer)
                    del answer  # It may be a megabyte, and the next request may take hours.
                if self._session.login.is_refused:
                    return
        except (MalformedMessageError, TimeoutError, EosdbError) as error:
            catalog.CONNECTION_CLOSED.say(client_host=peer, error=error)
        except RefusedByFileError as error:
            catalog.REFUSED_BY_FILE.say(client_host=peer, cause=error, error=error.__cause__)
        except OSError as error:
            catalog.CONNECTION_BROKE.say(client_host=peer, error=error)
        except Exception as error:
            catalog.CONNECTION_FAILED.say(client_host=peer, trace=error)
        finally:
            self._frames.lease.release()
            self._socket.close()

    def close(self) -> None:
        """Close the connection after the request being handled."""
        self._is_closing = True
        self._session.login.ended.set()
        with contextlib.suppress(OSError):  # The client may have disconnected already.
            shut_down(self._socket, socket.SHUT_RD)

    def abort(self) -> None:
        """Reset the connection at once, as if the process had died; an unfinished response is not sent."""
        self._is_closing = True
        self._session.login.ended.set()
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            shut_down(self._socket, socket.SHUT_RDWR)

    def forget(self) -> None:
        """In a forked child, close this copy of the socket; the connection stays open in the parent."""
        self._socket.close()

    def _answer(self, frame: bytearray) -> Pieces | None:
        if self._session.login.takes_tokens:
            token = self._session.step(bytes(frame))
            return [_SIZE.pack(len(token)) + token]
        header = messages.decode_header(frame)
        api = APIS.get(header.api_key)
        if api is None:
            raise MalformedMessageError(f"API {header.api_key} is not served")
        if not api.lowest <= header.version <= api.highest:
            if header.api_key == messages.API_VERSIONS:
                return _versions_for_newer_client(header)
            raise MalformedMessageError(
                f"{api.name} version {header.version} is not served, {api.lowest} to {api.highest} are"
            )
        self._session.login.check_may_ask(header.api_key, api.name)
        request = messages.decode_body(api.request, header, frame)
        self._know_if_logged_in()  # Before the handler, which may take long.
        self._session.client_id = header.client_id
        try:
            response = self._carry_out(api, request, header.version)
            return None if response is None else messages.encode(response, header)
        except (MalformedMessageError, OSError, EosdbError, RefusedByFileError):
            raise
        except MemoryError as error:
            raise RefusedByFileError("there is not enough memory") from error
        except Exception as error:
            return self._failed(api, header, error)

    def _know_if_logged_in(self) -> None:
        if not self._is_known and not self._session.login.is_due:
            self._is_known = True
            self._frames.stranger_until_ms = None
            self._on_known(self)

    def _carry_out(self, api: Api, request: ApiMessage, version: int) -> Response | None:
        if self._interfere is None:
            return api.answer(self._session, request, version)
        return self._interfere(
            api.name, self._session, lambda session: api.answer(session, request, version)
        )

    def _failed(self, api: Api, header: RequestHeader, error: Exception) -> Pieces:
        """Answer a bug of the server with an error code, if the response has one; otherwise raise it,
        which ends the connection."""
        if not api.has_code(header.version):
            raise error
        catalog.REQUEST_FAILED.say(
            api=api.name, api_version=header.version, error=error, trace=error
        )
        answer = api.message({"error_code": UNKNOWN_SERVER_ERROR}, header.version)
        return messages.encode(answer, header)


def _versions_for_newer_client(header: RequestHeader) -> Pieces:
    """Answer ApiVersions of an unsupported version in version 0, with UNSUPPORTED_VERSION; the client
    then retries (KIP-511)."""
    api = APIS[messages.API_VERSIONS]
    version = {"api_key": api.key, "min_version": api.lowest, "max_version": api.highest}
    response = api.message({"error_code": UNSUPPORTED_VERSION, "api_keys": [version]}, 0)
    oldest = RequestHeader(header.api_key, 0, header.correlation_id, header.client_id, 0)
    return messages.encode(response, oldest)


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
        self._users = Users(partial(credential, core.store))
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
        """The notice that was last logged about too many connections; None while there are not too many."""
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
        # One C call copies them; a lock could stay held after an interrupt.
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
        """Serve a new connection. If there are too many, the oldest connection of an unknown client is
        closed; without such a client, the new connection is closed. Either is logged once."""
        full, count = None, len(self._connections)
        if count >= self._limits.connections:
            # Connections that are closing also count, so up to twice the limit may be open.
            has_room = count < 2 * self._limits.connections and self._close_oldest_stranger()
            full = catalog.UNUSED_CONNECTIONS_CLOSED if has_room else catalog.TOO_MANY_CONNECTIONS
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
            session = self._session(sock, client_host)
            connection = Connection(session, self._interfere, self._no_stranger)
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

    # decisions/0031: if there are too many connections, those of known clients stay open.
    def _close_oldest_stranger(self) -> bool:
        """Close the oldest connection of an unknown client; returns False if there is none."""
        with self._lock:
            oldest = next(iter(self._strangers), None)
            if oldest is not None:
                del self._strangers[oldest]
        if oldest is not None:
            oldest.abort()
        return oldest is not None

    def _session(self, sock: socket.socket, client_host: str) -> Session:
        login = Login(
            self._users, is_required=self._security.is_sasl_required, refusals=self._refusals,
            lifetime_ms=self._core.config.connections_max_reauth_ms,
        )  # fmt: skip
        host, port = self._advertised or sock.getsockname()[:2]
        return Session(
            *asking(self._core, ANONYMOUS), self._core, login, self._parking, sock,
            self._limits, self._memory.lease(), self._cluster_id, host, port, client_host,
            is_advertised=self._advertised is not None,
        )  # fmt: skip
