"""What every request needs: `Core` has the parts of an open file, `Rules` the settings and rights.

A step is the function that answers requests of one type (decisions/0081). It gets the core and the request.
A step that only reads returns the answer. A step that writes returns a `Write`, before any lock is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from sqlite3 import Connection
from typing import Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeVar

from eosdb.coordinator.authorizer import Authorizer, Source
from eosdb.coordinator.coordinator import TransactionCoordinator
from eosdb.errors import EosdbError
from eosdb.events.kinds import Event, TopicConfigAltered
from eosdb.log import partition_rows, retention, topics
from eosdb.log.attempts import Attempts
from eosdb.model.clock import Clock
from eosdb.model.config import BrokerConfig
from eosdb.model.metrics import Metrics
from eosdb.model.notices import catalog
from eosdb.model.requests import AlterTopicConfig, Request
from eosdb.model.validation import check_transaction_version
from eosdb.model.values import TopicPartition
from eosdb.store.store import Store
from eosdb.store.writing.unit import Unit

A = TypeVar("A")
P = ParamSpec("P")
E = TypeVar("E", bound=Event)
R = TypeVar("R", bound=Request[Any])
S = TypeVar("S", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Rules:
    """What a request needs besides the file: the clock, the settings and the rights."""

    clock: Clock
    config: BrokerConfig
    authorizer: Authorizer

    def ensure_topic(self, unit: Unit, topic: str) -> None:
        """Create the topic with the broker's defaults unless it exists."""
        if not partition_rows.exists(unit, TopicPartition(topic, 0)):
            self.authorizer.check_create_topic(unit, topic)
            now = self.clock.time_ms()
            unit.record(topics.checked_creation(unit, topic, None, None, self.config, now))

    def altered(self, source: Source, request: AlterTopicConfig) -> list[TopicConfigAltered]:
        """The event that changes the settings; empty if nothing changes."""
        name = request.topic
        self.authorizer.check(source, "alter_configs", "topic", name)
        if request.topic_id is not None and request.topic_id not in topics.names(source):
            raise topics.unknown_id(request.topic_id)
        now, changes = self.clock.time_ms(), list(request.changes)
        found = topics.checked_config(source, name, changes, self.config, now, anew=request.anew)
        return [] if found is None else [found]

    def may_transact(self, unit: Unit, transactional_id: str) -> None:
        self.authorizer.check(unit, "write", "transactional_id", transactional_id)

    def version(self, requested: int | None) -> int:
        """The transaction version of a request: the client's, or the highest supported."""
        return check_transaction_version(requested, self.config.transaction_version)


@dataclass(frozen=True, slots=True)
class Core(Rules):
    """The parts of an open file: `Database` creates them once, and all requests share them."""

    store: Store
    coordinator: TransactionCoordinator
    metrics: Metrics
    damage: set[str] = field(default_factory=set)
    """Messages of the damage that has already been logged."""
    attempts: Attempts = field(default_factory=Attempts)
    """Rejected batches that later batches of their producer must not overtake."""

    @contextmanager
    def reading(self, operation: str, resource: str, name: str) -> Iterator[Connection]:
        """Open a snapshot if the principal has this right. Raises the authorization errors."""
        with self.store.read() as connection:
            self.authorizer.check(connection, operation, resource, name)
            yield connection

    def change(
        self, decide: Callable[[Source], Iterable[E]], *, validate_only: bool = False
    ) -> list[E]:
        """Record the events that `decide` returns after its checks, and return them. With `validate_only`
        only run the checks."""
        if validate_only:
            with self.store.read() as connection:
                return list(decide(connection))

        def run(unit: Unit) -> list[E]:
            events = list(decide(unit))
            for event in events:
                unit.record(event)
            return events

        return self.coordinator.write(run)

    def delete_rows(self, partition_ids: Sequence[int]) -> None:
        """Delete records that a commit has put below the log start. If this fails, housekeeping deletes
        them."""
        try:
            for _ in retention.delete_in_parts(
                partial(self.store.write, sync=False), partition_ids
            ):
                pass
        except EosdbError as error:
            catalog.HOUSEKEEPING_LATER.say(file=self.store.path, cause=error, error=error)

    def not_synced(self, apply: Callable[[Unit], A | EosdbError]) -> Write[A]:
        """A write of the coordinator without an fsync. A power cut may undo it until a later write is
        synced."""
        self.coordinator.leadership.ensure_elected()
        return Write(apply, sync=False)


def face(ask: Callable[Concatenate[Core, P], A]) -> Callable[Concatenate[Any, P], A]:
    """Make a method, of a class with a `_core`, from a function of the core."""

    @wraps(ask)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> A:
        return ask(self._core, *args, **kwargs)

    return method


class Write(NamedTuple, Generic[A]):
    """A request that is checked and encoded, but not yet carried out in a unit."""

    apply: Callable[[Unit], A | EosdbError]
    """Carries the request out in a unit, completely, or raises. May run more than once, and in another
    thread. An error that it returns is raised after the commit."""
    sync: bool = True
    alone: Callable[[], A] | None = None
    """Carries the request out in several units, where one may not suffice. None: `apply` does it in one."""
    then: Callable[[A], None] | None = None
    """Called with the answer after the commit."""


STEPS: Final[dict[type[Request[Any]], Callable[[Core, Any], Any]]] = {}
"""The step for each type of request; complete once `eosdb.broker.broker` has been imported."""


Step = Callable[[Core, R], A]


def answers(kind: type[Request[A]]) -> Callable[[Step[R, A]], Step[R, A]]:
    """Decorator of the step that answers this type of request."""
    return partial(_register, kind)


def prepares(kind: type[Request[A]]) -> Callable[[Step[R, Write[A]]], Step[R, Write[A]]]:
    """Decorator of the step that prepares the write for this type of request."""
    return partial(_register, kind)


def _register(kind: type[Request[Any]], step: S) -> S:
    assert kind not in STEPS, kind
    STEPS[kind] = step
    return step
