"""`process` until told to stop, a result for each record: with rows in a table of its own, one by one or in
batches; or many at once.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from functools import partial
from typing import Any, Final

import eosdb
from tests.trials.hunts.programs.working import CONFIG, TOPIC, Setting, Stopping

TABLE: Final = "done"
OWN_TABLE: Final = f"CREATE TABLE {TABLE} (part INTEGER, place INTEGER, PRIMARY KEY (part, place))"


BATCHES: Final = "process-batches"
MANY: Final = "process-many"
"""Names of actors; each other name has one record after the other."""


def handle(record: eosdb.ConsumerRecord, tx: eosdb.UserTransaction) -> eosdb.ProducerRecord:
    row = record.partition, record.offset
    tx.connection.exec_driver_sql(f"INSERT INTO {TABLE} VALUES (?, ?)", row)
    return _result(record)


def handle_batch(
    records: list[eosdb.ConsumerRecord], tx: eosdb.UserTransaction
) -> list[eosdb.ProducerRecord]:
    """One record in fifty fails at its first attempt, and is named or not."""
    results = []
    for index, record in enumerate(records):
        if len(records) > 1 and random.random() < 0.02:
            error = ValueError("at first")
            raise eosdb.BatchFailed(index, error) if random.random() < 0.5 else error
        results.append(handle(record, tx))
    return results


def handle_slowly(record: eosdb.ConsumerRecord) -> eosdb.ProducerRecord:
    time.sleep(random.choice((0, 0, 0.001, 0.02)))
    return _result(record)


WAYS: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    BATCHES: (handle_batch, {"batch": True}),
    MANY: (handle_slowly, {"workers": 4}),
}
"""The handler and its settings, by the actor's name."""


def _result(record: eosdb.ConsumerRecord) -> eosdb.ProducerRecord:
    return eosdb.ProducerRecord(
        value=record.value,
        key=record.key,
        partition=record.partition,
        headers=record.headers,
        timestamp=record.timestamp,
    )


def _end(stopping: Stopping, processor: eosdb.Processor, *_: object) -> None:
    """Also for the one that comes after this one has failed."""
    stopping.is_set = True
    processor.stop()


def main() -> None:
    setting, stopping = Setting.from_arguments(), Stopping()
    handler, settings = WAYS.get(setting.name, (handle, {}))
    while not stopping.is_set:
        try:
            with eosdb.connect(setting.path, config=CONFIG) as db:
                processor = db.processor(
                    TOPIC,
                    handler,
                    setting.name,
                    group_id=setting.name,
                    transaction_size=10,
                    max_attempts=2,
                    consumer=setting.member,
                    **settings,
                )
                # Before `run` heeds signals itself: one that came earlier is not forgotten.
                signal.signal(signal.SIGTERM, partial(_end, stopping, processor))
                if not stopping.is_set:
                    processor.run()
            return  # By a signal.
        except eosdb.EosdbError as error:
            print(f"again: {type(error).__name__}: {error}", file=sys.stderr)
            time.sleep(0.1)


if __name__ == "__main__":
    main()
