"""A transport that answers as a test has planned it, and is honest otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import eosdb
from eosdb import ProduceResult, TopicPartition, errors
from eosdb.client.transport import DirectTransport
from eosdb.errors import EosdbError
from eosdb.model.requests import Request
from eosdb.model.threads import Fate

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

    def ask(
        self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
    ) -> list[Any]:
        (request,) = requests
        if not self.planned or self.planned[0][0] != request.name:
            return super().ask(requests, sync=sync, fate=fate)
        _, error = self.planned.pop(0)
        if self.reaches_the_broker:
            super().ask(requests, sync=sync, fate=fate)
        if request.name == "produce" and isinstance(error, errors.ApiError):
            return [{TP: ProduceResult(error=error)}]
        return [error]
