"""A proxy between Kafka clients and `eosdb serve` that does to requests and answers what a network does.

It knows Kafka's frames: a size, and behind it in a request the API's key, its version and the number of the
request, which the answer begins with. Each fault is of the next frames or bytes, and `counts` says what has
happened. Clients learn the server's address from it, so that the proxy gives them its own instead. No TLS.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal

Direction = Literal["requests", "answers"]

PRODUCE: Final = 0
OFFSET_COMMIT: Final = 8
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
_LOGIN: Final = (17, 36)
"""SaslHandshake and SaslAuthenticate: without them a connection with a login takes no other request."""
_WITH_ADDRESS: Final = (3, 10, 60)
"""Metadata, FindCoordinator, DescribeCluster."""
_HOST: Final = "127.0.0.1"
_SIZE: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhi")
_REFUSED: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of a socket whose close is a reset."""
_PATIENCE_S: Final = 30.0
"""How long a second answer is waited for."""


class Proxy:
    """Of one server at a port of this machine, which may come and go."""

    def __init__(self, server_port: int) -> None:
        self._server = (_HOST, server_port)
        self._listener = socket.create_server((_HOST, 0))
        self.port: Final[int] = self._listener.getsockname()[1]
        self.counts: Final[Counter[str]] = Counter()
        """cut, lost, delayed, duplicated, refused."""
        self.seen: Final[set[int]] = set()
        """The keys of the APIs that there were requests of."""
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._none()
        self._start(self._accept)

    def _none(self) -> None:
        self._refusing = False
        self._left: dict[Direction, int] = {}
        self._lose: frozenset[int] = frozenset()
        self._twice: frozenset[int] = frozenset()
        self._behind = 0
        self._delay_s = 0.0
        self._late: list[_Late] = []
        self._ended = threading.Event()

    def cut(self, after_bytes: int, direction: Direction) -> None:
        """Reset the connection on which so many more bytes have come, of all of them together."""
        with self._lock:
            self._left[direction] = after_bytes

    def lose_answer(self, keys: Iterable[int]) -> None:
        """The next request of these APIs is carried out; instead of an answer the connection is reset."""
        with self._lock:
            self._lose = frozenset(keys)

    def delay_answers(self, ms: int) -> None:
        """Every answer waits for so long, and those behind it on its connection."""
        with self._lock:
            self._delay_s = ms / 1000

    def duplicate(self, keys: Iterable[int], behind: int = 0) -> None:
        """The next request of these APIs comes again, on another connection: at the same time, so that
        its client learns of neither before both are carried out, or behind so many others. The latter is
        safe with version 2 of transactions only: before, EndTxn may end the next transaction (KIP-890)."""
        with self._lock:
            self._twice, self._behind = frozenset(keys), behind

    def refuse(self) -> None:
        """Reset every connection, and new ones at once."""
        with self._lock:
            self._refusing = True
            for link in self._links:
                link.reset()

    def accept(self) -> None:
        with self._lock:
            self._refusing = False

    def clear(self) -> None:
        """End what was ordered. What was delayed goes on at once."""
        with self._lock:
            self._ended.set()
            self._none()

    def close(self) -> None:
        """Everything is closed, and every thread has ended."""
        self.clear()
        with self._lock:
            self._closed = True
            for link in self._links:
                link.end()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        while self._threads:
            self._threads.pop(0).join()

    def _start(self, function: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=function, args=arguments)
        thread.start()
        self._threads[:] = [each for each in self._threads if each.is_alive()]
        self._threads.append(thread)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # Closed.
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server = None
            with suppress(OSError):
                server = socket.create_connection(self._server)
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                if server is None or self._refusing or self._closed:
                    if self._refusing:
                        self.counts["refused"] += 1
                    for each in (client, server) if server else (client,):
                        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _REFUSED)
                        each.close()
                    continue
                link = _Link(client, server)
                self._links.add(link)
                self._start(self._requests, link)
                self._start(self._answers, link)

    def _requests(self, link: _Link) -> None:
        with suppress(OSError):
            while frame := _read(link.client):
                key, _, number = _REQUEST.unpack_from(frame, _SIZE.size)
                due = self._note(link, key, number, frame)
                self._forward(link, "requests", frame)
                with self._lock:
                    for late in due:
                        self._start(self._again, late)
        self._end(link)

    def _note(self, link: _Link, key: int, number: int, frame: bytes) -> list[_Late]:
        """Take a request down; what is due behind it."""
        with self._lock:
            link.keys[number] = key
            self.seen.add(key)
            if key in _LOGIN:
                link.login.append(frame)
            if key in self._lose:
                self._lose = frozenset()
                link.lost.add(number)
            for late in self._late:
                late.behind -= 1
            if key in self._twice:
                self._twice = frozenset()
                late = _Late((*link.login, frame), self._behind)
                self._late.append(late)
                if not self._behind:
                    link.twice[number] = late.is_over
            due = [late for late in self._late if late.behind <= 0]
            self._late = [late for late in self._late if late.behind > 0]
            return due

    def _again(self, late: _Late) -> None:
        with suppress(OSError), socket.create_connection(self._server, _PATIENCE_S) as server:
            for frame in late.frames:
                server.sendall(frame)
                _read(server)
            with self._lock:
                self.counts["duplicated"] += 1
        late.is_over.set()

    def _answers(self, link: _Link) -> None:
        with suppress(OSError):
            while frame := _read(link.server):
                (number,) = _SIZE.unpack_from(frame, _SIZE.size)
                with self._lock:
                    key, twice = link.keys.pop(number, -1), link.twice.pop(number, None)
                    delay_s, ended = self._delay_s, self._ended
                    if number in link.lost:
                        self.counts["lost"] += 1
                        link.reset()
                        break
                    if delay_s:
                        self.counts["delayed"] += 1
                if delay_s:
                    ended.wait(delay_s)
                if twice:
                    twice.wait(_PATIENCE_S)
                if key in _WITH_ADDRESS:
                    frame = self._with_own_address(frame)
                self._forward(link, "answers", frame)
        self._end(link)

    def _with_own_address(self, frame: bytes) -> bytes:
        host = _HOST.encode()
        return frame.replace(host + _SIZE.pack(self._server[1]), host + _SIZE.pack(self.port))

    def _forward(self, link: _Link, direction: Direction, frame: bytes) -> None:
        target = link.server if direction == "requests" else link.client
        with self._lock:
            left = self._left.pop(direction, None)
            is_cut = left is not None and left <= len(frame)
            if left is not None and not is_cut:
                self._left[direction] = left - len(frame)
            if is_cut:
                self.counts["cut"] += 1
        target.sendall(frame[:left])
        if is_cut:
            link.reset()

    def _end(self, link: _Link) -> None:
        """The second of the two threads closes what both use."""
        with self._lock:
            link.threads -= 1
            if link.threads:
                link.end()
                return
            self._links.discard(link)
        link.client.close()
        link.server.close()


