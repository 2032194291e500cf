"""confluent-kafka's transactional producer (librdkafka) against a served file."""

from __future__ import annotations

import confluent_kafka as kafka

from eosdb.errors import Outcome
from tests.hunts import meanings
from tests.hunts.ledger import Operation
from tests.hunts.programs.working import BrokenError, Setting, work

_PATIENCE_S = 15.0


class Transactions:
    """Of one producer. Every seventh is aborted; what the client cannot repeat makes it anew."""

    is_atomic = True

    def __init__(self, setting: Setting) -> None:
        self._producer = kafka.Producer(
            {
                "bootstrap.servers": setting.address,
                "transactional.id": setting.name,
                "transaction.timeout.ms": 10_000,
                "message.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "on_delivery": lambda *_: None,
            }
        )
        self._producer.init_transactions(_PATIENCE_S)

    def store(self, operation: Operation, values: list[bytes]) -> Outcome:
        producer, is_ending = self._producer, False
        try:
            producer.begin_transaction()
            for place, value in zip(operation.places, values, strict=True):
                producer.produce(place.topic, value, partition=place.partition)
            if operation.number % 7 == 0:
                producer.abort_transaction(_PATIENCE_S)
                return "not written"
            producer.flush(_PATIENCE_S)
            is_ending = True
            return self._commit()
        except (kafka.KafkaException, BufferError) as error:
            raise BrokenError(
                meanings.of_confluent(error, committing=True) if is_ending else "not written"
            ) from error

    def _commit(self) -> Outcome:
        try:
            self._producer.commit_transaction(_PATIENCE_S)
        except kafka.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._producer.abort_transaction(_PATIENCE_S)
            return "not written"
        return "written"

    def close(self) -> None:
        """It has no call for that: the object goes, and with it its connections."""


if __name__ == "__main__":
    work(Transactions, (kafka.KafkaException,))
