"""The processor with tables of its own that the crash tests kill: `python -m tests.crash.own_tables_worker
FILE`."""

from __future__ import annotations

import sys
from typing import Any, Final

import eosdb

SETTINGS: Final[dict[str, Any]] = {
    "group_id": "g",
    "transaction_size": 10,
    "max_attempts": 2,
    "retry_backoff_ms": 1,
    "retry_delays_ms": (100,),
    "dead_letter_topic": "dead",
}
TABLE: Final = "CREATE TABLE done (value INTEGER, topic TEXT, number INTEGER)"
ROW: Final = "INSERT INTO done VALUES (?, ?, ?)"


def is_bad(number: int) -> bool:
    return number % 10 == 7


def handle(record: eosdb.ConsumerRecord, tx: eosdb.UserTransaction) -> bytes:
    """A row and a result. One in ten fails always, with its row and a record written."""
    assert isinstance(record.value, bytes)
    number = int(record.value)
    tx.connection.exec_driver_sql(ROW, (number, record.topic, record.offset))
    if is_bad(number):
        tx.publish("out", b"never")
        raise ValueError("one in ten")
    return record.value


if __name__ == "__main__":
    with eosdb.connect(sys.argv[1], durability="normal") as opened:
        opened.processor("in", handle, "out", **SETTINGS).run(until_idle_ms=100)
