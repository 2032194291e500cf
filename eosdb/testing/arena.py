"""The environment in which programs are tested: a file, processes that have it open, faulty networks, and a
clock.

It injects faults and does not know the programs; checkers read the file.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from eosdb.client.transport import Presence, presence
from eosdb.database import Database, connect
from eosdb.errors import EosdbError
from eosdb.model.clock import Clock
from eosdb.model.closing import Closeable
from eosdb.model.config import BrokerConfig
from eosdb.model.failpoints import Failpoint
from eosdb.model.requests import AnyBroker, Produce, Question, Request
from eosdb.model.threads import Fate
from eosdb.model.values import ConsumerGroupMetadata, ProduceResult, TopicPartition
from eosdb.system.road import road
from eosdb.testing.faulty_transport import FaultyTransport
from eosdb.testing.scheduler import Actor, NodeCrashed, Scheduler, SimulatedClock

A = TypeVar("A")

START_MS: Final = 1_700_000_000_000
_READING: Final = ("fetch", "list_offsets", "offset_fetch")


@dataclass(frozen=True, slots=True)
class Faults:
    """Fault rates and delays of a simulation."""

    lose_request: float = 0.08
    lose_response: float = 0.08
    duplicate: float = 0.08
    reorder: float = 0.2
    longest_delay_ms: int = 60
    silent: float = 0.3
    very_late: float = 0.03
    """The probability of a request or response delayed beyond every timeout."""
    latest_ms: int = 10_000
    request_timeout_ms: int = 400
    """How long a client waits for an answer."""
    admin: float = 0.015
    """The share of steps in which an administrator acts or a fault is injected."""
    crash_between_steps: float = 0.03
    """The probability that the coordinator dies between deciding a transaction and completing it."""


class Arena(Closeable):
    """The environment of one run. A context manager that removes its file."""

    def __init__(
        self,
        seed: int,
        faults: Faults,
        topics: Mapping[str, int],
        *,
        nodes: int = 2,
        config: BrokerConfig | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.clock = SimulatedClock(START_MS)
        self.scheduler = Scheduler(random.Random(self.rng.random()), self.clock)
        self.counts: Counter[str] = Counter()
        self.history: list[str] = []
        self.transports: list[SimulatedTransport] = []
        self.presences: dict[int, SimulatedPresence] = {}
        self.scheduler.ended = self._end_presences
        self.config = config or BrokerConfig()
        self._folder = tempfile.mkdtemp(prefix="eosdb-simulation-", dir=road.memory_folder())
        self.path = str(Path(self._folder, "simulated.db"))
        self.nodes: list[Database] = []
        self._running_on: int | None = None
        self._crash_rng = random.Random(self.rng.random())
        try:
            self.nodes += [self._open() for _ in range(nodes)]
            for topic, partitions in topics.items():
                self.nodes[0].admin.create_topic(topic, partitions)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.scheduler.kill_all()
        for node in self.nodes:
            node.abandon()
        shutil.rmtree(self._folder, ignore_errors=True)

    def transport(self, node: int) -> SimulatedTransport:
        """A separate network for one client, with the arena's faults."""
        return self.network(self.broker(node), self.faults)

    def network(self, broker: AnyBroker, faults: Faults) -> SimulatedTransport:
        """A separate network between one client and its broker."""
        network = SimulatedTransport(self, broker, self.rng.getrandbits(32), faults)
        self.transports.append(network)
        return network

    def say(self, line: str) -> None:
        time = self.clock.monotonic_ms() - START_MS
        self.history.append(f"step {self.scheduler.steps} at {time} ms: {line}")

    # -- requests -------------------------------------------------------------------------------

    def broker(self, node: int) -> AnyBroker:
        """A broker that sends each request to the process that runs on the node at that time."""
        return NodeBroker(self, node)

    def ask(self, node: int, request: Request[A]) -> A:
        """Have a process carry out a request, which may crash the process (NodeCrashed)."""
        before, self._running_on = self._running_on, node
        try:
            answer = self.nodes[node].broker.ask(request)
        except EosdbError as error:
            self.counts[type(error).__name__] += 1
            self.say(f"    node {node} {_short(request)} refused: {type(error).__name__}")
            raise
        finally:
            self._running_on = before
        self.answered(request, answer)
        if isinstance(request, Produce):
            for tp, result in cast(dict[TopicPartition, ProduceResult], answer).items():
                if result.error is not None:
                    self.counts[type(result.error).__name__] += 1
                    self.say(f"    {tp} refused: {type(result.error).__name__}")
                self.counts["duplicate"] += result.duplicate
        if not isinstance(request, Question) and request.name not in _READING:
            self.say(f"    node {node} {_short(request)}")
        return answer

    def presence(self, node: int, transactional_id: str | None) -> Presence | None:
        """A presence for the running actor. It ends with the actor, if not before."""
        real = presence(self.nodes[node].broker, transactional_id)
        if real is None:
            return None
        simulated = SimulatedPresence(real, self.scheduler.current, self.clock)
        self.presences[simulated.number] = simulated
        return simulated

    def _end_presences(self, actor: Actor) -> None:
        for simulated in self.presences.values():
            if simulated.actor is actor:
                simulated.end()

    def answered(self, request: Request[object], answer: object) -> None:
        """Called after every response of a broker; checkers override it."""

    # -- crashes and deliveries -----------------------------------------------------------------

    def reached(self, point: Failpoint) -> None:
        """Sometimes crash the coordinator between the two steps of a commit."""
        if point is not Failpoint.END_TXN_DECIDED or self._running_on is None:
            return
        if self._crash_rng.random() < self.faults.crash_between_steps:
            self.counts["crash between decision and markers"] += 1
            raise NodeCrashed(self._running_on)

    def ends_in_steps(self) -> bool:
        """End half of the transactions in two steps, as transactions over very many partitions do."""
        return self._running_on is None or self._crash_rng.random() < 0.5

    def restart(self, node: int) -> None:
        """Replace a dead process and its actors by a new process, which opens the file."""
        self.say(f"node {node} crashes")
        self.counts["node crash"] += 1
        for actor in [a for a in self.scheduler.actors if a.node == node]:
            self.scheduler.kill(actor)
        self.nodes[node].abandon()
        self.nodes[node] = self._open()

    def deliver_due(self) -> None:
        """Deliver the messages that are due, even if their senders are dead."""
        for transport in self.transports:
            try:
                transport.deliver_due()
            except NodeCrashed as crash:
                self.restart(crash.node)

    def deliver_everything(self) -> None:
        """Deliver every message now, regardless of its delay."""
        for transport in self.transports:
            transport.deliver_all()

    def _open(self) -> Database:
        return connect(self.path, clock=self.clock, durability="off", config=self.config)


