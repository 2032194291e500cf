"""Gets a producer's id and epoch by InitProducerId, when they are first needed."""

from __future__ import annotations

from eosdb.client.producer.coordinator_calls import CoordinatorCall, CoordinatorCalls
from eosdb.client.producer.settings import ProducerSettings
from eosdb.client.producer.state import ClientState, TransactionManager
from eosdb.errors import EosdbError
from eosdb.model.requests import InitProducerId
from eosdb.model.values import ProducerIdAndEpoch


class IdentityRequest:
    """Requests and holds the identity of one producer."""

    def __init__(
        self, settings: ProducerSettings, manager: TransactionManager, coordinator: CoordinatorCalls
    ) -> None:
        self._settings = settings
        self._manager = manager
        self._coordinator = coordinator
        self._asked: CoordinatorCall[ProducerIdAndEpoch] | None = None

    def current(self, now_ms: int) -> tuple[ProducerIdAndEpoch | None, EosdbError | None]:
        """Return the identity, or the error if the request was refused for good. A producer without
        transactions requests a missing one."""
        manager, error = self._manager, None
        if manager.identity is None and manager.transactional_id is None:
            if manager.state is ClientState.READY:
                manager.transition(ClientState.UNINITIALIZED)  # The epochs are used up.
            if self._asked is None:
                self._asked = self.ask()
                self._coordinator.run(now_ms)
            if self._asked.done:
                asked, self._asked = self._asked, None
                error = asked.error
        return manager.identity, error

    def ask(self) -> CoordinatorCall[ProducerIdAndEpoch]:
        manager, settings = self._manager, self._settings
        if (
            manager.state is not ClientState.INITIALIZING
        ):  # An interrupt may have prevented the request.
            manager.transition(ClientState.INITIALIZING)
        expected = manager.identity if manager.needs_new_epoch else None

        def given(identity: ProducerIdAndEpoch) -> None:
            if manager.state is ClientState.INITIALIZING:
                manager.ended(identity)

        return self._coordinator.enqueue(
            InitProducerId(
                settings.transactional_id,
                settings.transaction_timeout_ms,
                *(expected or (-1, -1)),
            ),
            given,
        )
