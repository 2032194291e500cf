"""One simulated world: a file, the processes that have it open, bad networks, a clock, and the sceptic."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from eosdb.client.consumer import Consumer
from eosdb.client.producer import Producer
from eosdb.client.transport import BrokerRequests, DirectTransport, Exchange, Request
from eosdb.clock import Clock
from eosdb.config import BrokerConfig
from eosdb.database import Database, connect
from eosdb.errors import EosdbError
from eosdb.failpoints import Failpoint
from eosdb.model import ProducerIdAndEpoch, TopicPartition
from eosdb.testing.faulty_transport import FaultyTransport
from eosdb.testing.simulation.checker import INPUT, OUTPUT, Checker
from eosdb.testing.simulation.ledger import Ledger
from eosdb.testing.simulation.scheduler import NodeCrashed, Scheduler, SimulatedClock

T = TypeVar("T")

START_MS: Final = 1_700_000_000_000
DATA: Final = "data"
INPUTS: Final = 2
TOPICS: Final = {INPUT: INPUTS, OUTPUT: 2, DATA: 3}
REQUEST_TIMEOUT_MS: Final = 400
DELIVERY_TIMEOUT_MS: Final = 4_000


@dataclass(frozen=True, slots=True)
class Faults:
    """How bad the world is."""

    lose_request: float = 0.08
    lose_response: float = 0.08
    duplicate: float = 0.08
    reorder: float = 0.2
    longest_delay_ms: int = 60
    silent: float = 0.3
    admin: float = 0.015
    """The share of steps in which an administrator, or fate, does something."""
    crash_between_steps: float = 0.03
    """How often the coordinator dies between deciding a transaction and completing it."""


class World:
    """Everything of one run. A context manager that removes its file."""

    def __init__(
        self,
        seed: int,
        faults: Faults,
        *,
        nodes: int = 2,
        transaction_version: int = 2,
    ) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.clock = SimulatedClock(START_MS)
        self.scheduler = Scheduler(random.Random(self.rng.random()), self.clock)
        self.ledger = Ledger()
        self.counts: Counter[str] = Counter()
        self.history: list[str] = []
        self.transports: list[SimulatedTransport] = []
        self.config = BrokerConfig(
            transaction_version=transaction_version,
            producer_id_expiration_ms=90_000,
            transactional_id_expiration_ms=150_000,
            producer_id_block_size=10,
        )
        self._folder = tempfile.mkdtemp(prefix="eosdb-simulation-", dir=_memory())
        self.path = str(Path(self._folder, "world.db"))
        self.nodes: list[Database] = []
        self._running_on: int | None = None
        self._crash_rng = random.Random(self.rng.random())
        try:
            self.nodes += [self._open() for _ in range(nodes)]
            for topic, partitions in TOPICS.items():
                self.nodes[0].admin.create_topic(topic, partitions)
            self.checker = Checker(self.path, self.ledger)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.scheduler.kill_all()
        if hasattr(self, "checker"):
            self.checker.close()
        for node in self.nodes:
            node.abandon()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what actors use ------------------------------------------------------------------------

    def transport(self, name: str, node: int) -> SimulatedTransport:
        """A network of its own for one actor's client."""
        made = SimulatedTransport(self, name, node, self.rng.getrandbits(32))
        self.transports.append(made)
        return made

    def producer(self, name: str, node: int, **config: Any) -> Producer:
        """A producer with short time-outs over a bad network."""
        return Producer(
            self.transport(name, node),
            self.clock,
            batch_size=60,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            retry_backoff_ms=20,
            max_block_ms=3_000,
            client_id=name,
            **config,
        )

    def consumer(self, name: str, node: int, group_id: str) -> Consumer:
        """A group's consumer over a bad network."""
        return Consumer(
            self.transport(name, node), self.clock, group_id, auto_offset_reset="earliest"
        )

    def reader(self, node: int, isolation_level: str) -> Consumer:
        """A consumer in the same process as the broker: what it is given is what the log says."""
        return Consumer(
            DirectTransport(self.broker(node)),
            self.clock,
            isolation_level=isolation_level,
            auto_offset_reset="earliest",
        )

    def data_partition(self, rng: random.Random) -> TopicPartition:
        return TopicPartition(DATA, rng.randrange(TOPICS[DATA]))

    def say(self, line: str) -> None:
        """A line of the history."""
        time = self.clock.monotonic_ms() - START_MS
        self.history.append(f"step {self.scheduler.steps} at {time} ms: {line}")

    # -- what fate uses -------------------------------------------------------------------------

    def broker(self, node: int) -> BrokerRequests:
        return cast(BrokerRequests, NodeBroker(self, node))

    def request(self, node: int, name: str, *args: Any, **options: Any) -> Any:
        """Have a process carry out a request; it may die of it (NodeCrashed)."""
        before, self._running_on = self._running_on, node
        try:
            answer = getattr(self.nodes[node].broker, name)(*args, **options)
        except EosdbError as error:
            self.counts[type(error).__name__] += 1
            self.say(f"    node {node} {name}{_short(args)} refused: {type(error).__name__}")
            raise
        finally:
            self._running_on = before
        if isinstance(answer, ProducerIdAndEpoch):
            position = self.checker.newest_position()
            self.ledger.issue(args[0] if args else None, *answer, position)
        if name not in ("fetch", "list_offsets", "partitions_for", "offset_fetch"):
            self.say(f"    node {node} {name}{_short(args)}")
        return answer

    def reached(self, point: Failpoint) -> None:
        """The coordinator may die between the two steps of a commit."""
        if point is not Failpoint.END_TXN_DECIDED or self._running_on is None:
            return
        if self._crash_rng.random() < self.faults.crash_between_steps:
            self.counts["crash between decision and markers"] += 1
            raise NodeCrashed(self._running_on)

    def restart(self, node: int) -> None:
        """The process has died: its actors with it. Another one opens the file."""
        self.say(f"node {node} crashes")
        self.counts["node crash"] += 1
        for actor in [a for a in self.scheduler.actors if a.node == node]:
            self.scheduler.kill(actor)
        self.nodes[node].abandon()
        self.nodes[node] = self._open()

    def deliver_due(self) -> None:
        """What is on its way arrives, also when whoever sent it is dead."""
        for transport in self.transports:
            try:
                transport.arrive()
            except NodeCrashed as crash:
                self.restart(crash.node)

    def deliver_everything(self) -> None:
        for transport in self.transports:
            transport.deliver_all()

    def _open(self) -> Database:
        return connect(self.path, clock=self.clock, durability="off", config=self.config)


