"""`process`: two copies of the real processor, whose handlers fail, postpone and succeed.

A step is one turn of a processor's loop. At any of its calls an answer or a request may be lost, or the
copy may die. In every state each record of the input is unread, waits, or has one result or dead letter. A
copy of a processor is a deep copy of the object, because Python's objects cannot be rolled back.
"""

from __future__ import annotations

import copy
import copyreg
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from eosdb import ConsumerRecord
from eosdb.client.processor.failure import RetryAt
from eosdb.client.processor.processor import Processor
from eosdb.client.transport import DirectTransport
from eosdb.errors import NetworkExceptionError
from eosdb.model.finished import read as unfinished
from eosdb.model.metrics import Metrics
from eosdb.model.records.failure_headers import postponed_topic
from eosdb.model.requests import Request
from eosdb.model.values import OffsetAndMetadata
from tests.explore.core import Move, World
from tests.explore.transactions import fates, tables
from tests.simulation.model import require

_POSTPONED: Final = postponed_topic("g")
_HEARTBEAT_MS: Final = 3_000
_DELAY_MS: Final = 1_000
_TIMEOUT_MS: Final = 10_001
_SESSION_MS: Final = 1_800_000
_MOST_CALLS: Final = 12
_SKIPPED: Final = ("metrics", "_metrics", "_lock", "metric")
_MEMBERS: Final = (
    "SELECT state, generation_id, leader, members FROM groups",
    "SELECT 'session', member_id FROM group_sessions",
    "SELECT group_id, topic, partition, committed_offset, metadata FROM group_offsets",
)
_COMMITTED: Final = (
    "SELECT value, partition, \"offset\" FROM all_records WHERE topic = ? AND status = 'committed' "
    "AND control IS NULL"
)
_WAITING: Final = """
SELECT r.value FROM eosdb_scheduled s JOIN records r ON r.partition_id = s.partition_id
AND r."offset" = s."offset" WHERE s.producer_id = -1
"""


class _Died(BaseException):
    """The process ends here."""


class _Failed(Exception):
    """What a handler raises."""


class Wire:
    """The transport, on which one call of a step may meet a fault."""

    def __init__(self, inner: DirectTransport) -> None:
        self._inner = inner
        self.transaction_version = inner.transaction_version
        self.left = -1
        """So many calls are left before the fault; negative: there is none, or it has struck."""
        self.fault = ""

    def ask(self, requests: Sequence[Request[Any]], **options: Any) -> list[Any]:
        strikes = self.left == 0
        self.left -= 1
        lost = [NetworkExceptionError("the connection broke")] * len(requests)
        if strikes and self.fault == "lose the request":
            return lost
        answers = self._inner.ask(requests, **options)
        if strikes and self.fault == "die":
            raise _Died
        return lost if strikes else answers


class State(NamedTuple):
    clients: tuple[Processor, ...]
    faults: int = 0
    fails: int = 0
    postpones: int = 0
    advances: int = 0
    jumps: int = 0
    expiries: int = 0
    copies: int = 0
    copy: Any = None


