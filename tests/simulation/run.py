"""A deterministic simulation of many clients on one file: runs one seed and shortens a failing run.

`run(Settings(seed=7))` runs producers, workers and readers over faulty networks, kills and suspends them,
crashes the coordinator between its two steps, jumps the clock, and checks the file after every step.

Intruders send requests that no well-behaved client sends. Each must be refused, because it would break a
promise.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import random
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from eosdb.errors import EosdbError, InvalidRequestError
from eosdb.model import requests, values
from eosdb.model.failpoints import watched
from eosdb.testing.arena import Faults
from eosdb.testing.scheduler import Actor, NodeCrashed
from tests.simulation import model
from tests.simulation.actors import ROLES, GivesUp, Me
from tests.simulation.world import DATA, TOPICS, World

_RECENT: Final = 8
Intruder = Callable[[World, random.Random, int], None]


def contradicts_its_end(world: World, rng: random.Random, node: int) -> None:
    """Commit an aborted transaction, or abort a committed one."""
    ended = list(world.checker.outcomes.items())[-_RECENT:]
    if not ended:
        return
    key, outcome = rng.choice(ended)
    token = world.ledger.transactions[key].token
    _must_be_refused(
        f"{key} is {outcome}; the opposite",
        world,
        node,
        requests.EndTxn(
            token.transactional_id, token.producer_id, token.producer_epoch, outcome != "COMMIT"
        ),
    )


def writes_markers_under_an_old_epoch(world: World, rng: random.Random, node: int) -> None:
    """Write markers for a producer's open or next transaction, as a replaced coordinator would."""
    tp = rng.choice(list(world.checker.partitions))
    producers = world.nodes[node].broker.describe_producers(tp)
    ruled = [p for p in producers if p.coordinator_epoch > 0][-_RECENT:]
    if not ruled:
        return
    fenced = rng.choice(ruled)
    epoch = fenced.producer_epoch + 1
    _must_be_refused(
        f"{tp} has seen coordinator epoch {fenced.coordinator_epoch} of producer {fenced.producer_id}; "
        "an older one's marker",
        world,
        node,
        requests.WriteTxnMarkers(
            fenced.producer_id, epoch, rng.random() < 0.5, [tp], fenced.coordinator_epoch - 1
        ),
    )


def repeats_with_more(world: World, rng: random.Random, node: int) -> None:
    """Send a stored batch again with an additional record."""
    tp = rng.choice(list(world.checker.partitions))
    batch = _some_batch(world.checker.partitions[tp], rng)
    by_id = {p.producer_id: p for p in world.nodes[node].broker.describe_producers(tp)}
    if batch is None or batch[0].producer_id not in by_id:
        return
    first = batch[0]
    contents = [row.value for row in batch] + [b"an intruder's|-|0"]
    repeat = values.RecordBatch(
        [values.Record(value=value) for value in contents],
        first.producer_id, first.producer_epoch, first.sequence,
    )  # fmt: skip
    _must_be_refused(
        f"{tp} stores {len(batch)} records from sequence {first.sequence} on; {len(contents)} of them",
        world,
        node,
        requests.Produce({tp: repeat}),
    )


def skips_a_sequence(world: World, rng: random.Random, node: int) -> None:
    """Send a batch that has overtaken the one before it."""
    tp = rng.choice(list(world.checker.partitions))
    producers = world.nodes[node].broker.describe_producers(tp)
    known = [producer for producer in producers if producer.last_sequence >= 0][-_RECENT:]
    if not known:
        return
    one = rng.choice(known)
    batch = values.RecordBatch(
        [values.Record(value=b"an intruder's|-|0")],
        one.producer_id, one.producer_epoch, one.last_sequence + 2,
    )  # fmt: skip
    _must_be_refused(
        f"{tp} knows producer {one.producer_id} up to sequence {one.last_sequence}; one more is left out",
        world,
        node,
        requests.Produce({tp: batch}),
    )


