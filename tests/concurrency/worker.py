"""The child of the concurrency tests: one process with several threads on a shared file.

python -m tests.concurrency.worker FILE append NAME THREADS RECORDS
python -m tests.concurrency.worker FILE fence NAME THREADS TRANSACTIONS
python -m tests.concurrency.worker FILE hold
python -m tests.concurrency.worker FILE hammer NAME THREADS
python -m tests.concurrency.worker FILE visit ROUNDS
python -m tests.concurrency.worker FILE bystander
python -m tests.concurrency.worker FILE suspend
python -m tests.concurrency.worker FILE suspend-writing
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable

import eosdb
from eosdb import TopicPartition
from eosdb.model import failpoints
from eosdb.model.failpoints import Failpoint


def threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(0)`, `work(1)`, … side by side; the first error ends the process."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if errors:
        raise errors[0]


def wait_for_the_others() -> None:
    """Until the parent, which has heard all of them, says so."""
    os.write(1, b"ready\n")
    sys.stdin.readline()


def append(path: str, name: str, count: int, records: int) -> None:
    """Each thread an idempotent producer of its own."""
    with eosdb.connect(path) as db:
        wait_for_the_others()

        def work(number: int) -> None:
            producer = db.producer()
            for i in range(records):
                producer.send("t", f"{name} {number} {i}", partition=i % 3).result()

        threads(count, work)


def fence(path: str, name: str, count: int, transactions: int) -> None:
    """Threads of all processes fight for two transactional ids; prints what was committed."""
    with eosdb.connect(path) as db:
        wait_for_the_others()

        def work(number: int) -> None:
            done = attempt = 0
            while done < transactions:
                producer = db.producer(transactional_id=f"id-{number % 2}", retry_backoff_ms=1)
                try:
                    producer.init_transactions()
                    for _ in range(3):
                        attempt += 1
                        value = f"{name} {number} {attempt}"
                        with producer.transaction():
                            for partition in range(3):
                                producer.send("t", value, partition=partition)
                        os.write(1, f"committed {value}\n".encode())
                        done += 1
                except (
                    eosdb.ProducerFencedError,
                    eosdb.InvalidProducerEpochError,
                    eosdb.ConcurrentTransactionsError,
                ):
                    os.write(1, f"fenced {name} {number} {attempt}\n".encode())

        threads(count, work)


def hammer(path: str, name: str, count: int) -> None:
    """Append without a pause until standard input ends; a line for every record stored."""
    with eosdb.connect(path, durability="off") as db:
        ended = threading.Event()

        def work(number: int) -> None:
            producer, i = db.producer(), 0
            while not ended.is_set():
                producer.send("t", f"{name} {number} {i}", partition=0).result()
                os.write(1, f"{name} {number} {i}\n".encode())
                i += 1

        def wait() -> None:
            sys.stdin.read()
            ended.set()

        threading.Thread(target=wait, daemon=True).start()
        threads(count, work)


def visit(path: str, rounds: int) -> None:
    """Open, write and close again and again: every close may be the last one, with its checkpoint."""
    for i in range(rounds):
        with eosdb.connect(path, durability="off") as db:
            records = [eosdb.Record(value=b"x" * 5_000)] * 20
            db.broker.append(TopicPartition("t", i % 3), eosdb.RecordBatch(records))


def bystander(path: str) -> None:
    """A foreign program that opens and closes the file as if it were alone."""
    connection = sqlite3.connect(path)
    print(connection.execute("SELECT count(*) FROM records").fetchone()[0])
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def hold(path: str) -> None:
    """Keep the writer mutex until standard input ends."""
    with eosdb.connect(path) as db:
        mutex = db._store._mutex
        assert mutex is not None
        mutex.acquire()
        print("held", flush=True)
        sys.stdin.read()
        mutex.release()


def suspend(path: str, point: Failpoint) -> None:
    """Stop between the two steps of a commit, or within the second; when woken, go on."""
    with eosdb.connect(path, durability="normal") as db:
        me = db.broker.init_producer_id("sleepy")
        tp = TopicPartition("t", 0)
        db.broker.add_partitions_to_txn("sleepy", *me, [tp])
        db.broker.append(
            tp, eosdb.RecordBatch([eosdb.Record(value=b"v")], *me, 0, True),
            transactional_id="sleepy",
        )  # fmt: skip

        def stop(reached: Failpoint) -> None:
            if reached is point:
                print("stopping", flush=True)
                os.kill(os.getpid(), signal.SIGSTOP)

        with failpoints.watched(stop):
            print("ended", *db.broker.end_txn("sleepy", *me, True), flush=True)


if __name__ == "__main__":
    file, mode, *rest = sys.argv[1:]
    if mode == "append":
        append(file, rest[0], int(rest[1]), int(rest[2]))
    elif mode == "fence":
        fence(file, rest[0], int(rest[1]), int(rest[2]))
    elif mode == "hammer":
        hammer(file, rest[0], int(rest[1]))
    elif mode == "visit":
        visit(file, int(rest[0]))
    elif mode == "bystander":
        bystander(file)
    elif mode == "hold":
        hold(file)
    elif mode == "suspend":
        suspend(file, Failpoint.END_TXN_DECIDED)
    else:
        suspend(file, Failpoint.MARKER_WRITTEN)
