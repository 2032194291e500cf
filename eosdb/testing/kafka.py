"""A Kafka cluster inside the test: real clients connect to it, and the test controls time and faults.

The cluster is eosdb itself, served on a loopback port from threads of this process; no rule of Kafka is
implemented here. The clock stands still, so nothing expires unless the test advances it. Faults have the
names of `FaultyTransport`. A lost message breaks the connection, as in TCP.
"""

from __future__ import annotations

import re
import socket
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

import eosdb
from eosdb.errors import ApiError, ConfigError
from eosdb.model.clock import ManualClock, SystemClock
from eosdb.model.closing import Closeable
from eosdb.model.config import BrokerConfig, guess
from eosdb.model.reports import Diagnosis
from eosdb.model.validation import check_whole
from eosdb.model.values import TopicPartition

if TYPE_CHECKING:
    from eosdb.wire.messages import Response
    from eosdb.wire.server import CarryOut
    from eosdb.wire.session import Session

    Fault = Callable[[Session, CarryOut], Response | None]

_REMEMBERED: Final = 1_000


def _lose_request(session: Session, carry_out: CarryOut) -> Response | None:
    raise ConnectionResetError("the request is lost")


def _lose_response(session: Session, carry_out: CarryOut) -> Response | None:
    carry_out(session)
    raise ConnectionResetError("the answer is lost")


class ServerFaults:
    """The planned faults of one server, which calls this object for every request. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._planned: dict[str, deque[tuple[str, Fault]]] = {}
        self.died: Final = threading.Event()
        """Set while the server is dead. Then delayed requests are not carried out, later ones not
        answered."""
        self.counts: Final[Counter[str]] = Counter()
        self._history: Final[deque[str]] = deque(maxlen=_REMEMBERED)

    @property
    def history(self) -> list[str]:
        with self._lock:
            return list(self._history)

    @property
    def unused(self) -> list[str]:
        with self._lock:
            return [f"{api}: {kind}" for api, due in self._planned.items() for kind, _ in due]

    def forget(self) -> list[str]:
        unused = self.unused
        self._planned.clear()
        return unused

    def plan(self, api: str, times: int, kind: str, fault: Fault) -> None:
        """Plan a fault for `times` requests of this name, after the faults planned before. `kind` is the
        fault's name in the counts."""
        names = _names()
        if api not in names:
            did_you_mean = guess(_snake_case(api), names)
            raise ConfigError(
                f"api: got {api!r}{did_you_mean}, expected one of {', '.join(sorted(names))}"
            )
        check_whole("times", times, 1)
        with self._lock:
            self._planned.setdefault(api, deque()).extend([(kind, fault)] * times)

    def __call__(self, name: str, session: Session, carry_out: CarryOut) -> Response | None:
        if self.died.is_set():
            raise ConnectionResetError("the server has died")
        api = _snake_case(name)
        with self._lock:
            planned = self._planned.get(api)
            kind, fault = planned.popleft() if planned else ("", None)
            self.counts["request"] += 1
            if kind:
                self.counts[kind] += 1
            self._history.append(f"{api} #{self.counts['request']}{kind and f': {kind}'}")
        return carry_out(session) if fault is None else fault(session, carry_out)

    def late(self, ms: int) -> Fault:
        def fault(session: Session, carry_out: CarryOut) -> Response | None:
            if self.died.wait(ms / 1000):
                raise ConnectionResetError("the request never arrived")
            return carry_out(session)

        return fault


class _Refusing:
    """A broker and an admin whose methods all raise one error, and whether one was called."""

    def __init__(self, error: type[ApiError]) -> None:
        self._error = error
        self._core = self  # Of an admin, for `Tools`.
        self.was_asked = False

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object, **__: object) -> None:
            self.was_asked = True
            raise self._error(f"{name}: the test asked for this error")

        return refuse


def _names() -> set[str]:
    from eosdb.wire.handlers import APIS

    return {_snake_case(api.name) for api in APIS.values()}


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


_HOST: Final = "127.0.0.1"
_BROKER: Final = BrokerConfig(group_min_session_timeout_ms=1, auto_create_topics_enable=True)
"""Topics are created with a Kafka broker's defaults, and sessions may be short."""