class NodeBroker:
    """The broker of whatever process runs on the node now."""

    def __init__(self, world: World, node: int) -> None:
        self._world = world
        self._node = node

    @property
    def clock(self) -> Clock:
        return self._world.clock

    @property
    def transaction_version(self) -> int:
        return self._world.config.transaction_version

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **options: self._world.request(self._node, name, *args, **options)


class SimulatedTransport(FaultyTransport):
    """A bad network on which others go on while a request is sent."""

    def __init__(self, world: World, name: str, node: int, seed: int) -> None:
        faults = world.faults
        super().__init__(
            world.broker(node),
            seed,
            lose_request=faults.lose_request,
            lose_response=faults.lose_response,
            duplicate=faults.duplicate,
            reorder=faults.reorder,
            delay_ms=(0, faults.longest_delay_ms),
            silent=faults.silent,
            clock=world.clock,
        )
        self._world = world
        self.name = name

    def submit(self, name: str, request: Request[T]) -> Exchange[T]:
        self._world.scheduler.pause()
        return super().submit(name, request)

    def arrive(self) -> None:
        """What has come this far arrives, whether or not anybody waits for an answer."""
        super().poll()


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _short(args: tuple[Any, ...]) -> str:
    return "(" + ", ".join(_plain(arg) for arg in args) + ")"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_plain(v)}" for k, v in value.items()) + "}"
    if hasattr(value, "records"):
        first = value.records[0].value.decode()
        return (
            f"{first} +{len(value.records) - 1} as {value.producer_id}/{value.producer_epoch} "
            f"#{value.base_sequence}"
        )
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(map(str, value))) + "}"
    return str(value)
