"""The programs of a pipeline of flights: feed `in`, transform `in` to `out`, collect `out` into `seen`.

    python -m tests.pipeline.worker FILE ROLE NAME

Each goes on until SIGTERM; then it says its metrics, as JSON. Whatever else ends it is a failure.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import eosdb
from eosdb.client.consumer.settings import ConsumerConfig

CONFIG = eosdb.BrokerConfig(group_min_session_timeout_ms=100)
SESSION_MS = 2_000
"""Much more than a heartbeat takes on a machine that has other things to do, too."""
TRANSACTION_MS = 5_000
DEAD_LETTERS = "dead"
CONSUMER: ConsumerConfig = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 200}
FLIGHTS_FILE = "flights.ndjson"
PAUSE_FILE, PAUSED_FILE = "pause", "paused"
"""A transformer that finds the first beside the database renames it to the second, and stops itself, again
and again while that is there."""


def result(value: bytes) -> bytes:
    """What a numbered flight becomes. Raises ValueError for one in a hundred."""
    number, _, line = value.partition(b" ")
    if number.endswith(b"13"):
        raise ValueError(f"{number!r} is unlucky")
    flight = json.loads(line)
    late = (flight["dep_delay"] or 0) > 15
    return b"%s %s %s" % (number, flight["carrier"].encode(), b"late" if late else b"in time")


def connect(path: str | Path) -> eosdb.Database:
    return eosdb.connect(path, durability="normal", config=CONFIG)


def feed(db: eosdb.Database, name: str) -> dict[str, float]:
    """One flight after the other, numbered, from where the last life ended, in transactions."""
    flights = Path(db.path).with_name(FLIGHTS_FILE).read_text().splitlines()
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    producer = db.producer(transactional_id=name)
    producer.init_transactions()
    last = "SELECT count(*) FROM committed_records WHERE topic = 'in' AND transactional_id = ?"
    ((number,),) = db.query(last, (name,)).rows
    while not stopping:
        with producer.transaction():
            for _ in range(10):
                producer.send(
                    "in", f"{name}:{number} {flights[number % len(flights)]}", key=f"{number}"
                )
                number += 1
        time.sleep(0.01)
    producer.close()
    return producer.metrics()


def transform(db: eosdb.Database, name: str) -> dict[str, float]:
    """What became of each flight; one in a hundred cannot be told, and is a dead letter."""
    pause = Path(db.path).with_name(PAUSE_FILE)

    def handle(record: eosdb.ConsumerRecord) -> eosdb.ProducerRecord:
        if pause.exists():
            paused = pause.rename(pause.with_name(PAUSED_FILE))
            while paused.exists():
                print("paused", flush=True)
                os.kill(os.getpid(), signal.SIGSTOP)
        assert isinstance(record.value, bytes)
        return eosdb.ProducerRecord(value=result(record.value), key=record.key)

    processor = db.processor(
        "in",
        handle,
        "out",
        group_id="transform",
        transactional_id="transform",
        transaction_size=50,
        max_attempts=2,
        retry_backoff_ms=1,
        dead_letter_topic=DEAD_LETTERS,
        consumer={**CONSUMER, "client_id": name},
        producer={"transaction_timeout_ms": TRANSACTION_MS},
    )
    return processor.run().metrics


def collect(db: eosdb.Database, name: str) -> dict[str, float]:
    processor = db.processor(
        "out",
        lambda record: eosdb.ProducerRecord(value=record.value, key=record.key),
        "seen",
        group_id="collect",
        transactional_id="collect",
        transaction_size=100,
        consumer={**CONSUMER, "client_id": name},
        producer={"transaction_timeout_ms": TRANSACTION_MS},
    )
    return processor.run().metrics


ROLES = {"feed": feed, "transform": transform, "collect": collect}

if __name__ == "__main__":
    with connect(sys.argv[1]) as opened:
        print(json.dumps(ROLES[sys.argv[2]](opened, sys.argv[3])), flush=True)
