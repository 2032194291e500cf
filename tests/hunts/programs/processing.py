"""`process` with a table of its own, until told to stop: a row and a result for each record."""

from __future__ import annotations

import signal
import sys
import time
from functools import partial
from typing import Final

import eosdb
from tests.hunts.programs.working import CONFIG, TOPIC, Setting, Stopping

TABLE: Final = "done"
OWN_TABLE: Final = f"CREATE TABLE {TABLE} (part INTEGER, place INTEGER, PRIMARY KEY (part, place))"


def handle(record: eosdb.ConsumerRecord, tx: eosdb.UserTransaction) -> eosdb.ProducerRecord:
    row = record.partition, record.offset
    tx.connection.exec_driver_sql(f"INSERT INTO {TABLE} VALUES (?, ?)", row)
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
    while not stopping.is_set:
        try:
            with eosdb.connect(setting.path, config=CONFIG) as db:
                processor = db.processor(
                    TOPIC,
                    handle,
                    setting.name,
                    group_id=setting.name,
                    transaction_size=10,
                    max_attempts=2,
                    consumer=setting.member,
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
