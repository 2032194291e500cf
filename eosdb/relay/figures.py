"""A relay's figures as Prometheus reads them, and a small server that shows them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final

from eosdb.errors import ListenError
from eosdb.relay.status import PartitionStatus, RelayStatus

_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_TOTALS: Final = {
    "records": "Records that have been relayed by this process.",
    "bytes": "Bytes of their keys and values.",
    "transactions": "Transactions that carried them.",
    "failures": "How often the relay had to begin anew, or stopped.",
}
_OF_PARTITION: Final[dict[str, tuple[str, Callable[[PartitionStatus], float]]]] = {
    "position": ("Next offset to be relayed.", lambda one: one.position),
    "end_offset": ("How far the source can be read.", lambda one: one.end),
    "lag_records": ("Offsets between the two.", lambda one: one.lag),
    "lag_bytes": ("Estimate by the mean size.", lambda one: one.lag_bytes),
    "lag_seconds": ("Age of the newest relayed record.", lambda one: one.lag_ms / 1000),
}


def prometheus_text(status: RelayStatus, name: str = "relay") -> str:
    """The figures in Prometheus' text format. What is not known is left out."""
    return "".join(f"{line}\n" for line in _lines(status, name))


def _lines(status: RelayStatus, name: str) -> Iterator[str]:
    relay = f'relay="{_escaped(name)}"'
    for of_total, text in _TOTALS.items():
        yield f"# HELP eosdb_relay_{of_total}_total {text}"
        yield f"# TYPE eosdb_relay_{of_total}_total counter"
        yield f"eosdb_relay_{of_total}_total{{{relay}}} {getattr(status, of_total)}"
    yield "# HELP eosdb_relay_up 1 if nothing has gone wrong since the last transaction."
    yield "# TYPE eosdb_relay_up gauge"
    yield f"eosdb_relay_up{{{relay}}} {0 if status.last_error else 1}"
    for figure, (text, value) in _OF_PARTITION.items():
        yield f"# HELP eosdb_relay_{figure} {text}"
        yield f"# TYPE eosdb_relay_{figure} gauge"
        for one in status.partitions:
            if (found := value(one)) >= 0:
                labels = f'{relay},topic="{_escaped(one.topic)}",partition="{one.partition}"'
                yield f"eosdb_relay_{figure}{{{labels}}} {found}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class FigureServer:
    """Serves a text at http://127.0.0.1:PORT/metrics, from threads of this process. A context manager."""

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path.partition("?")[0] in ("/", "/metrics")
                body = (text() if found else "not found; see /metrics\n").encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", _TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        try:
            self._server: Final = ThreadingHTTPServer(("127.0.0.1", port), Answer)
        except OSError as error:
            raise ListenError(f"127.0.0.1:{port}: {error.strerror}; choose another port") from None
        self.port: Final[int] = self._server.server_address[1]
        self._thread: Final = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> FigureServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
