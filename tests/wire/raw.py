"""A client that writes what it likes to a server's socket, and a server to do it to."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka.protocol.consumer.fetch import FetchRequest

import eosdb
from eosdb import Record, RecordBatch
from eosdb.model import requests
from eosdb.wire.limits import Limits
from eosdb.wire.server import Server
from tests.requests import TP

FOREVER_MS = 3_000_000
PATIENCE_S = 60.0
"""How long anything may take on a slow machine."""
API_VERSIONS, METADATA, PRODUCE, FETCH = 18, 3, 0, 1


class Raw:
    """A socket to a server, and frames on it."""

    def __init__(self, server: Server, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect((server.host, server.port))

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_frame(self, content: bytes) -> None:
        self.send(struct.pack(">i", len(content)) + content)

    def answer(self) -> bytes | None:
        """The next frame; None when the server has closed the connection."""
        size = self._exactly(4)
        return None if size is None else self._exactly(struct.unpack(">i", size)[0])

    def is_closed(self) -> bool:
        """Waits until the server closes the connection; False when it says something before."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def is_alive(self) -> bool:
        """Whether the server answers on this connection."""
        self.send_frame(header(API_VERSIONS, 0, 77))
        found = self.answer()
        return found is not None and found[:4] == struct.pack(">i", 77)

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                more = self.socket.recv(size - len(data))
            except ConnectionError:
                return None
            if not more:
                return None
            data += more
        return data


def header(api: int, version: int, correlation_id: int = 1, *, flexible: bool = False) -> bytes:
    client = b"raw"
    tags = b"\0" if flexible else b""
    return struct.pack(">hhih", api, version, correlation_id, len(client)) + client + tags


def message(request: Any, version: int, correlation_id: int = 1) -> bytes:
    """A request of kafka-python, without its size."""
    flexible = request.flexible_version_q(version)
    body: bytes = request.encode(version=version)
    return header(request.API_KEY, version, correlation_id, flexible=flexible) + body


@contextmanager
def served(db: eosdb.Database, **limits: Any) -> Iterator[Server]:
    """`db` behind a server with these limits, with the topic "t"."""
    if "t" not in db.broker.ask(requests.TopicPartitions()):
        db.admin.create_topic("t")
    with db.serve(limits=Limits(**limits)) as server:
        yield server


def eventually(found: Callable[[], bool], clock: eosdb.SystemClock) -> bool:
    """Whether it becomes true."""
    deadline = clock.monotonic_ms() + PATIENCE_S * 1000
    while clock.monotonic_ms() < deadline:
        if found():
            return True
        clock.sleep_ms(10)
    return found()


def resident_bytes() -> int:
    """The memory of this process that is in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def fill(db: eosdb.Database) -> None:
    """Twenty records of 100 kB."""
    for _ in range(20):
        db.broker.append(TP, RecordBatch([Record(value=b"x" * 100_000)]))


def fetching(*, max_wait_ms: int, offset: int = 0, version: int = 11) -> bytes:
    Topic = FetchRequest.FetchTopic
    partition = Topic.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=2**31 - 1
    )
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=2**31 - 1,
        topics=[Topic(topic="t", partitions=[partition])],
        forgotten_topics_data=[],
    )
    return message(request, version)