def commits_for_an_old_generation(world: World, rng: random.Random, node: int) -> None:
    """Send offsets to a transaction, as a member that missed a rebalance would (KIP-447)."""
    try:
        group = world.nodes[node].broker.describe_group(model.MEMBERS)
        me = world.ask(node, requests.InitProducerId("intruder"))
    except EosdbError:
        return
    if not group.members:
        return
    member_id = rng.choice(group.members).member_id
    # A description shows the group's state after the next write; the checker has the present state.
    generation, member = world.checker.beliefs.members.get(member_id, (0, None))
    if member is None:
        return
    kept = {number for _, number in member.kept_since(generation - 1)}
    given_up = [number for number in range(model.INPUTS) if number not in kept]
    if not given_up:
        return
    _must_be_refused(
        f"{member_id} of {model.MEMBERS} at generation {generation}; the one before, and not kept since",
        world,
        node,
        requests.TxnOffsetCommit(
            transactional_id="intruder",
            producer_id=me.producer_id,
            producer_epoch=me.producer_epoch,
            group=values.ConsumerGroupMetadata(model.MEMBERS, generation - 1, member_id),
            offsets={values.TopicPartition(model.INPUT, given_up[0]): values.OffsetAndMetadata(0)},
        ),
    )


INTRUDERS: Final[tuple[Intruder, ...]] = (
    contradicts_its_end,
    writes_markers_under_an_old_epoch,
    repeats_with_more,
    skips_a_sequence,
    commits_for_an_old_generation,
)


def _must_be_refused(what: str, world: World, node: int, request: requests.Request[object]) -> None:
    try:
        answer = world.ask(node, request)
    except EosdbError:
        is_refused = True
    else:
        results = answer.values() if isinstance(answer, dict) else [answer]
        is_refused = any(getattr(result, "error", None) is not None for result in results)
    if not is_refused:
        raise model.Violation(f"{what} is answered with success")
    world.counts[f"an intruder's {request.name}"] += 1


def _some_batch(stored: model.PartitionModel, rng: random.Random) -> list[model.SeenRow] | None:
    """One of the newest batches outside of transactions. The rows of a batch share a journal position."""
    recent = [r for r in stored.rows[-40:] if r.producer_id >= 0 and not r.is_transactional]
    if not recent:
        return None
    position = rng.choice(recent).position
    return [row for row in stored.rows if row.position == position]


_ENOUGH_RUNS = 300
_OTHER_SEEDS = 40


def shrink(failed: Result, runs: int = _ENOUGH_RUNS) -> Result:
    """Find the shortest failing history among about `runs` smaller runs: with fewer actors or kinds of
    faults, or another seed. A run that still fails with a shorter history is reduced further."""
    best, left = failed, runs
    improved = True
    while improved and left > 0:
        improved = False
        for settings in _smaller(best):
            if left == 0:
                break
            left -= 1
            result = run(settings)
            if result.violation is not None and len(result.history) < len(best.history):
                best, improved = result, True
                break
    return dataclasses.replace(best, settings=dataclasses.replace(best.settings, steps=best.steps))


def command(settings: Settings) -> str:
    """The command line that repeats exactly this run."""
    words = ["python", "-m", "tests.simulation"]
    words += ["--seed", str(settings.seed), "--steps", str(settings.steps)]
    if settings.roles:
        words += ["--actors", ",".join(settings.roles)]
    for each in dataclasses.fields(Faults):
        value = getattr(settings.faults, each.name)
        if value != each.default:
            words += ["--fault", f"{each.name}={value}"]
    return shlex.join(words)


def _smaller(result: Result) -> Iterator[Settings]:
    """Settings of smaller runs that may fail as well, the most promising first."""
    settings = dataclasses.replace(result.settings, steps=result.steps)
    for role in settings.cast:
        if len(settings.cast) > 1:
            fewer = tuple(other for other in settings.cast if other != role)
            yield dataclasses.replace(settings, roles=fewer)
    for each in dataclasses.fields(Faults):
        if getattr(settings.faults, each.name):
            milder = dataclasses.replace(settings.faults, **{each.name: 0})
            yield dataclasses.replace(settings, faults=milder)
    for seed in range(1, _OTHER_SEEDS + 1):
        yield dataclasses.replace(settings, seed=seed)


ALL_ROLES: Final = tuple(ROLES)
_AUDIT_EVERY: Final = 250
NEVER: Final = "never started"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run: equal settings give equal histories."""

    seed: int
    steps: int = 2_000
    roles: Sequence[str] = ()
    """The roles that take part; empty if the seed chooses them."""
    faults: Faults = field(default_factory=Faults)

    @property
    def cast(self) -> tuple[str, ...]:
        """The roles that take part. A group becomes stable only with few other roles, so some seeds run one
        of either protocol with few others."""
        if self.roles:
            return tuple(self.roles)
        if self.seed % 10 == 5:
            return ("idempotent", "changing_member", "committed_reader", "admin")
        if self.seed % 10 == 0:
            return ("idempotent", "assigned_member", "committed_reader", "admin")
        if self.seed % 3 == 0:
            return ("idempotent", "member", "committed_reader", "admin")
        return tuple(role for role in ALL_ROLES if not role.endswith("member"))


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run. `violation` is None if every promise was kept."""

    settings: Settings
    steps: int
    violation: str | None
    history: tuple[str, ...]
    counts: Counter[str]

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.history).encode()).hexdigest()[:16]


