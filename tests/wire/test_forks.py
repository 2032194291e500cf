"""A process that serves a file may fork: the server stays the parent's."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable

import pytest

import eosdb
from eosdb.wire.parking import REAL_TIME
from tests.wire.raw import FOREVER_MS, PATIENCE_S, Raw, eventually, fetching, fill, served

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


class Child:
    """A forked process that does something, and then lives until it is let go."""

    def __init__(self, does: Callable[[], None]) -> None:
        reading, self._letting_go = os.pipe()
        done, writing = os.pipe()
        self.id = os.fork()
        if self.id == 0:
            code = 1
            try:
                os.close(self._letting_go)
                does()
                os.write(writing, b"done")
                os.read(reading, 1)
                code = 0
            finally:
                os._exit(code)
        os.close(reading)
        os.close(writing)
        assert select.select([done], [], [], PATIENCE_S)[0]
        self.is_done = os.read(done, 4) == b"done"
        os.close(done)

    def end(self) -> int:
        os.write(self._letting_go, b"x")  # Children forked later have a copy of it.
        os.close(self._letting_go)
        return os.waitstatus_to_exitcode(os.waitpid(self.id, 0)[1])


def test_a_child_keeps_no_socket_of_the_server_and_shuts_none_down(db: eosdb.Database) -> None:
    with served(db) as server, Raw(server) as raw:
        assert raw.is_alive()
        child = Child(server.close)
        assert child.is_done
        assert raw.is_alive(), "the parent goes on with its connections"
        with Raw(server) as other:
            assert other.is_alive(), "and takes new ones"
        server.close()
        assert raw.is_closed(), "the child does not keep it open"
        with socket.socket() as late:
            assert late.connect_ex((server.host, server.port)) != 0, "nor the port"
        assert child.end() == 0


def test_connections_that_come_during_forks_are_the_parents_alone(db: eosdb.Database) -> None:
    with served(db) as server:
        raws, children = [], []
        for _ in range(10):
            raws.append(Raw(server))
            children.append(Child(lambda: None))
        assert all(raw.is_alive() for raw in raws)
        server.close()
        assert all(raw.is_closed() for raw in raws)
        assert [child.end() for child in children] == [0] * 10
        for raw in raws:
            raw.socket.close()


def test_requests_that_wait_survive_a_fork_of_their_server(db: eosdb.Database) -> None:
    with served(db) as server, Raw(server) as raw:
        raw.send_frame(fetching(max_wait_ms=FOREVER_MS))
        assert eventually(lambda: len(server._parking._waiters) == 1, REAL_TIME)
        child = Child(lambda: None)
        fill(db)
        answer = raw.answer()
        assert answer is not None
        assert len(answer) > 100_000
        assert child.end() == 0
