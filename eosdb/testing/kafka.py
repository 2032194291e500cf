"""A Kafka cluster inside the test: real clients connect to it, and the test decides about time and faults.

What is behind it is eosdb itself, served on a loopback port from threads of this process; nothing here
knows a rule of Kafka. The clock stands still, so that nothing expires unless the test lets it.
"""

from __future__ import annotations

import socket
import warnings
from collections import Counter, deque
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import eosdb
from eosdb.errors import ApiError
from eosdb.model.clock import ManualClock, SystemClock
from eosdb.model.closing import Closeable
from eosdb.model.config import BrokerConfig
from eosdb.model.reports import Diagnosis
from eosdb.model.validation import check_whole
from eosdb.model.values import TopicPartition
from eosdb.testing.server_faults import Answer, Delay, LoseRequest, LoseResponse, ServerFaults

_HOST: Final = "127.0.0.1"
_BROKER: Final = BrokerConfig(group_min_session_timeout_ms=1, auto_create_topics_enable=True)
"""Topics are created as a Kafka broker does it when nothing else is set, and sessions may be short."""


class KafkaDouble(str, Closeable):
    """The address of the cluster (`bootstrap.servers`), and what a test may do to it.

    A `str`, so that clients, environments and command lines take it as it is. A context manager that closes
    it. With `time_passes`, the clock also goes on by itself; `config` are settings of a `BrokerConfig`.
    Faults are asked for by a request's name, Kafka's in snake_case: `lose_response("end_txn")`.
    """

    path: Final[Path]
    """The file behind it."""
    clock: Final[ManualClock]
    """The broker's time: `advance(ms)` lets sessions, transactions and retention expire."""
    db: eosdb.Database
    """The file as a Database, for SQL, `outcome`, `admin` and `verify`; after `restart` another one."""
    _reserved: socket.socket

    def __new__(cls, *_: object, **__: object) -> KafkaDouble:
        reserved = _reserve(0)
        double = super().__new__(cls, f"{_HOST}:{reserved.getsockname()[1]}")
        double._reserved = reserved
        return double

    def __init__(self, path: Path, *, time_passes: bool = False, **config: Any) -> None:
        self.path = path
        self.clock = _RunningClock() if time_passes else ManualClock(SystemClock().time_ms())
        self._config = replace(_BROKER, **config)
        self._faults = ServerFaults()
        self._port: int = self._reserved.getsockname()[1]
        self._is_alive = False
        self.restart()

    @property
    def bootstrap_servers(self) -> str:
        """The address as a plain string."""
        return str(self)

    @property
    def counts(self) -> Counter[str]:
        """How often each thing happened: `request`, `lose_request`, `lose_response`, `delay`, `answer`."""
        return self._faults.counts

    @property
    def history(self) -> deque[str]:
        """The most recent requests and faults, one line each."""
        return self._faults.history

    def lose_request(self, api: str, times: int = 1) -> None:
        """The next such requests are not carried out; the client sees its connection break."""
        self._faults.plan(api, times, LoseRequest())

    def lose_response(self, api: str, times: int = 1) -> None:
        """The next such requests are carried out, and their answers are lost with the connection."""
        self._faults.plan(api, times, LoseResponse())

    def delay(self, api: str, ms: int, times: int = 1) -> None:
        """The next such requests are carried out so many milliseconds (of real time) later."""
        check_whole("ms", ms, 0)
        self._faults.plan(api, times, Delay(ms))

    def answer(self, api: str, error: type[ApiError], times: int = 1) -> None:
        """The next such requests are not carried out, but answered with this error of Kafka's."""
        self._faults.plan(api, times, Answer(error))

    def why(self, topic: str, group_id: str | None = None) -> list[Diagnosis]:
        """For each partition, why a reader, or this group, gets no further (`eosdb why`)."""
        count = len(self.db.admin.describe_topic(topic).partitions)
        partitions = [TopicPartition(topic, number) for number in range(count)]
        return [self.db.admin.diagnose(partition, group_id) for partition in partitions]

    def kill(self) -> None:
        """Die as by `kill -9`: connections break, the file stays as it is. Until `restart`, clients are
        refused; idempotent."""
        if self._end():
            # Nobody else may get the port meanwhile, least of all a client that connects to itself.
            self._reserved = _reserve(self._port)
            self.db.abandon()

    def restart(self) -> None:
        """Serve the file again at the same address, as a new process would; `kill` what is still alive."""
        self.kill()
        self.db = eosdb.connect(self.path, clock=self.clock, durability="off", config=self._config)
        self._reserved.close()
        self._faults.resume()
        with warnings.catch_warnings():  # Of kafka-python, where a test takes warnings for errors.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._server = self.db.serve(self._port, _HOST, interfere=self._faults)
        self._is_alive = True

    def close(self) -> None:
        """End it, whatever its clients do, and leave the file; idempotent."""
        self._end()
        self._reserved.close()
        self.db.close()

    def _end(self) -> bool:
        """Whether it was alive."""
        was_alive, self._is_alive = self._is_alive, False
        if was_alive:
            self._faults.interrupt()
            self._server.abandon()
        return was_alive


def _reserve(port: int) -> socket.socket:
    """Keep the port from all others, without listening."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((_HOST, port))
    return reserved


class _RunningClock(ManualClock):
    """The machine's time, and so much more as it was advanced."""

    _system: Final = SystemClock()

    def time_ms(self) -> int:
        return self._system.time_ms() + self._now_ms

    def monotonic_ms(self) -> int:
        return self._system.monotonic_ms() + self._now_ms

    def sleep_ms(self, ms: int) -> None:
        self._system.sleep_ms(ms)
