"""Killed at random moments under load, again and again on one file: nothing acknowledged is lost, no
transaction is half there, nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import eosdb
from tests.crash.worker import START_MS, TPS
from tests.readers import committed_values
from tests.tidy.tree import ROOT

KILLS_PER_RUN = 5


def killed_run(path: Path, seed: int, lines: int) -> list[str]:
    """Run the load until it has said so many lines, kill it, and return all it could say."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.worker", str(path), "load", str(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    said = [child.stdout.readline().strip() for _ in range(lines)]
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate()
    return [*said, *rest.splitlines()]


def test_random_kills(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    for run in range(pytestconfig.getoption("--seeds")):
        path = tmp_path / f"load-{run}.db"
        with eosdb.connect(path, clock=eosdb.ManualClock(START_MS)) as db:
            db.admin.create_topic("t", partitions=3)
        rng = random.Random(run)
        outcome: dict[tuple[int, int], str] = {}
        for kill in range(KILLS_PER_RUN):
            seed = run * 100 + kill
            for line in killed_run(path, seed, rng.randint(1, 150)):
                word, turn = line.split()
                outcome[seed, int(turn)] = word
        with eosdb.connect(path, clock=eosdb.ManualClock(START_MS)) as db:
            producer = db.producer(transactional_id="load")
            producer.init_transactions()
            check(db, outcome)
            report = db.verify()
            assert report.ok, report.problems


def check(db: eosdb.Database, outcome: dict[tuple[int, int], str]) -> None:
    values = [value for tp in TPS for value in committed_values(db, tp) if value]
    assert max(Counter(values).values()) == 1, "nothing is there twice"
    by_transaction: dict[tuple[int, int], set[int]] = {}
    for value in values:
        seed, turn, i = map(int, value.split())
        by_transaction.setdefault((seed, turn), set()).add(i)
    for transaction, numbers in by_transaction.items():
        assert numbers == set(range(len(numbers))), "no transaction is half there"
        assert outcome.get(transaction) in ("committed", "begun")
    lost = {t for t, word in outcome.items() if word == "committed"} - set(by_transaction)
    assert not lost
