"""confluent-kafka (librdkafka) against a served file: with transactions, and idempotent without them."""

from __future__ import annotations

import sys
from functools import partial

import confluent_kafka as kafka

from eosdb.errors import Outcome
from tests.trials.hunts import meanings
from tests.trials.hunts.ledger import Operation, Told
from tests.trials.hunts.programs.working import BrokenError, Setting, work

_PATIENCE_S = 15.0


def _settings(setting: Setting) -> dict[str, object]:
    return {
        "bootstrap.servers": setting.address,
        "message.timeout.ms": 10_000,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }


class Transactions:
    """Of one producer. Every seventh is aborted; what the client cannot repeat makes it anew."""

    is_atomic = True

    def __init__(self, setting: Setting) -> None:
        self._producer = kafka.Producer(
            {
                **_settings(setting),
                "transactional.id": setting.name,
                "transaction.timeout.ms": 10_000,
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


class Idempotent:
    """Records that are sent together; the same producer goes on after an error that is not fatal."""

    is_atomic = False

    def __init__(self, setting: Setting) -> None:
        self._producer = kafka.Producer({**_settings(setting), "enable.idempotence": True})

    def store(self, operation: Operation, values: list[bytes]) -> Told:
        told: list[Outcome] = ["unknown"] * len(values)
        is_fatal = False

        def learn(index: int, error: kafka.KafkaError | None, _: object) -> None:
            nonlocal is_fatal
            told[index] = "written" if error is None else meanings.of_confluent(error)
            is_fatal |= error is not None and error.fatal()

        for index, (place, value) in enumerate(zip(operation.places, values, strict=True)):
            try:
                self._producer.produce(
                    place.topic, value, partition=place.partition, on_delivery=partial(learn, index)
                )
            except (kafka.KafkaException, BufferError) as error:
                told[index] = meanings.of_confluent(error)
                is_fatal = True
        if self._producer.flush(_PATIENCE_S) or is_fatal:
            raise BrokenError(told)
        return told

    def close(self) -> None:
        """As above."""
        self._producer.purge()


if __name__ == "__main__":
    work(Idempotent if sys.argv[2].endswith("plain") else Transactions, (kafka.KafkaException,))
