"""A program whose n-th system call fails, for every n: it is told truly what has become of what it stored.

`python -m tests.chaos.failing_worker FILE WORK ERROR KINDS`, with disk.c preloaded: `WORK` is done again
and again; each time another of its calls of these kinds fails with the error (ENOSPC, EIO, EMFILE), that
one or all from it on. What returns is stored once; what raises raises an error of eosdb's whose `outcome`
is so; and afterwards the file works as before.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import sys

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition

TP = TopicPartition("t", 0)


def fail_at(number: int, error: int = 0, *, for_good: bool = False, kinds: str = "") -> int:
    """Have this call fail; -1 for none. How many calls there were since the last time."""
    function = ctypes.CDLL(None).disk_fail_at
    function.restype = ctypes.c_long
    calls: int = function(ctypes.c_long(number), error, int(for_good), kinds.encode())
    return calls


class Program:
    """A database and its clients, and the ways to store a value."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.db = eosdb.connect(path)
        self.plain = self.db.producer()
        self.batch = 0
        self.clients()

    def clients(self) -> None:
        self.producer = self.db.producer(transactional_id="a")
        self.producer.init_transactions()

    def append(self, value: str) -> None:
        self.db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=value.encode())]))

    def send(self, value: str) -> None:
        self.plain.send("t", value, partition=0).result()

    def append_once(self, value: str) -> None:
        self.batch += 1
        self.db.append_once("sink", self.batch, {TP: [eosdb.Record(value=value.encode())]})

    def begin(self, value: str) -> None:
        with self.db.begin() as tx:
            tx.publish("t", value, partition=0)

    def transaction(self, value: str) -> None:
        self.producer.begin_transaction()
        self.producer.send("t", value, partition=0)
        self.producer.send_offsets_to_transaction({TP: OffsetAndMetadata(1)}, "g")
        self.producer.commit_transaction()

    def housekeeping(self, value: str) -> None:
        """With what comes along with a write when its time has come: a note in the lock file."""
        self.db._housekeeper._look_at_ms = 0
        self.append(value)

    def opening(self, value: str) -> None:
        db = eosdb.connect(self.path)
        try:
            db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=value.encode())]))
        finally:
            with contextlib.suppress(eosdb.EosdbError):  # Which says what closing met.
                db.close()

    def new_file(self, value: str) -> None:
        """It is there or not, and can be made afterwards."""
        eosdb.connect(f"{self.path}-{value}").close()

    def go_on(self, value: str) -> None:
        if self.producer.state != "READY":
            self.clients()  # A new one ends what the last has left.
        self.append(f"after {value}")

    def count(self, value: str) -> int:
        rows = self.db.query(
            "SELECT count(*) FROM committed_records WHERE value = ?", [value.encode()]
        )
        found: int = rows.one()[0]
        return found


WORKS = (
    "append", "send", "append_once", "begin", "transaction", "housekeeping", "opening", "new_file",
)  # fmt: skip


def main() -> None:
    path, work, error, kinds = sys.argv[1], sys.argv[2], getattr(errno, sys.argv[3]), sys.argv[4]
    program = Program(path)
    reached = 0
    for for_good in (False, True):
        number, calls = 0, 1
        while number < calls:
            value = f"{work}-{number}-{for_good}"
            outcome = "written"
            fail_at(number, error, for_good=for_good, kinds=kinds)
            try:
                getattr(program, work)(value)
            except eosdb.EosdbError as raised:
                outcome = raised.outcome
            finally:
                calls = fail_at(-1)
            reached += number < calls
            if work != "new_file":
                check(program.count(value), outcome, value)
            program.go_on(value)
            if work == "new_file":
                eosdb.connect(f"{path}-{value}").close()
            else:
                check(program.count(value), outcome, value)
            number += 1
    report = program.db.verify()
    assert report.ok, report.problems
    program.db.close()
    print(reached)


def check(count: int, outcome: str, value: str) -> None:
    assert count in {"written": (1,), "not written": (0,), "unknown": (0, 1)}[outcome], (
        value, outcome, count,
    )  # fmt: skip


if __name__ == "__main__":
    main()