class KafkaDouble(str, Closeable):
    """The address of the cluster (`bootstrap.servers`), with methods to control it.

    It is a `str`, so clients, environments and command lines accept it unchanged, and a context manager
    that closes the cluster. With `time_passes`, the clock also advances by itself. A `clock` of yours is
    advanced to the machine's time first. `config` are settings of a `BrokerConfig`. Faults are requested by
    a request's name, Kafka's in snake_case: `lose_response("end_txn")`.
    """

    path: Final[Path]
    """The path of the cluster's file."""
    clock: Final[ManualClock]
    """The broker's clock: `advance(ms)` lets sessions, transactions and retention expire."""
    db: eosdb.Database
    """The file as a Database, for SQL, `outcome`, `admin` and `verify`; `restart` replaces it."""
    _reserved: socket.socket

    def __new__(cls, *_: object, **__: object) -> KafkaDouble:
        reserved = _reserve(0)
        double = super().__new__(cls, f"{_HOST}:{reserved.getsockname()[1]}")
        double._reserved = reserved
        return double

    def __init__(
        self,
        path: Path,
        *,
        time_passes: bool = False,
        clock: ManualClock | None = None,
        **config: Any,
    ) -> None:
        self.path = path
        now_ms = SystemClock().time_ms()
        self.clock = _RunningClock() if time_passes else clock or ManualClock(now_ms)
        # Clients send this machine's time.
        self.clock.advance(max(now_ms - self.clock.time_ms(), 0))
        self._config = replace(_BROKER, **config)
        self._faults = ServerFaults()
        self._port: int = self._reserved.getsockname()[1]
        self._is_alive = False
        self.restart()

    @property
    def bootstrap_servers(self) -> str:
        """The address as a `str` that is not a KafkaDouble."""
        return str(self)

    def get_bootstrap_server(self) -> str:
        """The address as a plain string (the method's name is testcontainers')."""
        return str(self)

    @property
    def counts(self) -> Counter[str]:
        """Counts of requests and faults: `request`, `lose_request`, `lose_response`, `delay`, `answer`."""
        return self._faults.counts

    @property
    def history(self) -> list[str]:
        """The most recent requests and faults, one line each; `history[-5:]` are the last five."""
        return self._faults.history

    @property
    def unused(self) -> list[str]:
        """The planned faults that no request has met yet, one line each: `"end_txn: lose_response"`.
        `close` warns of them, because such a test has not seen what it asked for."""
        return self._faults.unused

    def lose_request(self, api: str, times: int = 1) -> None:
        """Drop the next requests of this name before they are carried out, and break the connection."""
        self._faults.plan(api, times, "lose_request", _lose_request)

    def lose_response(self, api: str, times: int = 1) -> None:
        """Carry out the next requests of this name, drop their responses, and break the connection."""
        self._faults.plan(api, times, "lose_response", _lose_response)

    def delay(self, api: str, ms: int, times: int = 1) -> None:
        """Carry out the next requests of this name after a delay (ms of real time)."""
        check_whole("ms", ms, 0)
        self._faults.plan(api, times, "delay", self._faults.late(ms))

    def answer(self, api: str, error: type[ApiError] | str | int, times: int = 1) -> None:
        """Answer the next requests of this name with an error of Kafka's, without carrying them out. The
        error is a class of `eosdb`, or any name or number of Kafka's: "NOT_LEADER_OR_FOLLOWER", 6."""
        from eosdb.testing.kafka_errors import error_of

        answered = error_of(error)

        def refuse(session: Session, carry_out: CarryOut) -> Response | None:
            broker: Any = _Refusing(answered)
            response: Any = carry_out(replace(session, broker=broker, admin=broker))
            if not broker.was_asked and hasattr(response, "error_code"):
                response.error_code = answered.code
            return response  # type: ignore[no-any-return]

        self._faults.plan(api, times, "answer", refuse)

    @overload
    def why(self) -> list[eosdb.Worry]: ...
    @overload
    def why(self, topic: str, group_id: str | None = None) -> list[Diagnosis]: ...
    def why(
        self, topic: str | None = None, group_id: str | None = None
    ) -> list[eosdb.Worry] | list[Diagnosis]:
        """The problems, in sentences (`Database.why`). With a topic, explains for each partition why a
        reader, or this group, makes no progress."""
        if topic is None and not self._is_alive:
            sentence = "The cluster was killed, and refuses every client."
            return [eosdb.Worry(None, None, None, sentence, "eosdb_kafka.restart()")]
        if topic is None:
            return self.db.why()
        count = len(self.db.admin.describe_topic(topic).partitions)
        partitions = [TopicPartition(topic, number) for number in range(count)]
        return [self.db.admin.diagnose(partition, group_id) for partition in partitions]

    def kill(self) -> None:
        """Die as by `kill -9`: connections break, and the file keeps its state. Clients are refused until
        `restart`. Idempotent."""
        if self._end():
            # Keep the port, so that no other process takes it and no client connects to itself.
            self._reserved = _reserve(self._port)
            self.db.abandon()

    def restart(self) -> None:
        """Serve the file again at the same address, as a new process would. Kills a running server
        first."""
        self.kill()
        self.db = eosdb.connect(self.path, clock=self.clock, durability="off", config=self._config)
        self._reserved.close()
        self._faults.died.clear()
        with warnings.catch_warnings():  # kafka-python warns, which would fail some tests.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._server = self.db.serve(self._port, _HOST, interfere=self._faults)
        self._is_alive = True

    def close(self) -> None:
        """Close the cluster, also while clients are connected, and keep the file; idempotent."""
        self._end()
        self._reserved.close()
        self.db.close()
        if unused := self._faults.forget():
            warnings.warn(
                f"no request met these planned faults: {', '.join(unused)}. Does the client make such "
                "requests? `history` has those it made",
                stacklevel=2,
            )

    def _end(self) -> bool:
        """Shut down the server; returns whether it was alive."""
        was_alive, self._is_alive = self._is_alive, False
        if was_alive:
            self._faults.died.set()
            self._server.abandon()
        return was_alive


def _reserve(port: int) -> socket.socket:
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((_HOST, port))
    return reserved


class _RunningClock(ManualClock):
    """The machine's time plus the time by which it was advanced."""

    _system: Final = SystemClock()

    def time_ms(self) -> int:
        return self._system.time_ms() + self._now_ms

    def monotonic_ms(self) -> int:
        return self._system.monotonic_ms() + self._now_ms

    def sleep_ms(self, ms: int) -> None:
        self._system.sleep_ms(ms)
