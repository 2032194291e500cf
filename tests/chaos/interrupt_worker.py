"""A program that is interrupted at every instant of what it does, and goes on each time.

`python -m tests.chaos.interrupt_worker FILE WORK SEED COUNT`: `WORK` is interrupted COUNT times, each
time at another place, by chance: by Ctrl-C, or by the exception of a time limit (Celery, RQ).
After each the object works, no lock is left for another database,
and whatever had been acknowledged is there once.
"""

from __future__ import annotations

import contextlib
import gc
import random
import signal
import sys
import threading

import sqlalchemy.dialects.sqlite

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.broker.outbox import UserTransaction
from tests.chaos.interrupting import Interrupt

TP = TopicPartition("t", 0)
READY, FATAL = "READY", "FATAL_ERROR"


class TimeLimit(Exception):
    """What a signal handler of the program raises."""


class Program:
    """One life of the program: a database and its clients, interrupted once."""

    def __init__(self, path: str, number: int) -> None:
        self.path = path
        self.number = number
        self.db = connect(path)
        self.acknowledged: list[str] = []
        self.producer = self.db.producer(transactional_id="a")
        self.producer.init_transactions()
        self.plain = self.db.producer()
        self.plain.send("t", b"warm").result()
        self.consumer = self.db.consumer("g", auto_offset_reset="earliest")
        self.consumer.subscribe(["t"])

    # -- works: what is interrupted -------------------------------------------------------------

    def append(self) -> None:
        self._append("append")

    def send(self) -> None:
        value = f"send-{self.number}"
        self.plain.send("t", value, partition=0).result()
        self.acknowledged.append(value)

    def send_many(self) -> None:
        """Interrupted, it goes on behind what was accepted; `go_on` sends what was."""
        values = [f"many-{self.number}-{i}" for i in range(20)]
        sent = eosdb.SentRecords()
        try:
            self.plain.send_many("t", values, partition=0, sent=sent)
        finally:
            self.acknowledged += values[: sent.accepted]

    def transaction(self) -> None:
        value = f"transaction-{self.number}"
        self.producer.begin_transaction()
        self.producer.send("t", value, partition=0)
        self.producer.send_offsets_to_transaction({TP: OffsetAndMetadata(1)}, "other")
        self.producer.commit_transaction()
        self.acknowledged.append(value)

    def flushed(self) -> None:
        """The parts of a transaction in requests of their own."""
        value = f"flushed-{self.number}"
        with self.producer.transaction():
            self.producer.send("t", value, partition=0).result()
            self.producer.flush()
        self.acknowledged.append(value)

    def abort(self) -> None:
        self.producer.begin_transaction()
        self.producer.send("t", f"never-{self.number}", partition=0)
        self.producer.flush()
        self.producer.abort_transaction()

    def begin(self) -> None:
        value = f"begin-{self.number}"
        with self.db.begin() as tx:
            tx.publish("t", value, partition=0)
        self.acknowledged.append(value)

    def handed_over(self) -> None:
        """The block is entered in another thread, undisturbed: `threading` is not safe from signals."""
        value = f"handed-over-{self.number}"
        block, entered, trace = self.db.begin(), list[UserTransaction](), sys.gettrace()
        sys.settrace(None)
        thread = threading.Thread(target=lambda: entered.append(block.__enter__()))
        thread.start()
        thread.join()
        sys.settrace(trace)
        entered[0].publish("t", value, partition=0)
        block.__exit__(None, None, None)
        self.acknowledged.append(value)

    def process(self) -> None:
        """With a row for each record; on a manual clock, for `threading` is not safe from signals."""
        value = f"process-{self.number}"
        self.plain.send("in", value).result()
        assert sqlalchemy.dialects.sqlite  # An import that is interrupted is beyond repair.
        with eosdb.connect(self.path, clock=eosdb.ManualClock(self.db.clock.time_ms())) as other:
            other.processor("in", row_and_result, "t", group_id="own").run(until_idle_ms=0)
        self.acknowledged.append(value)

    def poll(self) -> None:
        for _ in range(3):
            self.consumer.poll()
        self.consumer.commit()

    def init(self) -> None:
        self.db.producer(transactional_id=f"b{self.number % 3}").init_transactions()

    def read(self) -> None:
        self.db.broker.fetch(TP, 0)
        list(self.db.query("SELECT count(*) FROM committed_records").rows)

    def upkeep(self) -> None:
        self.db.housekeeping()
        self.db.take_snapshot()
        self.db._store.checkpoint()

    def opening(self) -> None:
        with connect(self.path) as other:
            other.admin.list_topics()

    def close(self) -> None:
        self.db.close()

    def _append(self, name: str) -> None:
        value = f"{name}-{self.number}"
        self.db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=value.encode())]))
        self.acknowledged.append(value)

    # -- afterwards -----------------------------------------------------------------------------

    def go_on(self) -> None:
        """Others get the lock; and this works on, or says that it is closed."""
        with connect(self.path) as other:
            other.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"other")]))
        with contextlib.suppress(eosdb.DatabaseClosedError):
            self._append("after")
            with self.db.begin() as tx:
                tx.publish("t", "begun", partition=0)
            self.plain.send("t", b"on", partition=0).result()
            self._end_transaction()
            with self.producer.transaction():
                self.producer.send("t", f"next-{self.number}", partition=0)
            self.acknowledged.append(f"next-{self.number}")
            self.consumer.poll()
        self.db.close()

    def _end_transaction(self) -> None:
        """What a program does with a producer that was interrupted: ends what it finds."""
        state = self.producer.state
        assert state != FATAL, "an interrupt is no reason to give up"
        if state == "COMMITTING_TRANSACTION":
            self.producer.commit_transaction()
        elif state != READY:
            self.producer.abort_transaction()