def run(settings: Settings) -> Result:
    """Run one simulation. The result has violations and other errors of the engine; nothing is raised."""
    with World(settings.seed, settings.faults) as world:
        life = _Life(world, settings)
        violation = None
        try:
            with watched(world.reached, world.ends_in_steps):
                life.live(settings.steps)
            life.finish()
        except model.Violation as broken:
            violation = str(broken)
        except Exception as error:
            violation = f"{type(error).__name__}: {error}"
        steps, history = world.scheduler.steps, tuple(world.history)
        return Result(settings, steps, violation, history, world.counts)


class _Life:
    """Starts, kills and suspends actors, and injects faults."""

    def __init__(self, world: World, settings: Settings) -> None:
        self._world = world
        self._settings = settings
        self._rng = random.Random(world.rng.random())
        self._lives: Counter[str] = Counter()
        self._names: dict[str, str] = {}
        self._has_admin = "admin" in settings.cast
        for role in settings.cast:
            for name in ROLES[role][1]:
                self._names[name] = role
                self._give_birth(name)

    def live(self, steps: int) -> None:
        world = self._world
        while world.scheduler.steps < steps:
            actor = world.scheduler.step()
            if actor is None:
                break
            if actor.finished:
                self._bury(actor)
            world.deliver_due()
            self._replace_the_dead()
            world.checker.look(world.clock.time_ms())
            if world.scheduler.steps % _AUDIT_EVERY == 0:
                world.checker.audit(world.clock.time_ms())
            if self._has_admin and self._rng.random() < world.faults.admin:
                self._act()
                self._replace_the_dead()

    def finish(self) -> None:
        """End the run: stop all actors, deliver every message, and let every deadline pass."""
        world = self._world
        world.scheduler.kill_all()
        world.deliver_everything()
        world.checker.look(world.clock.time_ms())
        world.clock.advance(60_000)
        world.nodes[0].housekeeping()
        self._ask_for_outcomes()
        world.checker.finish(world.clock.time_ms())
        world.counts["an assigned group is stable"] += world.checker.stable_groups
        world.counts["a group changes over"] += world.checker.beliefs.changes_over
        report = world.nodes[0].verify()
        if not report.ok:
            raise model.Violation(f"verify: {report.problems[0]}")

    def _ask_for_outcomes(self) -> None:
        """Check the outcome of every transaction, even if its producer never learned it."""
        world = self._world
        for record in world.ledger.transactions.values():
            try:
                outcome = world.nodes[0].outcome(record.token)
            except InvalidRequestError:
                if world.config.history_retention_ms < 0:
                    raise
                world.say(f"{record.key} is from before the history")
                world.counts["transactions from before the history"] += 1
                continue
            world.say(f"{record.key} is {outcome}")
            same = outcome == record.answer or (outcome, record.answer) == (NEVER, "aborted")
            if record.answer and not same:
                raise model.Violation(
                    f"{record.key}: the answer was {record.answer}, the outcome is {outcome}"
                )
            world.ledger.answered(record, outcome)

    def _bury(self, actor: Actor) -> None:
        if isinstance(actor.error, NodeCrashed):
            self._world.restart(actor.error.node)
        elif actor.error is not None and not isinstance(actor.error, EosdbError):
            raise actor.error
        else:
            self._world.say(f"{actor.name} ends ({type(actor.error).__name__})")
            self._world.counts[f"end of an actor: {type(actor.error).__name__}"] += 1

    def _replace_the_dead(self) -> None:
        alive = {actor.name.partition("@")[0] for actor in self._world.scheduler.actors}
        for name in self._names:
            if name not in alive:
                self._give_birth(name)

    def _give_birth(self, name: str) -> None:
        world = self._world
        self._lives[name] += 1
        node = self._rng.randrange(len(world.nodes))
        me = Me(name, self._lives[name], node, random.Random(self._rng.random()), count(1))
        role = ROLES[self._names[name]][0]

        def live() -> None:
            with contextlib.suppress(GivesUp):
                role(world, me)

        actor = world.scheduler.spawn(me.full_name, node, live)
        actor.wake_ms = world.clock.monotonic_ms()
        world.say(f"{me.full_name} begins on node {node}")

    # -- admin requests and faults --------------------------------------------------------------

    def _act(self) -> None:
        acts = (
            self._let_time_pass, self._let_time_pass, self._kill_somebody,
            self._kill_somebody, self._make_a_zombie, self._make_a_zombie,
            self._make_a_zombie, self._restart_a_node, self._keep_house, self._take_snapshot,
            self._truncate, self._truncate, self._rebuild, self._fence_somebody,
            self._let_an_intruder_ask, self._let_an_intruder_ask, self._let_an_intruder_ask,
        )  # fmt: skip
        act = self._rng.choice(acts)
        self._world.counts[act.__name__.strip("_").replace("_", " ")] += 1
        try:
            act()
        except NodeCrashed as crash:
            self._world.restart(crash.node)

    def _let_time_pass(self) -> None:
        ms = self._rng.choice((100, 1_000, 5_000, 20_000))
        self._world.say(f"{ms} ms pass")
        self._world.clock.advance(ms)

    def _somebody(self) -> Actor | None:
        actors = self._world.scheduler.actors
        return actors[self._rng.randrange(len(actors))] if actors else None

    def _kill_somebody(self) -> None:
        actor = self._somebody()
        if actor is not None:
            self._world.say(f"{actor.name} is killed")
            self._world.scheduler.kill(actor)

    def _make_a_zombie(self) -> None:
        """Suspend an actor for a long time, start its successor, and then resume the first actor."""
        actor = self._somebody()
        if actor is None:
            return
        name = actor.name.partition("@")[0]
        if sum(a.name.partition("@")[0] == name for a in self._world.scheduler.actors) > 2:
            return
        actor.suspended_until = self._world.scheduler.steps + self._rng.randint(20, 300)
        self._world.say(f"{actor.name} is suspended until step {actor.suspended_until}")
        self._give_birth(name)

    def _restart_a_node(self) -> None:
        self._world.restart(self._rng.randrange(len(self._world.nodes)))

    def _node(self) -> int:
        return self._rng.randrange(len(self._world.nodes))

    def _keep_house(self) -> None:
        self._world.say("housekeeping")
        done = self._world.nodes[self._node()].housekeeping()
        self._world.counts["events trimmed"] += done.trimmed_events

    def _take_snapshot(self) -> None:
        self._world.nodes[self._node()].take_snapshot()

    def _rebuild(self) -> None:
        self._world.say("rebuild")
        self._world.nodes[self._node()].rebuild()

    def _truncate(self) -> None:
        """Delete records of a partition, also within open transactions. Of the input, delete only records
        with committed results."""
        world = self._world
        partitions = world.checker.partitions.items()
        opened = [tp for tp, stored in partitions if stored.open and tp.topic != model.TABLE]
        if opened and self._rng.random() < 0.5:
            tp = self._rng.choice(opened)
            limit = world.nodes[0].broker.offsets(tp).log_end_offset
        elif self._rng.random() < 0.5:
            tp = values.TopicPartition(DATA, self._rng.randrange(TOPICS[DATA]))
            limit = world.nodes[0].broker.offsets(tp).log_end_offset
        else:
            tp = values.TopicPartition(model.INPUT, self._rng.randrange(TOPICS[model.INPUT]))
            limit = min(self._consumed_by(group, tp) for group in model.RESULTS.values())
        world.ask(self._node(), requests.DeleteRecords(tp, self._truncated_to(tp, limit)))

    def _let_an_intruder_ask(self) -> None:
        self._rng.choice(INTRUDERS)(self._world, self._rng, self._node())

    def _consumed_by(self, group: str, tp: values.TopicPartition) -> int:
        committed = self._world.nodes[0].broker.offset_fetch(group, [tp])
        return committed[tp].offset if tp in committed else 0

    def _truncated_to(self, tp: values.TopicPartition, limit: int) -> int:
        start = self._world.nodes[0].broker.offsets(tp).log_start_offset
        return max(start, limit if self._rng.random() < 0.3 else self._rng.randint(0, limit))

    def _fence_somebody(self) -> None:
        ids = [name for name, role in self._names.items() if role in ("transactional", "worker")]
        if ids:
            try:
                self._world.ask(self._node(), requests.InitProducerId(self._rng.choice(ids)))
            except EosdbError:
                return
