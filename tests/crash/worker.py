"""The child of the crash tests: works on a file, says on standard output what was acknowledged, and dies.

    python -m tests.crash.worker FILE everything [INSTRUCTIONS]
    python -m tests.crash.worker FILE load SEED [INSTRUCTIONS]
    python -m tests.crash.worker FILE backup TARGET

Each line says what was acknowledged before it was printed, or what is about to be asked for. The process
dies at the failpoint that `EOSDB_FAILPOINT` names, or by its own hand after so many SQLite instructions
of the writer, in the middle of a statement; `load` goes on until it is killed by somebody.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from typing import NoReturn

import eosdb
from eosdb import OffsetAndMetadata, Record, RecordBatch, TopicPartition
from tests.inside import writer

START_MS = 1_700_000_000_000
TPS = [TopicPartition("t", i) for i in range(3)]
COMPACTED = TopicPartition("c", 0)
CONFIG = eosdb.BrokerConfig(history_retention_ms=0)
GRAIN = 100
"""SQLite instructions between two looks at the count."""


def say(*words: object) -> None:
    """One write, so that lines of several threads do not mix and none is half there."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def die(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


class Instructions:
    """Counts what the writer's SQLite executes, and dies at the limit."""

    def __init__(self, db: eosdb.Database, limit: int | None) -> None:
        self.count = 0
        self._limit = limit
        writer(db).connection.set_progress_handler(self._look, GRAIN)

    def _look(self) -> int:
        self.count += GRAIN
        if self._limit is not None and self.count > self._limit:
            die()
        return 0


def open_db(path: str, offset_ms: int = 0) -> eosdb.Database:
    clock = eosdb.ManualClock(start_ms=START_MS + offset_ms)
    return eosdb.connect(path, clock=clock, durability="full", config=CONFIG)


def everything(path: str, limit: int | None = None) -> None:
    """Visits every failpoint: appends, transactions (of version 1, whose epoch stays), snapshots,
    housekeeping, rebuild."""
    db = open_db(path)
    instructions = Instructions(db, limit)
    broker = db.broker
    db.admin.create_topic("t", partitions=3)
    db.admin.create_topic("c", config={"cleanup.policy": "compact,delete", "retention.bytes": "40"})
    say("topics")
    plain = broker.init_producer_id()
    say("plain id", plain.producer_id)
    me = broker.init_producer_id("a")
    sequence = 0
    for turn in range(4):
        values = [Record(value=b"plain %d %d" % (turn, i)) for i in range(2)]
        broker.append(TPS[0], RecordBatch(values, *plain, 2 * turn))
        say("plain", turn)
        broker.add_partitions_to_txn("a", *me, TPS)
        for tp in TPS:
            values = [Record(value=b"txn %d %d" % (turn, i)) for i in range(3)]
            batch = RecordBatch(values, *me, sequence, True)
            broker.append(tp, batch, transactional_id="a", transaction_version=1)
        sequence += 3
        broker.add_offsets_to_txn("a", *me, "g")
        broker.txn_offset_commit("a", "g", *me, {TPS[0]: OffsetAndMetadata(turn + 1)})
        broker.end_txn("a", *me, turn % 2 == 0, transaction_version=1)
        say("txn", turn, "committed" if turn % 2 == 0 else "aborted")
        keyed = [Record(key=b"k%d" % (i % 3), value=b"v%d %d" % (turn, i)) for i in range(6)]
        broker.append(COMPACTED, RecordBatch(keyed))
        say("keyed", turn)
        db.take_snapshot()
        broker.delete_records(TPS[1], turn)
        db.housekeeping()
        say("house", turn)
    large = [Record(value=bytes(300_000))] * 3
    for _ in range(2):
        broker.append(TPS[1], RecordBatch(large))
    broker.delete_records(TPS[1], -1)
    assert db.housekeeping().freed_bytes
    say("smaller")
    db.compact()
    say("compacted")
    db.rebuild()
    db._store.checkpoint()
    say("rebuilt", instructions.count)
    db.close()


def load(path: str, seed: int, limit: int | None = None) -> None:
    """Four threads at once: transactions, two idempotent producers, and maintenance."""
    db = open_db(path)
    Instructions(db, limit)
    work = (transactions, appends, appends, maintenance)
    for number, function in enumerate(work):
        arguments = (db, seed, random.Random(seed * 10 + number))
        threading.Thread(target=function, args=arguments, daemon=True).start()
    threading.Event().wait()


def transactions(db: eosdb.Database, seed: int, rng: random.Random) -> None:
    """Of random size, each with its number as the group's offset. A record names its siblings."""
    turn = seed * 10_000
    while True:
        producer = db.producer(transactional_id="load", batch_size=rng.choice([1, 200, 100_000]))
        producer.init_transactions()
        for _ in range(rng.randint(1, 20)):
            turn += 1
            producer.begin_transaction()
            count = rng.randint(1, 30)
            for i in range(count):
                producer.send("t", f"txn {turn} {i} {count}", partition=rng.randrange(3))
            producer.send_offsets_to_transaction({TPS[0]: OffsetAndMetadata(turn)}, "g")
            if rng.random() < 0.8:
                say("committing", turn)
                producer.commit_transaction()
                say("committed", turn)
            else:
                say("aborting", turn)
                producer.abort_transaction()


def appends(db: eosdb.Database, seed: int, rng: random.Random) -> None:
    """Batches of known sequences, so that the parent can send the last one again."""
    who = db.broker.init_producer_id()
    sequence = 0
    while True:
        count = rng.randint(1, 9)
        say("sending", who.producer_id, sequence, count)
        send(db, who.producer_id, sequence, count)
        say("sent", who.producer_id, sequence, count)
        sequence += count


def send(db: eosdb.Database, producer_id: int, sequence: int, count: int) -> None:
    records = [
        Record(value=b"plain %d %d" % (producer_id, sequence + i), timestamp=START_MS)
        for i in range(count)
    ]
    db.broker.append(TPS[producer_id % 3], RecordBatch(records, producer_id, 0, sequence))


def maintenance(db: eosdb.Database, seed: int, rng: random.Random) -> None:
    while True:
        rng.choice((db.take_snapshot, db.housekeeping, db._store.checkpoint, db.rebuild))()


def backup(path: str, target: str) -> None:
    """Dies when the copy is whole and not published."""
    os.link = die  # type: ignore[assignment]
    open_db(path).backup(target)


if __name__ == "__main__":
    file, mode, *rest = sys.argv[1:]
    if mode == "backup":
        backup(file, *rest)
    elif mode == "load":
        load(file, *map(int, rest))
    else:
        everything(file, *map(int, rest))
