"""Ctrl-C and SIGTERM while a handler is slow: once, its record is finished; twice, it is aborted."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from tests.readers import committed_values

pytestmark = pytest.mark.process

OUT = TopicPartition("out", 0)
PROGRAM = """
import os
import sys
import eosdb

def slow(record):
    print(record.value.decode(), flush=True)
    os.read(0, 100)
    return record.value.upper()

def in_unit(record, tx):
    tx.publish("out", slow(record))

with eosdb.connect(sys.argv[1]) as db:
    handler, sink = (in_unit, None) if sys.argv[2] == "tx" else (slow, "out")
    workers = 2 if sys.argv[2] == "many" else 1
    db.processor("in", handler, sink, group_id="g", workers=workers).run()
print("ended", flush=True)
"""
Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start(db_path: Path) -> Iterator[Start]:
    """Starts a processor, and returns when its handler has the first record in hand."""
    started: list[subprocess.Popen[str]] = []
    with eosdb.connect(db_path) as db:
        for topic in ("in", "out"):
            db.admin.create_topic(topic)
        db.producer().send_many(
            "in", [eosdb.ProducerRecord(value=v, key="k") for v in (b"a", b"b")]
        )

    def call(handler: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(db_path), handler],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "a\n"
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


def outcome(path: Path) -> tuple[list[bytes | None], int, str]:
    with eosdb.connect(path, read_only=True) as db:
        committed = sum(stored.offset for stored in db.broker.offset_fetch("g").values())
        return committed_values(db, OUT), committed, db.broker.describe_group("g").state


@pytest.mark.parametrize("handler", ["sink", "tx", "many"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_finishes_the_record_in_hand_and_stops(
    db_path: Path, start: Start, handler: str, number: signal.Signals
) -> None:
    process = start(handler)
    assert process.stderr is not None
    process.send_signal(number)
    if number is signal.SIGINT:
        assert process.stderr.readline() == "\n"
        assert "Ctrl-C again aborts it now" in process.stderr.readline()
    else:
        process.send_signal(number)  # It asks for the same.
    said, complaint = process.communicate("go\n", timeout=120)
    assert (process.returncode, said, complaint) == (0, "ended\n", "")
    assert outcome(db_path) == ([b"A"], 1, "Empty")


@pytest.mark.parametrize("handler", ["sink", "tx", "many"])
@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_behind_it_aborts_the_record(
    db_path: Path, start: Start, handler: str, first: signal.Signals
) -> None:
    process = start(handler)
    process.send_signal(first)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
    _, complaint = process.communicate()
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in complaint
    assert outcome(db_path)[:2] == ([], 0)
    again = start(handler)
    again.send_signal(signal.SIGTERM)
    again.communicate("go\n", timeout=120)
    assert outcome(db_path) == ([b"A"], 1, "Empty")
