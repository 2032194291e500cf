"""kafka-python against a served file: its transactions, and its plain idempotent producer."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any

import kafka
import kafka.errors

from eosdb.errors import Outcome
from tests.trials.hunts import meanings
from tests.trials.hunts.ledger import Operation, Told
from tests.trials.hunts.programs.working import BrokenError, Setting, work

_PATIENCE_MS = 15_000
_SETTINGS = {
    "request_timeout_ms": 5_000,
    "delivery_timeout_ms": 10_000,
    "max_block_ms": _PATIENCE_MS,
    "reconnect_backoff_max_ms": 200,
}


class Producing:
    """A producer, and how it is closed."""

    def __init__(self, setting: Setting, **settings: object) -> None:
        clients: Any = kafka
        self._producer = clients.KafkaProducer(
            bootstrap_servers=setting.address, **_SETTINGS, **settings
        )

    def close(self) -> None:
        with contextlib.suppress(kafka.errors.KafkaError):
            self._producer.close(timeout=0)


class Transactions(Producing):
    """Every seventh is aborted; an error makes the producer anew."""

    is_atomic = True

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, transactional_id=setting.name, transaction_timeout_ms=10_000)
        try:
            self._producer.init_transactions()
        except BaseException:
            self.close()
            raise

    def store(self, operation: Operation, values: list[bytes]) -> Told:
        producer, is_ending = self._producer, False
        try:
            producer.begin_transaction()
            futures = [
                producer.send(place.topic, value, partition=place.partition)
                for place, value in zip(operation.places, values, strict=True)
            ]
            if operation.number % 7 == 0:
                producer.abort_transaction()
                return "not written"
            is_ending = True
            producer.commit_transaction()
            # It returns, too, where the transaction's time was over and its records were refused.
            for future in futures:
                future.get(0)
        except kafka.errors.KafkaError as error:
            raise BrokenError(
                meanings.of_kafka_python(error, committing=True) if is_ending else "not written"
            ) from error
        return "written"


class Idempotent(Producing):
    """Records one by one; an error of any makes the producer anew."""

    is_atomic = False

    def store(self, operation: Operation, values: list[bytes]) -> Told:
        futures: list[Any] = []
        told: list[Outcome] = []
        for place, value in zip(operation.places, values, strict=True):
            try:
                futures.append(self._producer.send(place.topic, value, partition=place.partition))
            except kafka.errors.KafkaError as error:
                futures.append(error)
        for future in futures:
            try:
                if isinstance(future, Exception):
                    raise future
                future.get(_PATIENCE_MS / 1000)
                told.append("written")
            except kafka.errors.KafkaError as error:
                told.append(meanings.of_kafka_python(error))
        if {*told} != {"written"}:
            raise BrokenError(told)
        return told


if __name__ == "__main__":
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    kind = Idempotent if sys.argv[2].endswith("plain") else Transactions
    work(kind, (kafka.errors.KafkaError,))
