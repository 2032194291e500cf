"""A small HTTP server for Prometheus' text format."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from eosdb.errors import EosdbError, ListenError, StorageError
from eosdb.integrations.exposition.figures import CONTENT_TYPE
from eosdb.model.closing import Closeable
from eosdb.model.threads import Thread

LOOPBACK: Final = "127.0.0.1"
_PATIENCE_S: Final = 10
"""How long a client may pause in the middle of its request, or read nothing."""


class FigureServer(Closeable):
    """Serves a text at http://HOST:PORT/metrics, from threads of this process. A context manager. When
    `text` raises an EosdbError the answer is 503 with its message."""

    def __init__(self, port: int, text: Callable[[], str], host: str = LOOPBACK) -> None:
        class Answer(BaseHTTPRequestHandler):
            timeout = _PATIENCE_S

            def do_GET(self) -> None:
                status, body = 404, "not found; see /metrics\n"
                if self.path.partition("?")[0] in ("/", "/metrics"):
                    try:
                        status, body = 200, text()
                    except EosdbError as error:
                        status, body = 503, f"{error}\n"
                data = body.encode(errors="replace")
                self.send_response(status)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        class Serving(ThreadingHTTPServer):
            address_family = _family(host)

            def process_request(self, request: Any, client_address: Any) -> None:
                answer = self.process_request_thread
                Thread("the figures", "eosdb-figures", answer, request, client_address).start()

        try:
            self._server: Final = Serving((host, port), Answer)
        except OSError as error:
            raise ListenError(
                f"{host}:{port}: {error.strerror or error}; choose another port or address"
            ) from None
        self.port: Final[int] = self._server.server_address[1]
        self._thread: Final = Thread("the figures", "eosdb-figures", self._server.serve_forever)

    def __enter__(self) -> Self:
        try:
            self._thread.start()
        except StorageError:
            self._server.server_close()
            raise
        return self

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _family(host: str) -> socket.AddressFamily:
    try:
        is_six = ipaddress.ip_address(host).version == 6
    except ValueError:
        is_six = False
    return socket.AF_INET6 if is_six else socket.AF_INET
