"""The request level: Kafka's requests under Kafka's names, as values for `ask` and as methods. All
clients go through it.

A request's arguments are validated; then it is authorised and routed to the log or the coordinator. Each
call is atomic, and durable (per `durability`) when it returns. Only a transactional append is not synced
by itself: the sync of the Prepare that decides its transaction covers it.
"""

from __future__ import annotations

from eosdb.broker.consumer_groups import ConsumerGroupRequests
from eosdb.broker.group_offsets import OffsetRequests
from eosdb.broker.membership import MembershipRequests
from eosdb.broker.produce import ProduceRequests
from eosdb.broker.reading import ReadRequests
from eosdb.broker.transactions import TransactionRequests
from eosdb.model.clock import Clock
from eosdb.model.metrics import Metrics


class Broker(
    TransactionRequests,
    ProduceRequests,
    ReadRequests,
    MembershipRequests,
    ConsumerGroupRequests,
    OffsetRequests,
):
    """Kafka's requests on one file. Threads may share it."""

    @property
    def clock(self) -> Clock:
        """The clock that requests take their times from."""
        return self._clock

    @property
    def transaction_version(self) -> int:
        """The highest transaction version that this broker supports."""
        return self._config.transaction_version

    @property
    def _request_metrics(self) -> Metrics:
        """The metrics of the requests made through this object."""
        return self._core.metrics