class Process(World):
    state = State
    config: ClassVar[dict[str, Any]] = {"group_max_session_timeout_ms": _SESSION_MS}
    sample = 6
    processors = 1
    records = 2
    partitions = 1
    size = 1
    attempts = 1
    retries = True
    kinds: tuple[str, ...] = ("lose the request", "lose the answer", "die")
    """The faults that may strike."""

    def prepare(self) -> None:
        db = self.box.db
        for topic in ("in", "out", "dead"):
            db.admin.create_topic(topic, self.partitions if topic == "in" else 1)
        db.admin.create_topic(_POSTPONED, 1)
        self.values = [f"v{i}".encode() for i in range(self.records)]
        with db.producer() as producer:
            for i, value in enumerate(self.values):
                producer.send("in", value, partition=i % self.partitions)
        for kind in (threading.Lock, threading.RLock, queue.SimpleQueue):
            copyreg.pickle(type(kind()), lambda _, kind=kind: (kind, ()))  # type: ignore[misc]
        self.box.patch(Metrics, "__deepcopy__", lambda metrics, _: metrics)
        self.wire = Wire(DirectTransport(db.broker))
        self.handled = Counter[bytes]()
        self._outcome = "ok"
        self._shared = [self.wire, self, self.box, db, self.box.clock, db._core, self._handle]

    def start(self) -> State:
        return State(tuple(self._processor() for _ in range(self.processors)), **self.limits)

    def _processor(self) -> Processor:
        made = self.box.db.processor(
            "in", self._handle, "out", group_id="g", transport=self.wire,
            dead_letter_topic="dead", max_attempts=self.attempts,
            retry_delays_ms=(_DELAY_MS,) if self.retries else (), transaction_size=self.size,
            consumer={"session_timeout_ms": _SESSION_MS, "heartbeat_interval_ms": _HEARTBEAT_MS},
        )  # fmt: skip
        made._consumer.subscribe(
            made._topics, on_revoke=made._before_rebalance, on_lost=made._break_off
        )
        return made

    def _handle(self, record: ConsumerRecord) -> Any:
        outcome, self._outcome = self._outcome, "ok"
        if outcome == "fail":
            raise _Failed
        if outcome == "postpone":
            raise RetryAt(self.box.clock.time_ms() + _DELAY_MS)
        return record.value

    # -- moves ---------------------------------------------------------------------------------------

    def moves(self, s: State) -> Iterable[Move]:
        outcomes = ["ok"] + ["fail"] * bool(s.fails) + ["postpone"] * bool(s.postpones)
        for i in range(len(s.clients)):
            for outcome in outcomes:
                yield ("step", i, outcome, "", -1)
                for fault in self.kinds if s.faults else ():
                    for at in range(_MOST_CALLS):
                        yield ("step", i, outcome, fault, at)
        if s.advances:
            yield ("advance", _HEARTBEAT_MS)
            yield ("advance", _TIMEOUT_MS)
        if s.jumps:
            yield ("jump", 86_400_000)
            yield ("jump", -3_600_000)
        mine = _member_ids(s.clients)
        for (member,) in self.box.rows("SELECT member_id FROM group_sessions ORDER BY 1"):
            if member not in mine or s.expiries:
                yield ("end the session", member)

    def make(self, s: State, move: Move) -> State | None:
        what = move[0]
        copies = self._copied(s.clients)
        s = s._replace(clients=copies)
        if what == "advance":
            self.box.advance(move[1])
            return s._replace(advances=s.advances - 1)
        if what == "jump":
            self.box.jump(move[1])
            self.box.coordinator.do_what_is_due()
            return s._replace(jumps=s.jumps - 1)
        if what == "end the session":
            self.box.end_session(move[1])
            return s._replace(expiries=s.expiries - (move[1] in _member_ids(copies)))
        _, i, outcome, fault, at = move
        self._outcome, self.wire.fault, self.wire.left = outcome, fault, at
        try:
            copies[i]._attempt(partial(copies[i]._read_and_process, 0))
        except _Died:
            s = s._replace(clients=(*copies[:i], self._processor(), *copies[i + 1 :]))
        finally:
            was_met, was_raised = self.wire.left < 0, self._outcome == "ok"
            self._outcome, self.wire.left = "ok", -1
        self.box._note(f"step({i}, {outcome!r}, {fault!r}, {at})")
        if (fault and not was_met) or (outcome != "ok" and not was_raised):
            return None
        return s._replace(
            faults=s.faults - bool(fault),
            fails=s.fails - (outcome == "fail"),
            postpones=s.postpones - (outcome == "postpone"),
        )

    def _copied(self, copies: tuple[Processor, ...]) -> tuple[Processor, ...]:
        return copy.deepcopy(copies, {id(it): it for it in self._shared})

    # -- states --------------------------------------------------------------------------------------

    def tables(self) -> Iterable[object]:
        yield from tables(self.box)
        for query in _MEMBERS:
            yield from self.box.rows(query)

    def parts(self, s: State) -> Iterable[object]:
        yield s[1:-1]
        for i, one in enumerate(s.clients):
            yield i, _plain(one, self.box.clock.time_ms(), set())

    def check(self, s: State, before: None) -> None:
        done = Counter[bytes]()
        for topic in ("out", "dead"):
            done.update(value for value, *_ in self._committed(topic))
        pending = Counter(value for topic in ("in", _POSTPONED) for value in self._unread(topic))
        pending.update(value for (value,) in self.box.rows(_WAITING))
        for value in self.values:
            require(done[value] <= 1, f"{value!r} has {done[value]} results")
            require(done[value] + pending[value] > 0, f"{value!r} is forgotten")
            require(done[value] + pending[value] == 1, f"{value!r} has a result, and waits")

    def _committed(self, topic: str) -> list[tuple[bytes, int, int]]:
        return self.box.rows(_COMMITTED, topic)

    def _unread(self, topic: str) -> Iterable[bytes]:
        """What the group has not completed, according to its committed offsets."""
        sql = "SELECT partition, committed_offset, metadata FROM group_offsets WHERE topic = ?"
        at = {p: OffsetAndMetadata(o, m) for p, o, m in self.box.rows(sql, topic)}
        for value, partition, offset in self._committed(topic):
            end, left = unfinished(at.get(partition, OffsetAndMetadata(0)))
            if offset >= end or offset in left:
                yield value

    def check_more(self, s: State) -> None:
        super().check_more(s)
        fates(self.box)
        with self.box.trial():
            copies = self._copied(s.clients)
            for turn in range(60):
                for one in copies:
                    one._attempt(partial(one._read_and_process, 0))
                # At last it is as late as before the clock went back.
                self.box.advance(_HEARTBEAT_MS if turn < 15 else 200_000)
                mine = _member_ids(copies)
                for (member,) in self.box.rows("SELECT member_id FROM group_sessions"):
                    if member not in mine:
                        self.box.end_session(member)
                self.check(s, None)
                if len(self._committed("out")) + len(self._committed("dead")) == len(self.values):
                    return
            require(False, "the copies do not finish")


