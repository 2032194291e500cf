"""What a handler of requests is made of; which requests those are, its subclasses say."""

from __future__ import annotations

from eosdb.clock import Clock
from eosdb.config import BrokerConfig
from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.coordinator import TransactionCoordinator
from eosdb.log import partition_rows, topics
from eosdb.model.values import TopicPartition
from eosdb.store.store import Store
from eosdb.store.writing.unit import Unit


class RequestHandler:
    """Reads from the store, writes through the coordinator, asks the authorizer. Threads may share it."""

    def __init__(
        self,
        store: Store,
        coordinator: TransactionCoordinator,
        clock: Clock,
        config: BrokerConfig,
        authorizer: Authorizer,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._clock = clock
        self._config = config
        self._authorizer = authorizer

    def ensure_topic(self, unit: Unit, topic: str) -> None:
        """Make the topic with the broker's defaults unless it exists."""
        if not partition_rows.exists(unit, TopicPartition(topic, 0)):
            self._authorizer.check(unit, "create", "topic", topic)
            topics.create(unit, topic, None, None, self._config, self._clock.time_ms())
