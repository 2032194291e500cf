"""A program whose disk is watched: stores in every way there is, and notes what has been acknowledged.

`python -m tests.chaos.disk_worker FILE NAME COUNT SEED`. Acknowledgements are lines of the file
`acknowledged` in the same folder, which is watched too, so that their order among the syncs is
known. What the disk refuses is not acknowledged, and may be stored or not.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from pathlib import Path
from typing import Final

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from tests.concurrency.worker import threads

TP = TopicPartition("t", 0)
THREADS = 2
FILLER = 40_000
"""Bytes: a hundred of these, and the WAL is copied into the file."""
HOW_MANY_BEFORE: Final = 10
"""What a worker stores before it tidies up."""


def main() -> None:
    path, name, count, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    acknowledged = os.open(path.with_name("acknowledged"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with contextlib.suppress(eosdb.StorageError), eosdb.connect(path) as db:

        def work(number: int) -> None:
            """Threads share commits: those that must be synced, and those that need not be."""
            worker = Worker(db, f"{name}{number}", random.Random(f"{seed} {number}"))
            for _ in range(count // THREADS):
                if done := worker.store():
                    os.write(acknowledged, f"{done}\n".encode())

        threads(THREADS, work)


class Worker:
    """One producer for each way, made anew after an error."""

    def __init__(self, db: eosdb.Database, name: str, rng: random.Random) -> None:
        self._db = db
        self._name = name
        self._rng = rng
        self._count = 0
        self._transactional: eosdb.Producer | None = None

    def store(self) -> str:
        """Something new. How it is stored for good, and its value; empty if it is not."""
        how = self._rng.choice(("plain", "transaction", "begin", "unsynced", "offset"))
        self._count += 1
        if self._count == HOW_MANY_BEFORE:
            with contextlib.suppress(eosdb.StorageError, eosdb.DatabaseLockedError):
                self._tidy_up()
        value = f"{self._name}-{self._count}"
        with contextlib.suppress(eosdb.StorageError, eosdb.DatabaseLockedError):
            if self._store(how, value):
                return f"{how} {value}"
        return ""

    def _tidy_up(self) -> None:
        """Free pages go back to the system, a few at a time, and all of them."""
        large = TopicPartition("large", 0)
        for _ in range(2):
            records = [eosdb.Record(value=bytes(700_000))]
            self._db.broker.append(large, eosdb.RecordBatch(records))
        self._db.broker.delete_records(large, -1)
        self._db.housekeeping()
        self._db.compact()

    def _store(self, how: str, value: str) -> bool:
        text = value + " " * self._rng.choice((0, 100, FILLER))
        match how:
            case "plain":
                self._db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=text.encode())]))
            case "begin":
                with self._db.begin() as tx:
                    tx.publish("t", text, partition=0)
            case "offset":
                self._db.broker.offset_commit(value, {TP: OffsetAndMetadata(1)})
            case "transaction":
                self._in_transaction(text, committed=True)
            case _:  # Units that nobody syncs, before others that are.
                self._in_transaction("never" + text, committed=False)
                return False
        return True

    def _in_transaction(self, text: str, *, committed: bool) -> None:
        """A producer whose transaction fails is given up; the next one aborts it."""
        try:
            producer = self._producer()
            producer.begin_transaction()
            producer.send("t", text, partition=0)
            producer.send_offsets_to_transaction({TP: OffsetAndMetadata(1)}, "g")
            (producer.commit_transaction if committed else producer.abort_transaction)()
        except BaseException:
            self._transactional = None
            raise

    def _producer(self) -> eosdb.Producer:
        if self._transactional is None:
            made = self._db.producer(transactional_id=self._name, delivery_timeout_ms=31_000)
            made.init_transactions()
            self._transactional = made
        return self._transactional


if __name__ == "__main__":
    main()
