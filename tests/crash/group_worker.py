"""One of the copies of a processor that the crash tests kill:
`python -m tests.crash.group_worker FILE`."""

from __future__ import annotations

import sys

import eosdb


def handle(record: eosdb.ConsumerRecord) -> bytes:
    assert isinstance(record.value, bytes)
    return record.value


def run(path: str) -> None:
    with eosdb.connect(path, durability="normal") as db:
        processor = db.processor(
            "in",
            handle,
            "out",
            group_id="g",
            transaction_size=50,
            transaction_interval_ms=20,
        )
        processor.run(until_idle_ms=300)


if __name__ == "__main__":
    run(sys.argv[1])
