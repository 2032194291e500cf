"""A link that breaks: a proxy in front of a server, which cuts each connection after some bytes."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator


class FlakyLink:
    """Listens on `port`, and forwards to the server. Every second connection breaks without a word after a
    random number of bytes below `most`, and all of them when the link has carried `total` bytes."""

    def __init__(self, server: int, seed: int, most: int, total: int) -> None:
        self._server = server
        self._rng = random.Random(seed)
        self._most = most
        self.total = total
        self.broken = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _start(self, work: object, *given: object) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        count = 0
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._server))
                count += 1
                budget = [self._rng.randrange(self._most) if count % 2 else 10**12]
                self._start(self._forward, near, far, budget)
                self._start(self._forward, far, near, budget)

    def _forward(self, source: socket.socket, target: socket.socket, budget: list[int]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(16_384):
                budget[0] -= len(data)
                self.total -= len(data)
                if budget[0] < 0 or self.total < 0:
                    self.broken += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        if source.fileno() >= 0:
            source.close()


@contextlib.contextmanager
def flaky_link(server: int, seed: int, most: int, total: int) -> Iterator[FlakyLink]:
    link = FlakyLink(server, seed, most, total)
    try:
        yield link
    finally:
        link.close()
