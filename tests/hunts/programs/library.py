"""The library's producer: transactions with the offsets of a group, some of them aborted."""

from __future__ import annotations

import contextlib

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.errors import Outcome
from tests.hunts.ledger import Operation
from tests.hunts.programs.working import TOPIC, BrokenError, Setting, work

_HEADERS = [("n", b"7"), ("n", None)]


class Transactions:
    """Of one producer. Every seventh is aborted; an error makes client and database anew. Keys, headers and
    records without a value are for those that carry them on."""

    is_atomic = True

    def __init__(self, setting: Setting) -> None:
        self._db = eosdb.connect(setting.path)
        try:
            self._producer = self._db.producer(transactional_id=setting.name)
            self._producer.init_transactions()
        except BaseException:
            self._db.close()
            raise

    def store(self, operation: Operation, values: list[bytes]) -> Outcome:
        producer = self._producer
        is_ending = False
        try:
            producer.begin_transaction()
            number = operation.number
            key, headers = f"k{number}" if number % 5 else None, _HEADERS[: number % 3]
            for place, value in zip(operation.places, values, strict=True):
                producer.send(place.topic, value, key, partition=place.partition, headers=headers)
            if number % 3 == 0:
                producer.send(TOPIC, None, "gone", partition=0)
            at = {TopicPartition(TOPIC, 0): OffsetAndMetadata(operation.number)}
            producer.send_offsets_to_transaction(at, "places")
            if operation.number % 7 == 0:
                producer.abort_transaction()
                return "not written"
            is_ending = True
            producer.commit_transaction()
        except eosdb.EosdbError as error:
            # Before the end, nothing of a transaction is there to be read, and the next producer aborts it.
            raise BrokenError(error.outcome if is_ending else "not written") from error
        return "written"

    def close(self) -> None:
        with contextlib.suppress(eosdb.EosdbError):
            self._producer.close()
        with contextlib.suppress(eosdb.EosdbError):
            self._db.close()


if __name__ == "__main__":
    work(Transactions, (eosdb.EosdbError,))
