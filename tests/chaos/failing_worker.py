"""A program whose n-th system call fails: it is told truly what has become of what it stored.

`python -m tests.chaos.failing_worker FILE WORK [ERROR KINDS EACH FIRST]…`, with disk.c preloaded: `WORK` is
done again and again; each time another of its calls of these kinds fails with the error (ENOSPC, EIO,
EMFILE), that one or all from it on: the first one, the one numbered FIRST, and each EACHth from there.
What returns is stored once; what raises raises an error of eosdb's whose `outcome` is so, and so is what a
command's exit status or an answer of the server says; what is not written does not come back after a crash
of the machine either; and afterwards the file works as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any, cast

from click.testing import CliRunner
from kafka.protocol.producer.transaction import EndTxnRequest

import eosdb
import eosdb.aio
from eosdb import OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from eosdb.aio import AsyncProducer
from eosdb.errors import Outcome
from tests.cli.conftest import MAIN
from tests.trials.hunts.meanings import of_answer
from tests.wire.peer import Peer, batch, produce, produced

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
        self.plain = self.db.producer(retry_backoff_ms=1)
        self.batch = 0
        self.clients()

    def clients(self) -> None:
        self.producer = self.db.producer(transactional_id="a", retry_backoff_ms=1)
        self.producer.init_transactions()

    # -- the library ----------------------------------------------------------------------------

    def append(self, value: str) -> None:
        self.db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=value.encode())]))

    def send(self, value: str) -> None:
        self.plain.send("t", value, partition=0).result()

    def send_many(self, value: str) -> None:
        self.plain.send_many("t", [value], partition=0)

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

    def topic(self, value: str) -> None:
        self.db.admin.create_topic(value)

    def deletion(self, value: str) -> None:
        """Of a topic whose rows go in units of their own behind it."""
        self.db.admin.delete_topic(value)

    def offsets(self, value: str) -> None:
        consumer = self.db.consumer(group_id="g")
        consumer.assign([TP])
        consumer.commit({TP: OffsetAndMetadata(1, value)})

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

    # -- other faces ----------------------------------------------------------------------------

    def command(self, value: str) -> Outcome:
        arguments = ["--db", self.path, "produce", "t", "--partition", "0"]
        done = CliRunner().invoke(MAIN, arguments, input=f"{value}\n")
        assert "Traceback" not in done.output, done.output
        told = re.search(r"\(outcome: (.+)\)\n", done.stderr)
        assert (told is not None) == (done.exit_code == 3), (done.exit_code, done.output)
        if told is not None:
            return cast("Outcome", told[1])
        return "written" if done.exit_code == 0 else "not written"

    def prepare(self, value: str) -> None:
        if value.startswith("deletion-"):
            self.db.admin.create_topic(value)
            self.db.producer().send_many(value, [b"v"] * 3)

    def go_on(self, value: str) -> None:
        if self.producer.state != "READY":
            self.clients()  # A new one ends what the last has left.
        self.append(f"after {value}")

    def close(self) -> None:
        self.db.close()

    def count(self, value: str) -> int:
        return count(self.db, value)


def count(db: eosdb.Database, value: str) -> int:
    if value.startswith("offsets-"):
        committed = db.broker.offset_fetch("g").get(TP)
        return committed is not None and committed.metadata == value
    if value.startswith(("topic-", "deletion-")):
        return (value in db.broker.topics()) == value.startswith("topic-")
    rows = db.query("SELECT count(*) FROM committed_records WHERE value = ?", [value.encode()])
    found: int = rows.one()[0]
    return found


class AsyncProgram(Program):
    """The same with tasks of an event loop."""

    def __init__(self, path: str) -> None:
        self.loop = asyncio.new_event_loop()

        async def connect() -> eosdb.aio.AsyncDatabase:
            return await eosdb.aio.connect(path)

        self.tasks = self.loop.run_until_complete(connect())
        super().__init__(path)

    def clients(self) -> None:
        super().clients()

        async def start() -> AsyncProducer:
            producer = self.tasks.producer(transactional_id="b", retry_backoff_ms=1)
            await producer.start()
            return producer

        self.sender = self.loop.run_until_complete(start())

    def tasks_send(self, value: str) -> None:
        async def send() -> None:
            async with self.tasks.producer(retry_backoff_ms=1) as producer:
                await producer.send_and_wait("t", value, partition=0)

        self.loop.run_until_complete(send())

    def tasks_transaction(self, value: str) -> None:
        async def transaction() -> None:
            async with self.sender.transaction():
                await self.sender.send("t", value, partition=0)

        self.loop.run_until_complete(transaction())

    def go_on(self, value: str) -> None:
        if self.sender.state != "READY":
            with contextlib.suppress(eosdb.EosdbError):
                self.loop.run_until_complete(self.sender.stop())
            self.clients()
        super().go_on(value)

    def close(self) -> None:
        self.loop.run_until_complete(self.tasks.close())
        self.loop.close()
        super().close()


class ServedProgram(Program):
    """A client of `eosdb serve`; a connection that ends without an answer says nothing."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.server = self.db.serve()

    def clients(self) -> None:
        super().clients()
        self.identity = self.initialized()

    def initialized(self) -> ProducerIdAndEpoch:
        with contextlib.suppress(eosdb.ConcurrentTransactionsError):
            return self.db.broker.init_producer_id("b")
        return self.db.broker.init_producer_id("b")

    def served_produce(self, value: str) -> Outcome:
        return self.answered(lambda peer: of_answer(self.code(peer, batch(value.encode()))))

    def served_transaction(self, value: str) -> Outcome:
        records = batch(
            value.encode(), producer=self.identity, sequence=0, transactional=True
        )  # The coordinator adds the partition: transaction version 2.
        try:
            with Peer(self.server) as peer:
                if self.code(peer, records, "b"):
                    return "not written"
        except ConnectionError:
            return "not written"  # Nobody asks for the commit.
        end = EndTxnRequest(
            transactional_id="b",
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            committed=True,
        )
        return self.answered(lambda peer: of_answer(peer.ask(end, 5).error_code))

    def code(self, peer: Peer, records: bytes, transactional_id: str | None = None) -> int:
        request = produce({TP: records}, transactional_id=transactional_id)
        ((code, _),) = produced(peer.ask(request, 12))
        return code

    def answered(self, ask: Callable[[Peer], Outcome]) -> Outcome:
        try:
            with Peer(self.server) as peer:
                return ask(peer)
        except ConnectionError:
            return "unknown"

    def go_on(self, value: str) -> None:
        self.identity = self.initialized()
        super().go_on(value)

    def close(self) -> None:
        self.server.close()
        super().close()


