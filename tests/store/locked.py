"""The write lock in other hands: programs that hold it, every face that wants it, and what all are told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from tests.tidy.tree import ROOT

TP = TopicPartition("t", 0)
HASTY = eosdb.BrokerConfig(lock_timeout_ms=20)
SQLITE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""
BLOCK = """
import sys, eosdb
with eosdb.connect(sys.argv[1]) as db, db.begin():
    print("held", flush=True)
    sys.stdin.read()
"""

Call = Callable[[], object]


def transaction(db: eosdb.Database, *, offsets: bool = False) -> Call:
    producer = db.producer(transactional_id=f"offsets-{offsets}")
    producer.init_transactions()

    def run() -> None:
        with producer.transaction():
            producer.send("t", b"v")
            if offsets:
                producer.send_offsets_to_transaction({TP: OffsetAndMetadata(1)}, "g")

    return run


def commit(db: eosdb.Database) -> Call:
    producer = db.producer(transactional_id="commit")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v")
    return producer.commit_transaction


def flushed(db: eosdb.Database) -> Call:
    producer = db.producer(linger_ms=60_000)

    def run() -> None:
        futures = [producer.send("t", b"v", partition=0) for _ in range(3)]
        producer.flush()
        assert len({id(future.exception()) for future in futures}) == 1, "one wait for all of them"
        futures[-1].result()

    return run


def block(db: eosdb.Database) -> Call:
    def run() -> None:
        with db.begin() as tx:
            tx.publish("t", b"v")

    return run


def offsets(db: eosdb.Database) -> Call:
    consumer = db.consumer("g", enable_auto_commit=False)
    consumer.assign([TP])
    return lambda: consumer.commit({TP: OffsetAndMetadata(1)})


FACES: dict[str, Callable[[eosdb.Database], Call]] = {
    "send": lambda db: lambda: db.producer().send("t", b"v").result(),
    "flush": flushed,
    "send_many": lambda db: lambda: db.producer().send_many("t", [b"v", b"w"]),
    "init_transactions": lambda db: lambda: db.producer(transactional_id="y").init_transactions(),
    "transaction": transaction,
    "commit": commit,
    "offsets in a transaction": lambda db: transaction(db, offsets=True),
    "connect": lambda db: lambda: eosdb.connect(db.path, config=HASTY),
    "append": lambda db: lambda: db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(b"v")])),
    "append_once": lambda db: lambda: db.append_once("s", 1, {TP: [eosdb.Record(b"v")]}),
    "begin": block,
    "offsets": offsets,
    "topic": lambda db: lambda: db.admin.create_topic("new"),
    "compact": lambda db: db.compact,
    "rebuild": lambda db: db.rebuild,
}
"""Each with what is to be prepared before the lock is held; "topic" and "compact" stand for all that is
administered and maintained."""


@contextmanager
def held_by(program: str, path: Path) -> Iterator[str]:
    """Hold the write lock in another process; what the error must say of it."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            yield rf"process {holder.pid} \({re.escape(sys.executable)} -c import"
        finally:
            holder.kill()


def check(told: str, path: Path, holder: str) -> None:
    """Whether the error is the one that everybody gets."""
    assert re.match(
        rf"{re.escape(str(path))}: (not|neither read nor) written, because the write lock has been "
        rf"held( for 20 ms)? by {holder}.*\. Try again when that transaction has ended, end it, or wait "
        "for longer",
        told,
    ), told


def start(path: Path, *arguments: object) -> subprocess.Popen[str]:
    """The worker of tests/concurrency in a mode."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.concurrency.worker", str(path), *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def worker(path: Path, mode: str) -> Iterator[subprocess.Popen[str]]:
    """A worker that holds the lock, or has stopped itself. It goes on when it is told, or in the end."""
    made = start(path, mode)
    assert made.stdout is not None
    assert made.stdout.readline() == ("held\n" if mode == "hold" else "stopping\n")
    if mode != "hold":
        os.waitid(os.P_PID, made.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield made
        go_on(made)
    finally:
        made.kill()


def go_on(made: subprocess.Popen[str]) -> str:
    """Lets the worker end, in good order; what it said."""
    if made.poll() is None:
        made.send_signal(signal.SIGCONT)
    if made.stdin is None or made.stdin.closed:
        return ""
    output, errors = made.communicate()
    assert made.returncode == 0, errors
    return output