class NodeBroker:
    """The broker of the process that runs on the node now."""

    def __init__(self, arena: Arena, node: int) -> None:
        self._arena = arena
        self._node = node

    @property
    def clock(self) -> Clock:
        return self._arena.clock

    @property
    def transaction_version(self) -> int:
        return self._arena.config.transaction_version

    def presence(self, transactional_id: str | None = None) -> Presence | None:
        return self._arena.presence(self._node, transactional_id)

    def ask(self, request: Request[A]) -> A:
        return self._arena.ask(self._node, request)


class SimulatedPresence:
    """The presence of an actor as a group member, and the time when it ended. The arena keeps a reference,
    so garbage collection of an abandoned consumer does not end it."""

    def __init__(self, real: Presence, actor: Actor | None, clock: Clock) -> None:
        self.number: Final = real.number
        self.actor: Final = actor
        self.ended_ms: int | None = None
        self.look: Final = real.look
        self._real = real
        self._clock = clock

    def end(self) -> None:
        if self.ended_ms is None:
            self.ended_ms = self._clock.time_ms()
            self._real.end()


class SimulatedTransport(FaultyTransport):
    """A faulty network on which other actors run while a request is sent."""

    def __init__(self, arena: Arena, broker: AnyBroker, seed: int, faults: Faults) -> None:
        self._arena = arena
        self._faults = faults
        super().__init__(
            broker,
            seed,
            lose_request=faults.lose_request,
            lose_response=faults.lose_response,
            duplicate=faults.duplicate,
            reorder=faults.reorder,
            delay_ms=(0, faults.longest_delay_ms),
            silent=faults.silent,
            clock=arena.clock,
        )
        self.request_timeout_ms = faults.request_timeout_ms

    def _way(self) -> int:
        faults = self._faults
        late = self._rng.random() < faults.very_late
        return super()._way() + (self._rng.randint(0, faults.latest_ms) if late else 0)

    def ask(
        self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
    ) -> list[Any]:
        self._arena.scheduler.pause()
        return super().ask(requests, sync=sync, fate=fate)


def _short(request: Request[object]) -> str:
    """The name of the request with its required fields."""
    given = (f for f in fields(request) if not f.kw_only or f.default is MISSING)  # type: ignore[arg-type]
    return f"{request.name}({', '.join(_plain(getattr(request, f.name)) for f in given)})"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_plain(v)}" for k, v in value.items()) + "}"
    if isinstance(value, ConsumerGroupMetadata):
        return value.group_id
    if hasattr(value, "member_epoch"):
        return f"{value.member_id} in epoch {value.member_epoch}"
    if hasattr(value, "records"):
        first = value.records[0].value.decode()
        return (
            f"{first} +{len(value.records) - 1} as {value.producer_id}/{value.producer_epoch} "
            f"#{value.base_sequence}"
        )
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(map(str, value))) + "}"
    return str(value)
