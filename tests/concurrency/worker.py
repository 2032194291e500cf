"""The child of the concurrency tests: one process with several threads on a shared file.

python -m tests.concurrency.worker FILE append NAME THREADS RECORDS
python -m tests.concurrency.worker FILE fence NAME THREADS TRANSACTIONS
python -m tests.concurrency.worker FILE hold
python -m tests.concurrency.worker FILE suspend
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

import eosdb
from eosdb import TopicPartition, failpoints
from eosdb.failpoints import Failpoint


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


def append(path: str, name: str, count: int, records: int) -> None:
    """Each thread an idempotent producer of its own."""
    with eosdb.connect(path) as db:

        def work(number: int) -> None:
            producer = db.producer()
            for i in range(records):
                producer.send("t", f"{name} {number} {i}", partition=i % 3).result()

        threads(count, work)


def fence(path: str, name: str, count: int, transactions: int) -> None:
    """Threads of all processes fight for two transactional ids; prints what was committed."""
    with eosdb.connect(path) as db:

        def work(number: int) -> None:
            done = 0
            while done < transactions:
                producer = db.producer(transactional_id=f"id-{number % 2}", retry_backoff_ms=1)
                try:
                    producer.init_transactions()
                    for _ in range(3):
                        value = f"{name} {number} {done}"
                        with producer.transaction():
                            for partition in range(3):
                                producer.send("t", value, partition=partition)
                        os.write(1, f"committed {value}\n".encode())
                        done += 1
                except (eosdb.ProducerFencedError, eosdb.InvalidProducerEpochError):
                    pass
                except eosdb.ConcurrentTransactionsError:
                    pass

        threads(count, work)


def hold(path: str) -> None:
    """Keep the writer mutex until standard input ends."""
    with eosdb.connect(path) as db:
        mutex = db._store._mutex
        assert mutex is not None
        mutex.acquire()
        print("held", flush=True)
        sys.stdin.read()
        mutex.release()


def suspend(path: str) -> None:
    """Stop between the two steps of a commit; when woken, go on with the second."""
    with eosdb.connect(path, durability="normal") as db:
        me = db.broker.init_producer_id("sleepy")
        tp = TopicPartition("t", 0)
        db.broker.add_partitions_to_txn("sleepy", *me, [tp])
        db.broker.append(
            tp, eosdb.RecordBatch([eosdb.Record(value=b"v")], *me, 0, True),
            transactional_id="sleepy",
        )  # fmt: skip
        reach = failpoints.reach

        def stop(point: Failpoint) -> None:
            if point is Failpoint.END_TXN_DECIDED:
                print("decided", flush=True)
                os.kill(os.getpid(), signal.SIGSTOP)
            reach(point)

        from eosdb.coordinator import coordinator

        coordinator.reach = stop  # type: ignore[attr-defined]
        print("ended", *db.broker.end_txn("sleepy", *me, True), flush=True)


if __name__ == "__main__":
    file, mode, *rest = sys.argv[1:]
    if mode == "append":
        append(file, rest[0], int(rest[1]), int(rest[2]))
    elif mode == "fence":
        fence(file, rest[0], int(rest[1]), int(rest[2]))
    elif mode == "hold":
        hold(file)
    else:
        suspend(file)
