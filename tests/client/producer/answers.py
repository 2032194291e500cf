"""A transport that answers as a test has planned it, and is honest otherwise."""

from __future__ import annotations

from typing import Any

import eosdb
from eosdb import ProduceResult, TopicPartition, errors
from eosdb.client.transport import DirectTransport, Exchange, T
from eosdb.errors import EosdbError
from eosdb.model.requests import Request

TP = TopicPartition("t", 0)


def transactional(db: eosdb.Database, name: str = "a", **config: Any) -> eosdb.Producer:
    producer = db.producer(transactional_id=name, **config)
    producer.init_transactions()
    return producer


class Answers(DirectTransport):
    """Answers the next request of a kind with an error, instead of asking the broker, or although it has
    been asked."""

    def __init__(self, db: eosdb.Database, *planned: tuple[str, EosdbError]) -> None:
        super().__init__(db.broker)
        self.planned = list(planned)
        self.reaches_the_broker = False

    def submit(self, request: Request[T]) -> Exchange[T]:
        if not self.planned or self.planned[0][0] != request.name:
            return super().submit(request)
        _, error = self.planned.pop(0)
        if self.reaches_the_broker:
            super().submit(request)
        exchange = Exchange[T]()
        if request.name == "produce" and isinstance(error, errors.ApiError):
            exchange._answer = {TP: ProduceResult(error=error)}  # type: ignore[assignment]
            exchange.done = True
        else:
            exchange.fail(error)
        return exchange
