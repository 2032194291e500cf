"""Faults between clients and a server, planned by a test for the next request of a name.

The request or its response is lost, it is delayed, or it is answered with an error. The faults have the
names of `FaultyTransport`. A lost message breaks the connection: TCP loses messages in no other way.
"""

from __future__ import annotations

import re
import threading
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from eosdb.errors import ApiError, ConfigError
from eosdb.model.validation import check_whole

if TYPE_CHECKING:
    from eosdb.wire.connection import CarryOut
    from eosdb.wire.messages import Response
    from eosdb.wire.session import Session

_REMEMBERED: Final = 1_000


@dataclass(frozen=True, slots=True)
class LoseRequest:
    name = "lose_request"


@dataclass(frozen=True, slots=True)
class LoseResponse:
    name = "lose_response"


@dataclass(frozen=True, slots=True)
class Delay:
    ms: int
    name = "delay"


@dataclass(frozen=True, slots=True)
class Answer:
    error: type[ApiError]
    name = "answer"


Fault = LoseRequest | LoseResponse | Delay | Answer


class ServerFaults:
    """The planned faults of one server, which calls this object for every request. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._planned: dict[str, deque[Fault]] = {}
        self._ended = threading.Event()
        self.counts: Final[Counter[str]] = Counter()
        self.history: Final[deque[str]] = deque(maxlen=_REMEMBERED)

    def plan(self, api: str, times: int, fault: Fault) -> None:
        """Plan this fault for `times` requests of this name, after those planned before."""
        names = _names()
        if api not in names:
            raise ConfigError(f"api: got {api!r}, expected one of {', '.join(sorted(names))}")
        check_whole("times", times, 1)
        with self._lock:
            self._planned.setdefault(api, deque()).extend([fault] * times)

    def interrupt(self) -> None:
        """Stop the server: delayed requests are never carried out."""
        self._ended.set()

    def resume(self) -> None:
        self._ended.clear()

    def __call__(self, name: str, session: Session, carry_out: CarryOut) -> Response | None:
        fault = self._next(name)
        match fault:
            case LoseRequest():
                raise ConnectionResetError("the request is lost")
            case LoseResponse():
                carry_out(session)
                raise ConnectionResetError("the answer is lost")
            case Delay(ms):
                if self._ended.wait(ms / 1000):
                    raise ConnectionResetError("the request never arrived")
            case Answer(error):
                broker: Any = _Refusing(error)
                return carry_out(replace(session, broker=broker, admin=broker))
        return carry_out(session)

    def _next(self, name: str) -> Fault | None:
        api = _snake_case(name)
        with self._lock:
            planned = self._planned.get(api)
            fault = planned.popleft() if planned else None
            self.counts["request"] += 1
            if fault is not None:
                self.counts[fault.name] += 1
            what = "" if fault is None else f": {fault.name}"
            self.history.append(f"{api} #{self.counts['request']}{what}")
        return fault


class _Refusing:
    """A broker and an admin whose methods all raise one error."""

    def __init__(self, error: type[ApiError]) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object, **__: object) -> None:
            raise self._error(f"{name}: the test asked for this error")

        return refuse


def _names() -> set[str]:
    from eosdb.wire.handlers import APIS

    return {_snake_case(api.name) for api in APIS.values()}


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
