"""A program whose disk is watched: publishes by `eosdb.join` on a connection of its own, and notes what has
been acknowledged, as disk_worker.py does.

`python -m tests.chaos.joining_worker FILE NAME COUNT SEED`. Each transaction has a row of the program's, a
record and an offset of one name; some are rolled back, whole or to a savepoint.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import sys
from pathlib import Path

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition

TP = TopicPartition("t", 0)


def main() -> None:
    path, name, count, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    rng = random.Random(seed)
    acknowledged = os.open(path.with_name("acknowledged"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    own = sqlite3.connect(path, timeout=60, isolation_level=None)
    with contextlib.closing(own):
        own.execute("PRAGMA synchronous=FULL")
        for number in range(count):
            store(own, "never" + name, rng)
            own.execute("ROLLBACK TO mine" if rng.random() < 0.5 else "ROLLBACK")
            if own.in_transaction:
                own.execute("COMMIT")
            value = f"{name}-{number}"
            store(own, value, rng)
            own.execute("COMMIT")
            os.write(acknowledged, f"join {value}\n".encode())
            os.write(acknowledged, f"offset {value}\n".encode())


def store(own: sqlite3.Connection, value: str, rng: random.Random) -> None:
    own.execute("BEGIN IMMEDIATE")
    own.execute("SAVEPOINT mine")
    own.execute("INSERT INTO shop VALUES (?)", (value,))
    tx = eosdb.join(own)
    tx.publish("t", value + " " * rng.choice((0, 100, 40_000)), partition=0)
    tx.commit_offsets({TP: OffsetAndMetadata(1)}, value)


if __name__ == "__main__":
    main()
