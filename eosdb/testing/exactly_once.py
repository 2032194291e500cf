"""Runs a user's consume–process–produce function under many fault schedules and checks its output.

The function is ordinary blocking code. A schedule runs it over a network that loses, repeats and delays
requests; kills it between any two requests and restarts it; suspends it, starts a second copy, and resumes
the first as a zombie; crashes the coordinator in the middle of a commit. At the end the output topics must
hold the expected records: none lost, none duplicated, in order.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from eosdb.client.consumer.consumer import Consumer
from eosdb.client.producer.producer import Producer
from eosdb.client.transport import DirectTransport
from eosdb.errors import EosdbError
from eosdb.model.clock import Clock
from eosdb.model.config import BrokerConfig
from eosdb.model.failpoints import watched
from eosdb.model.values import Record, RecordBatch, TopicPartition, TransactionToken
from eosdb.testing.arena import Arena, Faults
from eosdb.testing.scheduler import NodeCrashed

_LONGEST_SCHEDULE: Final = 4_000
"""After this number of turns the faults end, and the program runs once more to finish its work."""
_LONGEST_PEACE: Final = 100_000
"""A program that takes more turns without faults does not return."""
_TOLD: Final = 60


class NotExactlyOnceError(AssertionError):
    """The output differs from that of exactly-once processing. The message names the schedule."""


class Instance:
    """One life of the program under test. It creates clients like a `Database`, over a faulty network."""

    def __init__(self, arena: Arena, node: int) -> None:
        self._arena = arena
        self._node = node

    @property
    def clock(self) -> Clock:
        """The simulated clock: sleeping on it takes no real time."""
        return self._arena.clock

    def producer(self, **config: Any) -> Producer:
        """Like `Database.producer`."""
        return Producer(self._arena.transport(self._node), self._arena.clock, **config)

    def consumer(self, group_id: str | None = None, **config: Any) -> Consumer:
        """Like `Database.consumer`, from the earliest offset by default."""
        config.setdefault("auto_offset_reset", "earliest")
        return Consumer(self._arena.transport(self._node), self._arena.clock, group_id, **config)

    def outcome(self, token: TransactionToken) -> str:
        """Like `Database.outcome`."""
        return self._arena.nodes[self._node].outcome(token)


Program: TypeAlias = Callable[[Instance], object]
Values: TypeAlias = Mapping[str, Sequence[bytes | str]]


def check_exactly_once(
    program: Program,
    inputs: Values,
    expected: Values,
    *,
    schedules: int = 100,
    seed: int = 1,
    partitions: Mapping[str, int] | None = None,
    faults: Faults | None = None,
    config: BrokerConfig | None = None,
    ordered: bool = True,
) -> Counter[str]:
    """Run `program` under `schedules` fault schedules, starting with `seed`.

    `inputs` are the values of each input topic, distributed over its partitions in turn (one partition
    unless `partitions` says otherwise); `expected` is the final content of each output topic. With
    `ordered`, the values of an output partition must be in the expected order. The program must return when
    there is nothing left to read. Returns counts of events and faults. Raises NotExactlyOnceError naming
    the schedule, and any exception of the program other than EosdbError.
    """
    counts: Counter[str] = Counter()
    for number in range(seed, seed + schedules):
        topics = dict.fromkeys((*inputs, *expected), 1) | dict(partitions or {})
        with Arena(number, faults or Faults(admin=0.03), topics, config=config) as arena:
            _fill(arena, inputs, topics)
            _Schedule(arena, program, random.Random(number)).run()
            problem = _problem(arena, expected, topics, ordered)
            counts += arena.counts
            if problem is not None:
                history = "\n".join(arena.history[-_TOLD:])
                raise NotExactlyOnceError(
                    f"{problem}\nschedule seed={number} (repeat it with seed={number}, schedules=1); "
                    f"the end of what happened:\n{history}"
                )
    return counts


class _Schedule:
    """One schedule: the program is killed and restarted until its work is done."""

    def __init__(self, arena: Arena, program: Program, rng: random.Random) -> None:
        self._arena = arena
        self._program = program
        self._rng = rng
        self._lives = 0
        self._is_done = False

    def run(self) -> None:
        arena = self._arena
        self._give_birth()
        with watched(arena.reached, arena.ends_in_steps):
            while not self._is_done and arena.scheduler.steps < _LONGEST_SCHEDULE:
                if self._rng.random() < arena.faults.admin:
                    self._act()
                self._step()
        arena.scheduler.kill_all()
        self._finish_in_peace()
        arena.deliver_everything()
        arena.clock.advance(arena.config.transaction_max_timeout_ms + 1)
        arena.nodes[0].housekeeping()

    def _finish_in_peace(self) -> None:
        """Start the program again without faults, and let it finish."""
        arena = self._arena
        arena.faults = dataclasses.replace(
            arena.faults, lose_request=0, lose_response=0, duplicate=0, very_late=0
        )
        error: BaseException | None = None
        for _ in range(3):
            self._give_birth()
            actor = arena.scheduler.actors[0]
            last = arena.scheduler.steps + _LONGEST_PEACE
            while not actor.finished:
                if arena.scheduler.steps > last:
                    raise NotExactlyOnceError(
                        "the program must return when nothing is left to read"
                    )
                arena.scheduler.step()
            error = actor.error
            if error is None:
                return
            if not isinstance(error, EosdbError):
                raise error
        raise NotExactlyOnceError(f"the program fails even without faults: {error!r}")

    def _step(self) -> None:
        arena = self._arena
        actor = arena.scheduler.step()
        if actor is not None and actor.finished:
            if isinstance(actor.error, NodeCrashed):
                arena.restart(actor.error.node)
            elif actor.error is not None and not isinstance(actor.error, EosdbError):
                raise actor.error
            else:
                arena.say(f"{actor.name} ends: {actor.error or 'done'}")
                self._is_done = actor.error is None and not arena.scheduler.actors
        arena.deliver_due()
        if not arena.scheduler.actors and not self._is_done:
            self._give_birth()

    def _give_birth(self) -> None:
        arena = self._arena
        self._lives += 1
        node = self._rng.randrange(len(arena.nodes))
        instance = Instance(arena, node)
        name = f"instance {self._lives}"
        actor = arena.scheduler.spawn(name, node, lambda: self._program(instance))
        actor.wake_ms = arena.clock.monotonic_ms()
        arena.say(f"{name} begins on node {node}")

    def _act(self) -> None:
        arena = self._arena
        actors = arena.scheduler.actors
        actor = actors[self._rng.randrange(len(actors))] if actors else None
        act = self._rng.choice(("kill", "zombie", "zombie", "wait", "restart"))
        arena.counts[act] += 1
        if act == "kill" and actor is not None:
            arena.say(f"{actor.name} is killed")
            arena.scheduler.kill(actor)
        elif act == "zombie" and actor is not None and len(actors) < 3:
            actor.suspended_until = arena.scheduler.steps + self._rng.randint(5, 80)
            arena.say(f"{actor.name} is suspended until step {actor.suspended_until}")
            self._give_birth()
        elif act == "wait":
            arena.clock.advance(self._rng.choice((100, 5_000, 70_000)))
        elif act == "restart":
            arena.restart(self._rng.randrange(len(arena.nodes)))


def _fill(arena: Arena, inputs: Values, topics: Mapping[str, int]) -> None:
    broker = arena.nodes[0].broker
    for topic, values in inputs.items():
        for partition in range(topics[topic]):
            records = [Record(value=_bytes(v)) for v in values[partition :: topics[topic]]]
            if records:
                broker.append(TopicPartition(topic, partition), RecordBatch(records))


def _problem(
    arena: Arena, expected: Values, topics: Mapping[str, int], ordered: bool
) -> str | None:
    """The difference between the output and the expected output, or None."""
    for topic, wanted in expected.items():
        values = [_bytes(value) for value in wanted]
        orders = [_committed(arena, TopicPartition(topic, p)) for p in range(topics[topic])]
        stored = Counter(value for partition in orders for value in partition)
        lost = list((Counter(values) - stored).elements())
        doubled = list((stored - Counter(values)).elements())
        if lost or doubled:
            return f"topic {topic!r}: lost {lost}, doubled or unexpected {doubled}"
        places = {value: i for i, value in enumerate(values)}
        for partition, order in enumerate(orders):
            if ordered and [places[value] for value in order] != sorted(places[v] for v in order):
                return f"topic {topic!r}, partition {partition}: out of order: {order}"
    return None


def _committed(arena: Arena, tp: TopicPartition) -> list[bytes]:
    consumer = Consumer(DirectTransport(arena.nodes[0].broker), arena.clock)
    consumer.assign([tp])
    consumer.seek_to_beginning()
    values: list[bytes] = []
    while records := consumer.poll(max_records=1_000):
        values += [record.value for record in records if isinstance(record.value, bytes)]
    return values


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value