def row_and_result(record: eosdb.ConsumerRecord, tx: UserTransaction) -> bytes:
    assert isinstance(record.value, bytes)
    tx.connection.exec_driver_sql("INSERT INTO done VALUES (?)", (record.value.decode(),))
    return record.value


def connect(path: str) -> eosdb.Database:
    return eosdb.connect(path)


WORKS = (
    "append", "send", "send_many", "transaction", "flushed", "abort", "begin", "handed_over", "process",
    "poll", "init", "read", "upkeep", "opening", "close",
)  # fmt: skip


def main() -> None:
    path, work, rng, count = sys.argv[1], sys.argv[2], random.Random(sys.argv[3]), int(sys.argv[4])
    places = 50_000 if work == "process" else 1_000
    acknowledged, number, life = list[str](), 0, 0
    while number < count:
        at = rng.randrange(places)
        interrupt = Interrupt(at, (KeyboardInterrupt, TimeLimit)[life % 2])
        signal.signal(signal.SIGUSR1, interrupt._pass)  # type: ignore[arg-type]
        program, life = Program(path, life), life + 1
        with contextlib.suppress(KeyboardInterrupt, TimeLimit):
            interrupt.run(getattr(program, work))
        gc.collect()  # An error that was translated holds its frames, and with them a block, in a cycle.
        try:
            program.go_on()
        except BaseException:
            print(f"{work} interrupted at its place {at}", file=sys.stderr)
            raise
        acknowledged += program.acknowledged
        if interrupt.reached:
            number += 1
        else:
            places = at + 1  # It has no more places than that.
    check(path, acknowledged)


def check(path: str, acknowledged: list[str]) -> None:
    with connect(path) as db:
        rows = db.query("SELECT CAST(value AS TEXT) FROM committed_records WHERE topic = 't'").rows
        values = [value for (value,) in rows]
        for value in acknowledged:
            assert values.count(value) == 1, value
        assert not [value for value in values if value.startswith("never")]
        processed = sorted(value for value in values if value.startswith("process"))
        done = db.query("SELECT value FROM done ORDER BY value").rows
        assert [value for (value,) in done] == processed
        report = db.verify()
        assert report.ok, report.problems


if __name__ == "__main__":
    main()
