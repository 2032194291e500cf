"""Writes transactions at full speed while something makes a copy of the file, and notes each commit.

    python -m tests.trials.hunts.copies_writer PATH NOTES [--seconds 10] [--config JSON]

A transaction takes five records of `in` to `out` with the place of the group; every seventh is aborted. A
line of NOTES is one commit that was acknowledged: when (Unix time, s), how long it took (ms), the WAL's
bytes then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from pathlib import Path

import eosdb
from eosdb import BrokerConfig, OffsetAndMetadata, TopicPartition

_RECORDS = 5
_VALUE = b"x" * 400


def main() -> None:
    """Until the time is over, or for ever."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("notes", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--config", type=json.loads, default={})
    asked = parser.parse_args()
    end, number = time.monotonic() + asked.seconds, 0
    wal = Path(f"{asked.path}-wal")
    with (
        asked.notes.open("a", buffering=1) as notes,
        eosdb.connect(asked.path, config=BrokerConfig(**asked.config)) as db,
    ):
        for topic in ("in", "out"):
            if topic not in db.admin.list_topics():
                db.admin.create_topic(topic, 2)
        with (
            db.producer(transactional_id="moves") as moves,
            db.consumer("movers", auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([TopicPartition("in", 0), TopicPartition("in", 1)])
            moves.init_transactions()
            while time.monotonic() < end:
                number += 1
                begun = time.perf_counter()
                moves.begin_transaction()
                for one in range(_RECORDS):
                    moves.send("out", _VALUE + b"%d" % number, partition=one % 2)
                place = {TopicPartition("in", number % 2): OffsetAndMetadata(number)}
                moves.send_offsets_to_transaction(place, consumer.group_metadata())
                if number % 7:
                    moves.commit_transaction()
                else:
                    moves.abort_transaction()
                took, size = time.perf_counter() - begun, 0
                with contextlib.suppress(FileNotFoundError):
                    size = wal.stat().st_size
                notes.write(f"{time.time():.6f} {took * 1000:.3f} {size}\n")


if __name__ == "__main__":
    main()
