"""The process that is killed, or waits, with a group's offsets in a transaction that it has not ended:
`python -m tests.crash.open_transaction_worker FILE processor|by-hand dies|waits`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, Final
from unittest.mock import patch

import eosdb
from eosdb.client.producer.producer import Producer

LONG_MS: Final = 300_000
"""Sessions and transactions last longer than any test waits."""
SHORT_MS: Final = 6_000
SETTINGS: Final[dict[str, Any]] = {
    "group_id": "work",
    "consumer": {"session_timeout_ms": LONG_MS},
    "producer": {"transaction_timeout_ms": LONG_MS},
}


def handle(record: eosdb.ConsumerRecord) -> bytes:
    assert isinstance(record.value, bytes)
    return record.value


def by_hand(db: eosdb.Database) -> None:
    """The loop without the loop: its transaction is known by its time-out alone."""
    consumer = db.consumer("work", auto_offset_reset="earliest", session_timeout_ms=LONG_MS)
    producer = db.producer(transactional_id="by-hand", transaction_timeout_ms=SHORT_MS)
    producer.init_transactions()
    consumer.subscribe("in")
    while not (records := consumer.poll(1_000)):
        pass
    producer.begin_transaction()
    for record in records:
        producer.send("out", record.value)
    producer.flush()
    producer.send_offsets_to_transaction(consumer.position_offsets(), consumer.group_metadata())
    producer.commit_transaction()


def instead_of_the_commit(producer: Producer, *offsets: Any) -> None:
    if offsets:
        producer.send_offsets_to_transaction(*offsets)
    if "dies" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    print("waits", flush=True)
    time.sleep(LONG_MS / 1_000)


def main() -> None:
    path, kind = sys.argv[1:3]
    with (
        eosdb.connect(path) as db,
        patch.object(Producer, "commit_transaction", instead_of_the_commit),
        patch.object(Producer, "_commit_with", instead_of_the_commit),
    ):
        if kind == "by-hand":
            by_hand(db)
        else:
            db.processor("in", handle, "out", **SETTINGS).run()


if __name__ == "__main__":
    main()
