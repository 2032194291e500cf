"""Killed at random moments under load, again and again on one file: nothing acknowledged is lost, no
transaction and no batch is half there, nothing is there twice, not even after it has been sent again.

Half of the kills come from outside, while any of four threads may be in a system call; half strike in
the middle of a statement of SQLite.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from tests.crash.children import command, environment
from tests.crash.worker import START_MS, TPS, send
from tests.readers import committed_values
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.crash

KILLS_PER_RUN = 4


class Heard:
    """What the children said, over all their lives."""

    def __init__(self) -> None:
        self.committing: set[int] = set()
        self.committed: set[int] = set()
        self.sending: dict[int, tuple[int, int]] = {}
        self.sent: dict[int, int] = {}

    def line(self, line: str) -> None:
        word, *rest = line.split()
        numbers = tuple(map(int, rest))
        if word in ("committing", "committed"):
            getattr(self, word).add(numbers[0])
        elif word == "sending":
            self.sending[numbers[0]] = (numbers[1], numbers[2])
        elif word == "sent":
            assert self.sending.pop(numbers[0]) == (numbers[1], numbers[2])
            self.sent[numbers[0]] = numbers[1] + numbers[2]


def start(path: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(path, "load", *arguments),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


def kill_once(path: Path, seed: int, rng: random.Random, heard: Heard) -> None:
    inside = rng.random() < 0.5
    child = start(path, seed, *([rng.randrange(300_000)] if inside else []))
    assert child.stdout is not None
    if not inside:
        for _ in range(rng.randint(1, 150)):
            heard.line(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate()
    for line in rest.splitlines():
        heard.line(line)
    assert child.returncode == -signal.SIGKILL


def connect(path: Path) -> eosdb.Database:
    return eosdb.connect(path, clock=eosdb.ManualClock(START_MS), durability="normal")


def test_random_kills(tmp_path: Path, seeds: list[int]) -> None:
    for run in seeds:
        path = tmp_path / f"load-{run}.db"
        with connect(path) as db:
            db.admin.create_topic("t", partitions=3)
        rng, heard = random.Random(run), Heard()
        for kill in range(1, KILLS_PER_RUN + 1):
            kill_once(path, run * 100 + kill, rng, heard)
            with connect(path) as db:
                check(db, heard, done=False)
        with connect(path) as db:
            for producer_id, (sequence, count) in heard.sending.items():
                send(db, producer_id, sequence, count)
                heard.sent[producer_id] = sequence + count
            producer = db.producer(transactional_id="load")
            producer.init_transactions()
            check(db, heard, done=True)
            report = db.verify()
            assert report.ok, report.problems


def check(db: eosdb.Database, heard: Heard, *, done: bool) -> None:
    transactions: dict[int, set[tuple[int, int]]] = {}
    for turn, i, count in numbers([v for tp in TPS for v in committed_values(db, tp)], "txn"):
        transactions.setdefault(turn, set()).add((i, count))
    plain: dict[int, set[int]] = {}
    for producer_id, sequence in numbers([v for tp in TPS for v in all_values(db, tp)], "plain"):
        plain.setdefault(producer_id, set()).add(sequence)
    for turn, records in transactions.items():
        (count,) = {count for _, count in records}
        assert records == {(i, count) for i in range(count)}, "no transaction is half there"
        assert turn in heard.committing
    for producer_id in plain.keys() | heard.sent.keys():
        found, acknowledged = len(plain.get(producer_id, ())), heard.sent.get(producer_id, 0)
        assert plain.get(producer_id, set()) == set(range(found))
        sequence, count = heard.sending.get(producer_id, (0, 0))
        if done:
            assert found == acknowledged
        else:
            assert found in (acknowledged, sequence + count), "no batch is half there"
    if done:
        assert heard.committed <= transactions.keys(), "nothing acknowledged is lost"
        offset = db.broker.offset_fetch("g").get(TPS[0])
        newest = max(transactions, default=0)
        assert (0 if offset is None else offset.offset) == newest, "offsets go with the records"


def numbers(values: list[bytes | None], kind: str) -> list[list[int]]:
    words = [value.decode().split() for value in values if value]
    found = [list(map(int, rest)) for first, *rest in words if first == kind]
    assert len(set(map(tuple, found))) == len(found), "nothing is there twice"
    return found


def all_values(db: eosdb.Database, tp: TopicPartition) -> list[bytes | None]:
    """What a read_uncommitted reader gets: an open transaction does not stand in its way."""
    return [r.value for r in db.broker.fetch(tp, 0, max_records=1_000_000).records]


def test_a_process_dies_beside_one_that_lives(tmp_path: Path) -> None:
    path = tmp_path / "load.db"
    with connect(path) as db:
        db.admin.create_topic("t", partitions=3)
    arguments = ["-m", "tests.concurrency.worker", str(path), "append", "living", "2", "100"]
    living = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True
    )
    rng, heard = random.Random(0), Heard()
    for kill in range(1, 4):
        kill_once(path, kill, rng, heard)
    _, errors = living.communicate()
    assert living.returncode == 0, errors
    with connect(path) as db:
        values = [value for tp in TPS for value in committed_values(db, tp) if value]
        mine = [value for value in values if value.startswith(b"living")]
        assert sorted(mine) == sorted(
            b"living %d %d" % (t, i) for t in range(2) for i in range(100)
        )
        report = db.verify()
        assert report.ok, report.problems
