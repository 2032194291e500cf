"""A relay between clients and a server that keeps every request: the real frames of real clients."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

from eosdb.wire.server import Server


class Relay:
    """Clients that come to `bootstrap_servers` reach the server, and are sent back to the relay by it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.bootstrap_servers = f"127.0.0.1:{self._port(self._listener)}"
        here = b"127.0.0.1"
        self._its = here + struct.pack(">i", server.port)
        self._ours = here + struct.pack(">i", self._port(self._listener))
        self.frames: list[bytes] = []
        """Every request that came, without its size."""
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._sockets: list[socket.socket] = []
        self._threads[0].start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for sock in (self._listener, *self._sockets):
            sock.close()

    @staticmethod
    def _port(sock: socket.socket) -> int:
        return int(sock.getsockname()[1])

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server.port))
                self._sockets += [client, server]
                for args in ((client, server, True), (server, client, False)):
                    thread = threading.Thread(target=self._pass_on, args=args, daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_request: bool) -> None:
        with contextlib.suppress(OSError, struct.error), source.makefile("rb") as stream:
            while True:
                (size,) = struct.unpack(">i", stream.read(4))
                content = stream.read(size)
                if is_request:
                    self.frames.append(content)
                else:
                    content = content.replace(self._its, self._ours)
                target.sendall(struct.pack(">i", size) + content)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
