"""What publishing costs: the first snapshot of a file, the next ones after some growth, and fetching them,
to and from a local folder in place of object storage. Prints bytes, objects and seconds.

    python -m benchmarks.publishing [--megabytes 300]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.integrations import publishing

PARTITIONS = 4
STORED = 255
"""Bytes that a record of 190 bytes takes in the file."""


def grow(db: eosdb.Database, megabytes: float, rng: random.Random) -> None:
    for _ in range(round(megabytes * 1e6 / STORED / PARTITIONS / 500) or 1):
        for partition in range(PARTITIONS):
            records = [
                Record(key=b"device-%d" % rng.randrange(1000), value=rng.randbytes(180))
                for _ in range(500)
            ]
            db.broker.append(TopicPartition("t", partition), RecordBatch(records))


def timed(name: str, work: Callable[[], object]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    took = f"{time.perf_counter() - wall:.1f} s, {time.process_time() - cpu:.1f} s of CPU"
    if isinstance(found, eosdb.PublishReport):
        sent = f"{found.sent_bytes / 1e6:.1f} of {found.size / 1e6:.1f} MB"
        took += f"; {sent} in {found.sent_objects} chunks sent"
    print(f"{name}: {took}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=300)
    size = parser.parse_args().megabytes
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        url = f"file://{folder}/published"
        cache = publishing.Cache(f"{folder}/cache")
        with eosdb.connect(Path(folder) / "device.db", durability="off") as db:
            db.admin.create_topic("t", partitions=PARTITIONS)
            grow(db, size, rng)
            timed("first publish", lambda: db.publish_copy(url))
            timed("nothing new", lambda: db.publish_copy(url))
            timed("first fetch", lambda: publishing.fetch(url, cache=cache))
            for growth in (10, 0.5, 0.5, 0.5):
                grow(db, growth, rng)
                timed(f"publish after {growth} MB", lambda: db.publish_copy(url))
                timed(f"fetch after {growth} MB", lambda: publishing.fetch(url, cache=cache))


if __name__ == "__main__":
    main()
