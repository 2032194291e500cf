"""Two faults made on purpose: a worker that is given up and comes back, and an answer that is lost.

A zombie: the worker is stopped (SIGSTOP) within its work, as a paused virtual machine or a long garbage
collection would do it; a
second one takes over, and does what is left; then the first goes on.

A lost answer: a proxy before the server cuts the connection when it gets the answer to one message; who
sent it sends it again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.why_not.contract import Server, Verdict, number_of, value_of
from benchmarks.why_not.runs import Place, said, served
from benchmarks.why_not.systems import driver

SENT = 60
STOPPED_AT = 20
LEASE_S, IDLE_S = 2.0, 4.0
LOST = 7
PROXIED = {"procrastinate": b"COMMIT", "redis": b"", "nats": b""}
"""What the client says after the message to make it durable, if that is a request of its own.

Kafka's clients ask the broker for its address and go past a proxy."""


@dataclass(frozen=True, slots=True)
class Zombie:
    name: str
    done_without_it: int
    """Results that were there while the first worker was stopped."""
    verdict: Verdict


def zombie(name: str, lease_s: float = LEASE_S, idle_s: float = IDLE_S) -> Zombie:
    lease_s = max(lease_s, driver(name).lease_min_s)
    settings = {"lease_s": lease_s, "idle_s": lease_s + idle_s, "pause_ms": 0}
    with served(name) as place:
        place.driver("z")  # It is imported here, too.
        place.ask("create", "z")
        place.ask("produce", "z", count=SENT, size=1)
        with place.start("z", stop_at=STOPPED_AT, **settings) as first:
            assert said(first, "stopping"), f"{name}: message {STOPPED_AT} was not read"
            with place.start("z", **settings) as second:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    second.wait(lease_s + 15)
                without = SENT - place.verdict("z", SENT).lost
                os.kill(first.pid, signal.SIGCONT)
                for worker in (first, second):
                    try:
                        worker.wait(60)
                    except subprocess.TimeoutExpired:
                        worker.kill()
        return Zombie(name, without, place.verdict("z", SENT))


def lost_answer(name: str) -> int:
    """How often the message is in the queue whose first answer was lost."""
    with served(name) as place:
        place.ask("create", "lost")
        marker = value_of(LOST)[:8].encode()
        with _proxy(place.server.address, marker, PROXIED[name]) as address:
            sender = Place(name, Server(address), place.mark).driver("lost")
            for number in range(10):
                try:
                    sender.produce([value_of(number)], 1)
                except Exception:  # Any: the each library has a class of its own for it.
                    sender.produce([value_of(number)], 1)
        found = [number_of(value) for value in place.driver("lost").inputs()]
        assert set(found) == set(range(10)), found
        return found.count(LOST)


@contextmanager
def _proxy(address: str, marker: bytes, then: bytes) -> Iterator[str]:
    """The address of a proxy that cuts one connection when the answer to what holds the marker comes."""
    scheme, _, place = address.rpartition("://")
    with socket.create_server(("127.0.0.1", 0)) as door:
        cut = threading.Event()

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = door.accept()
                    _pair(client, _dial(place), marker, then, cut)

        threading.Thread(target=accept, daemon=True).start()
        own = f"127.0.0.1:{door.getsockname()[1]}"
        yield f"{scheme}://{own}" if scheme else own
        assert cut.is_set(), "no answer was lost"


def _dial(place: str) -> socket.socket:
    if Path(place).is_dir():
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(Path(place, ".s.PGSQL.5432")))
        return server
    host, _, port = place.partition(":")
    return socket.create_connection((host, int(port)))


def _pair(
    client: socket.socket, server: socket.socket, marker: bytes, then: bytes, cut: threading.Event
) -> None:
    marked = False
    armed = threading.Event()

    def close() -> None:
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def ask() -> None:
        nonlocal marked
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                marked = marked or marker in data
                if marked and then in data:
                    armed.set()
                server.sendall(data)
        close()

    def answer() -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                if armed.is_set() and not cut.is_set():
                    cut.set()
                    break
                client.sendall(data)
        close()

    for target in (ask, answer):
        threading.Thread(target=target, daemon=True).start()
