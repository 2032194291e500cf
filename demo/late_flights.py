"""Consume, process, produce: flights that left more than 15 minutes late go from `flights` to `delays`.

The offsets of what was read commit in the same transaction as what was written, so this program may be
killed at any instant and started again: each late flight is in `delays` exactly once. It is a static
member of its group, so a copy that is started again takes its own place at once.

    python demo/late_flights.py demo-output/flights.db [IDLE_MS]
"""

from __future__ import annotations

import json
import sys

import eosdb

NAME = "late-flights"
LATE_MINUTES = 15


def late(record: eosdb.ConsumerRecord) -> bytes | None:
    """The flight, if it left late."""
    assert isinstance(record.value, bytes)
    flight = json.loads(record.value)
    return record.value if (flight["dep_delay"] or 0) > LATE_MINUTES else None


def main(path: str, idle_ms: int = 200) -> int:
    """Work until nothing has come for so long. Returns how many flights were looked at."""
    report = eosdb.process(
        path,
        "flights",
        late,
        "delays",
        group_id=NAME,
        transactional_id=NAME,
        until_idle_ms=idle_ms,
        transaction_size=2_000,
        consumer={"group_instance_id": "1"},
        producer={"batch_size": 1_000_000},
    )
    return report.processed


if __name__ == "__main__":
    print(
        f"late_flights: {main(sys.argv[1], *map(int, sys.argv[2:]))} flights looked at",
        file=sys.stderr,
    )
