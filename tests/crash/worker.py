"""The child of the crash tests: works on a file, says on standard output what was acknowledged, and dies.

    python -m tests.crash.worker FILE MODE [SEED]

Each line it prints was acknowledged by the database before it was printed. `EOSDB_FAILPOINT` says where
the process is killed; the mode `load` goes on until the parent kills it.
"""

from __future__ import annotations

import os
import random
import sys

import eosdb
from eosdb import OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.failpoints import Failpoint

START_MS = 1_700_000_000_000
TPS = [TopicPartition("t", i) for i in range(3)]
COMPACTED = TopicPartition("c", 0)
CONFIG = eosdb.BrokerConfig(transaction_version=1)


def say(*words: object) -> None:
    """One write per line, so that a kill never leaves half of one."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def open_db(path: str, offset_ms: int = 0) -> eosdb.Database:
    clock = eosdb.ManualClock(start_ms=START_MS + offset_ms)
    return eosdb.connect(path, clock=clock, durability="full", config=CONFIG)


def everything(path: str) -> None:
    """Visits every failpoint: appends, transactions, snapshots, retention, compaction, rebuild."""
    db = open_db(path)
    broker = db.broker
    db.admin.create_topic("t", partitions=3)
    db.admin.create_topic("c", config={"cleanup.policy": "compact,delete", "retention.bytes": "40"})
    say("topics")
    plain = broker.init_producer_id()
    me = broker.init_producer_id("a")
    sequence = 0
    for turn in range(4):
        values = [Record(value=b"plain %d %d" % (turn, i)) for i in range(2)]
        broker.append(TPS[0], RecordBatch(values, *plain, 2 * turn))
        say("plain", turn)
        broker.add_partitions_to_txn("a", *me, TPS)
        for tp in TPS:
            values = [Record(value=b"txn %d %d" % (turn, i)) for i in range(3)]
            broker.append(tp, RecordBatch(values, *me, sequence, True), transactional_id="a")
        sequence += 3
        broker.add_offsets_to_txn("a", *me, "g")
        broker.txn_offset_commit("a", "g", *me, {TPS[0]: OffsetAndMetadata(turn + 1)})
        broker.end_txn("a", *me, turn % 2 == 0)
        say("txn", turn, "committed" if turn % 2 == 0 else "aborted")
        keyed = [Record(key=b"k%d" % (i % 3), value=b"v%d %d" % (turn, i)) for i in range(6)]
        broker.append(COMPACTED, RecordBatch(keyed))
        say("keyed", turn)
        db.take_snapshot()
        broker.delete_records(TPS[1], turn)
        db.housekeeping()
        say("house", turn)
    db.rebuild()
    db._store.checkpoint()
    say("rebuilt")
    db.close()


def load(path: str, seed: int) -> None:
    """Transactions of random size by one producer after another, until the parent kills the process."""
    rng = random.Random(seed)
    db = open_db(path)
    turn = 0
    while True:
        producer = db.producer(transactional_id="load", batch_size=rng.choice([1, 200, 100_000]))
        producer.init_transactions()
        for _ in range(rng.randint(1, 20)):
            producer.begin_transaction()
            for i in range(rng.randint(1, 30)):
                producer.send("t", b"%d %d %d" % (seed, turn, i), partition=rng.randrange(3))
            committed = rng.random() < 0.8
            say("begun", turn)
            if committed:
                producer.commit_transaction()
                say("committed", turn)
            else:
                producer.abort_transaction()
                say("aborted", turn)
            turn += 1


if __name__ == "__main__":
    assert {point.value for point in Failpoint}
    if sys.argv[2] == "load":
        load(sys.argv[1], int(sys.argv[3]))
    else:
        everything(sys.argv[1])