def _member_ids(copies: Iterable[Any]) -> set[str]:
    return {one._consumer._membership._member_id for one in copies}


def _plain(it: Any, now_ms: int, seen: set[int]) -> Any:
    """The object as plain values, with its times relative to now."""
    if isinstance(it, int) and not isinstance(it, bool) and abs(it - now_ms) < 10**9:
        return "now", max(it - now_ms, -20_000)
    if it is None or isinstance(it, (int, float, str, bytes, Enum)):
        return it
    if isinstance(it, dict):
        return sorted(
            (repr(_plain(k, now_ms, seen)), repr(_plain(v, now_ms, seen))) for k, v in it.items()
        )
    if isinstance(it, (set, frozenset)):
        return sorted(repr(_plain(each, now_ms, seen)) for each in it)
    if isinstance(it, BaseException):
        return type(it).__name__
    if id(it) in seen or isinstance(it, (Callable, type(threading.Lock()))):  # type: ignore[arg-type]
        return "…"
    if isinstance(it, (list, tuple, range)) or hasattr(it, "__iter__"):
        return [_plain(each, now_ms, seen) for each in it] if hasattr(it, "__len__") else "…"
    if not type(it).__module__.startswith("eosdb."):
        return "…"
    seen.add(id(it))
    names = {*getattr(it, "__dict__", ())}
    for kind in type(it).__mro__:
        names |= {*getattr(kind, "__slots__", ())}
    shown = sorted(name for name in names if not name.strip("_").endswith(_SKIPPED))
    return type(it).__name__, [(n, _plain(getattr(it, n, None), now_ms, seen)) for n in shown]
