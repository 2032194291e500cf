"""The processor that the crash tests kill: `python -m tests.crash.processing_worker FILE`."""

from __future__ import annotations

import sys
from typing import Any, Final

import eosdb

SETTINGS: Final[dict[str, Any]] = {
    "group_id": "g",
    "transactional_id": "tx",
    "transaction_size": 500,
    "transaction_interval_ms": 50,
    "max_attempts": 1,
    "retry_delays_ms": (100,),
    "dead_letter_topic": "dead",
    # Killed and started again, it takes its own place and need not wait for a session to end.
    "consumer": {"group_instance_id": "one"},
}


def handle(record: eosdb.ConsumerRecord) -> bytes:
    """One in a hundred fails, always."""
    assert isinstance(record.value, bytes)
    if int(record.value) % 100 == 7:
        raise ValueError("one in a hundred")
    return record.value


if __name__ == "__main__":
    with eosdb.connect(sys.argv[1], durability="normal") as opened:
        opened.processor("in", handle, "out", **SETTINGS).run(until_idle_ms=200)
