"""The base class of all request handlers, and the parts of an open file that they share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

from eosdb.coordinator.authorizer import Authorizer, Source
from eosdb.coordinator.coordinator import TransactionCoordinator
from eosdb.errors import EosdbError
from eosdb.events.kinds import TopicConfigAltered
from eosdb.log import partition_rows, retention, topics
from eosdb.log.overtaking import Attempts
from eosdb.model.clock import Clock
from eosdb.model.config import BrokerConfig
from eosdb.model.metrics import Metrics
from eosdb.model.notices import catalog
from eosdb.model.requests import AlterTopicConfig
from eosdb.model.validation import check_text, check_transaction_version
from eosdb.model.values import TopicPartition
from eosdb.store.store import Store
from eosdb.store.writing.unit import Unit


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for a request, besides those in the file."""

    clock: Clock
    config: BrokerConfig
    authorizer: Authorizer

    def ensure_topic(self, unit: Unit, topic: str) -> None:
        """Create the topic with the broker's defaults unless it exists."""
        if not partition_rows.exists(unit, TopicPartition(topic, 0)):
            self.authorizer.check_create_topic(unit, topic)
            now = self.clock.time_ms()
            unit.record(topics.checked_creation(unit, topic, None, None, self.config, now))

    def altered(self, source: Source, request: AlterTopicConfig) -> TopicConfigAltered | None:
        """The event that changes the settings; None if nothing changes."""
        name = request.topic
        self.authorizer.check(source, "alter_configs", "topic", name)
        if request.topic_id is not None and request.topic_id not in topics.names(source):
            raise topics.unknown_id(request.topic_id)
        now, changes = self.clock.time_ms(), list(request.changes)
        return topics.checked_config(source, name, changes, self.config, now, anew=request.anew)


@dataclass(frozen=True, slots=True)
class Core(Rules):
    """The parts of an open file: `Database` creates them once, and all its request handlers share them."""

    store: Store
    coordinator: TransactionCoordinator
    metrics: Metrics
    damage: set[str] = field(default_factory=set)
    """Messages of the damage that has already been logged."""
    attempts: Attempts = field(default_factory=Attempts)
    """Rejected batches that later batches of their producer must not overtake."""


class RequestHandler:
    """Reads from the store, writes through the coordinator, checks rights. Threads may share it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._store = core.store
        self._coordinator = core.coordinator
        self._clock = core.clock
        self._config = core.config
        self._authorizer = core.authorizer

    def _delete_rows(self, partition_ids: Sequence[int]) -> None:
        """Delete the rows that a commit gave up. If that fails, housekeeping does it later."""
        try:
            retention.delete_all_rows(
                functools.partial(self._store.write, sync=False), partition_ids
            )
        except EosdbError as error:
            catalog.HOUSEKEEPING_LATER.say(file=self._store.path, cause=error, error=error)

    def _authorized_operations(self, resource_type: str, name: str) -> frozenset[str]:
        """The operations that the principal may perform on the topic, group, transactional_id or cluster
        (KIP-430).

        Raises InvalidRequestError for another type.
        """
        check_text("name", name)
        with self._store.read() as connection:
            return self._authorizer.operations(connection, resource_type, name)

    def _may_transact(self, unit: Unit, transactional_id: str) -> None:
        self._authorizer.check(unit, "write", "transactional_id", transactional_id)

    def _version(self, requested: int | None) -> int:
        """The transaction version of a request: the client's, or the highest supported."""
        return check_transaction_version(requested, self._config.transaction_version)
