"""What a handler of requests is made of; which requests those are, its subclasses say."""

from __future__ import annotations

from eosdb.clock import Clock
from eosdb.config import BrokerConfig
from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.coordinator import TransactionCoordinator
from eosdb.store.store import Store


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
