"""Flights that arrive while others are being processed: a transaction every quarter of a second until the
standard input ends, then the rest at once, of which there is always some. Every tenth transaction is
aborted and sent again, as after an error of the sender: readers of committed records see each flight once.

    python demo/arriving_flights.py demo-output/flights.db demo-output/arriving.ndjson 500
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Iterator
from pathlib import Path

import eosdb

NAME = "arriving-flights"
PAUSE_S = 0.25
ABORTED = 10
"""Every how manieth transaction is."""


def main(path: str, source: str, size: int) -> None:
    lines = Path(source).read_bytes().splitlines()
    with eosdb.connect(path) as db, db.producer(transactional_id=NAME) as producer:
        producer.init_transactions()
        for number, first in enumerate(range(0, len(lines), size), start=1):
            flights = lines[first : first + size]
            wait(None if first + size >= len(lines) else PAUSE_S)
            if number % ABORTED == 0:
                producer.begin_transaction()
                producer.send_many("flights", keyed(flights))
                producer.flush()
                producer.abort_transaction()
            with producer.transaction():
                producer.send_many("flights", keyed(flights))


def wait(seconds: float | None) -> None:
    """At most so long for the end of the standard input."""
    select.select([sys.stdin], [], [], seconds)


def keyed(flights: list[bytes]) -> Iterator[tuple[str | None, bytes]]:
    return ((json.loads(flight)["tailnum"], flight) for flight in flights)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