PROGRAMS: dict[str, type[Program]] = {
    **dict.fromkeys(("tasks_send", "tasks_transaction"), AsyncProgram),
    **dict.fromkeys(("served_produce", "served_transaction"), ServedProgram),
}
WORKS = (
    "append", "send", "send_many", "append_once", "begin", "transaction", "topic", "deletion",
    "offsets", "housekeeping", "opening", "new_file", "command", *PROGRAMS,
)  # fmt: skip


def main() -> None:
    path, work, *words = sys.argv[1:]
    program = PROGRAMS.get(work, Program)(path)
    for error, kinds, each, first in zip(*[iter(words)] * 4, strict=True):
        print(fail_everywhere(program, work, error, kinds, int(each), int(first)))
    report = program.db.verify()
    assert report.ok, report.problems
    program.close()


def fail_everywhere(
    program: Program, work: str, error: str, kinds: str, each: int, first: int
) -> int:
    """How many calls have failed."""
    reached = 0
    for for_good in (False, True):
        number, is_reached = 0, True
        while is_reached:
            value = f"{work}-{error}-{number}-{for_good}"
            outcome: Any = "written"
            program.prepare(value)
            fail_at(number, getattr(errno, error), for_good=for_good, kinds=kinds)
            try:
                outcome = getattr(program, work)(value) or outcome
            except eosdb.EosdbError as raised:
                outcome = raised.outcome
            except MemoryError:  # docs/errors.md
                outcome = "unknown"
            finally:
                is_reached = number < fail_at(-1)
            reached += is_reached
            if work != "new_file":
                check(program.count(value), outcome, value)
                if outcome == "not written":
                    check(after_a_crash(program, value), outcome, f"{value} after a crash")
            program.go_on(value)
            if work == "new_file":
                eosdb.connect(f"{program.path}-{value}").close()
            else:
                check(program.count(value), outcome, value)
            number = number + each if number or not first else first
    return reached


def after_a_crash(program: Program, value: str) -> int:
    """How often the value is there for whoever opens the files after the machine has lost its memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/shop.db"
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(f"{program.path}{suffix}", f"{path}{suffix}")
        with eosdb.connect(path) as db:
            return count(db, value)


def check(count: int, outcome: str, value: str) -> None:
    assert count in {"written": (1,), "not written": (0,), "unknown": (0, 1)}[outcome], (
        value, outcome, count,
    )  # fmt: skip


if __name__ == "__main__":
    main()
