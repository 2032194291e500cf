"""Files that are moved to a cluster: one program fills them and writes into each until it is closed,
another moves them, one after the other.

`python -m tests.trials.hunts.programs.moving FOLDER WAY ADDRESS SEED`, where WAY is "feeder" or "move".
Each file has a topic of its own, and groups of that name with places anywhere in it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.errors import PolicyViolationError
from tests.trials.hunts.programs.working import FEEDER, Setting, Stopping

MOVES: Final = "moves"
PARTITIONS: Final = 4
GROUPS: Final = 3
MARKS: Final = {"?": {0, 1}, "=": {1}, "!": {0}}
"""What was told of a record at last (nothing, written, refused), and how often it may be there."""
_RECORDS: Final = 500
_LOOK_S: Final = 0.02


def path_of(folder: Path, number: int, what: str = "db") -> Path:
    """Of the file; `ready`: it is filled; `moved`: it is moved; `sent`: what was written into it since,
    behind marks of MARKS."""
    return folder / MOVES / f"{number:03}.{what}"


def topic_of(folder: Path, number: int) -> str:
    """A broker has topics of other sessions, too."""
    return f"moved-{folder.name}-{number}"


def command(folder: Path, number: int, address: str) -> list[str]:
    """The arguments of `eosdb` that move a file."""
    return ["migrate-to-kafka", str(path_of(folder, number)), "--to", address, "--execute"]


def _fill(db: eosdb.Database, topic: str, rng: random.Random) -> None:
    """Transactions of 50 records, every fifth aborted, of which the beginning is deleted; and groups
    anywhere, also at markers and aborted records."""
    db.admin.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
    with db.producer(transactional_id="filling") as producer:
        producer.init_transactions()
        for start in range(0, _RECORDS, 50):
            producer.begin_transaction()
            for record in range(start, start + 50):
                producer.send(
                    topic, f"{record}", key=f"k{record % 97}", partition=record % PARTITIONS
                )
            producer.flush()
            if start % 250 == 0:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    for partition in range(PARTITIONS):
        tp = TopicPartition(topic, partition)
        db.broker.delete_records(tp, _RECORDS // 50)
        offsets = db.broker.offsets(tp)
        for group in range(GROUPS):
            at = rng.randint(offsets.log_start_offset, offsets.last_stable_offset)
            db.broker.offset_commit(f"{topic}-{group}", {tp: OffsetAndMetadata(at)})


def _write_until_closed(db: eosdb.Database, topic: str, sent: Path, stopping: Stopping) -> None:
    with db.producer() as producer, sent.open("ab", buffering=0) as notes:
        for record in range(sys.maxsize):
            if stopping.is_set:
                return
            value = f"live-{os.getpid()}-{record}"
            partition = record % PARTITIONS
            notes.write(f"? {value}\n".encode())
            try:
                producer.send(topic, value, key=b"k", partition=partition).result()
            except PolicyViolationError:
                notes.write(f"! {value}\n".encode())
                return
            notes.write(f"= {value}\n".encode())


def _feed(setting: Setting, stopping: Stopping) -> None:
    rng = random.Random(setting.seed)
    for number in range(sys.maxsize):
        topic, moved = topic_of(setting.folder, number), path_of(setting.folder, number, "moved")
        if moved.exists():
            continue  # In an earlier life.
        path, ready = path_of(setting.folder, number), path_of(setting.folder, number, "ready")
        if not ready.exists():
            for half_filled in path.parent.glob(f"{path.name}*"):
                half_filled.unlink()
        with eosdb.connect(path, durability="off") as db:
            if not ready.exists():
                _fill(db, topic, rng)
                ready.touch()
            _write_until_closed(db, topic, path_of(setting.folder, number, "sent"), stopping)
        while not moved.exists():
            if stopping.is_set:
                return
            time.sleep(_LOOK_S)


def _move(setting: Setting, stopping: Stopping) -> None:
    number = 0
    while not stopping.is_set:
        moved = path_of(setting.folder, number, "moved")
        if moved.exists():
            number += 1
        elif not path_of(setting.folder, number, "ready").exists():
            time.sleep(_LOOK_S)
        else:
            words = command(setting.folder, number, setting.address)
            done = subprocess.run([sys.executable, "-m", "eosdb.cli", *words], check=False)
            if done.returncode == 0:
                moved.touch()


if __name__ == "__main__":
    _setting = Setting.from_arguments()
    (_feed if _setting.name == FEEDER else _move)(_setting, Stopping())