@dataclass(slots=True, eq=False)
class _Link:
    """A client's connection, and that to the server which belongs to it."""

    client: socket.socket
    server: socket.socket
    keys: dict[int, int] = field(default_factory=dict)
    """The APIs of the requests that have no answer yet."""
    lost: set[int] = field(default_factory=set)
    twice: dict[int, threading.Event] = field(default_factory=dict)
    """The requests that come twice at the same time."""
    login: list[bytes] = field(default_factory=list)
    threads: int = 2
    is_reset: bool = False

    def reset(self) -> None:
        """Both sides get a reset, when the threads that read have ended."""
        self.is_reset = True
        for each in (self.client, self.server):
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _REFUSED)
                each.shutdown(socket.SHUT_RD)

    def end(self) -> None:
        """Wake whoever reads."""
        for each in (self.client, self.server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RD if self.is_reset else socket.SHUT_RDWR)


@dataclass(slots=True)
class _Late:
    """A request that comes again: the login, the frame, and behind how many others."""

    frames: tuple[bytes, ...]
    behind: int
    is_over: threading.Event = field(default_factory=threading.Event)


def _read(sock: socket.socket) -> bytes:
    """A frame with its size; nothing if the other side has ended."""
    head = _exactly(sock, _SIZE.size)
    if not head:
        return b""
    body = _exactly(sock, _SIZE.unpack(head)[0])
    return head + body if body else b""


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            return b""
        data += piece
    return bytes(data)
