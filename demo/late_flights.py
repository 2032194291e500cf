"""Consume, process, produce: flights that left more than 15 minutes late go from `flights` to `delays`.

The offsets of what was read commit in the same transaction as what was written, so this program may be
killed at any instant and started again: each late flight is in `delays` exactly once.

    python demo/late_flights.py demo-output/flights.db
"""

from __future__ import annotations

import json
import sys

import eosdb

NAME = "late-flights"
LATE_MINUTES = 15


def main(path: str) -> int:
    """Work until everything that is there has been read. Returns how many records were read."""
    read = 0
    with (
        eosdb.connect(path, create=False) as db,
        db.producer(transactional_id=NAME, batch_size=1_000_000) as producer,
    ):
        # First the producer: taking its id ends whatever a killed run left open, offsets included.
        producer.init_transactions()
        with db.consumer(NAME, auto_offset_reset="earliest") as consumer:
            consumer.subscribe("flights")
            while records := consumer.poll(max_records=2_000):
                with producer.transaction():
                    for record in records:
                        flight = json.loads(record.value)
                        if (flight["dep_delay"] or 0) > LATE_MINUTES:
                            producer.send("delays", record.value, record.key)
                    producer.send_offsets_to_transaction(
                        consumer.position_offsets(), consumer.group_metadata()
                    )
                read += len(records)
    return read


if __name__ == "__main__":
    print(f"late_flights: {main(sys.argv[1])} records read", file=sys.stderr)
