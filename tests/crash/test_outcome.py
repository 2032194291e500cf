"""A commit is killed between the decision and the answer; `db.outcome` tells what became of it, each time.

Method: real processes, 30 for each seed, each killed at one of six instants.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition, TransactionToken
from tests.crash.commit_worker import GROUP
from tests.programs import ended
from tests.readers import committed_values
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.crash


def test_after_every_kill_the_outcome_is_known_and_true(db_path: Path, seeds: list[int]) -> None:
    kills = 30 * len(seeds)
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t", partitions=2)
    done = ended(
        [sys.executable, "-m", "tests.crash.commit_worker", str(db_path), str(kills)], cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    tokens = [TransactionToken("a", int(pid), int(epoch)) for _, pid, epoch in lines]
    assert len(set(tokens)) == kills
    with eosdb.connect(db_path) as db:
        assert {db.outcome(token) for token in tokens} == {"committed"}, "each had been decided"
        expected = [f"{token.producer_id}/{token.producer_epoch}".encode() for token in tokens]
        for partition in range(2):
            assert committed_values(db, TopicPartition("t", partition)) == expected
        assert db.broker.offset_fetch(GROUP)[TopicPartition("t", 0)].offset == kills - 1
        assert db.verify().ok
