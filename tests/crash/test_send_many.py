"""A program in the middle of `send_many` is killed, and needs no more memory the longer it goes on.

Goal: a chunk is in the log whole or not at all, and the log is a prefix of what was given; a generator of
half a million records runs in flat memory.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.model.failpoints import Failpoint
from tests.crash.children import environment
from tests.programs import ended
from tests.readers import committed_values
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.crash

TP = TopicPartition("t", 0)
PROGRAM = """
import resource, sys
import eosdb

path, count, transactional_id = sys.argv[1], int(sys.argv[2]), sys.argv[3] or None
peaks = []

def records():
    for i in range(count):
        if i % 100_000 == 0:
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        yield b"%d" % i

with eosdb.connect(path, durability="off") as db:
    producer = db.producer(transactional_id=transactional_id)
    if transactional_id:
        producer.init_transactions()
        producer.begin_transaction()
    sent = producer.send_many("t", records())
    if transactional_id:
        producer.commit_transaction()
    assert sent.stored == count
    assert sent.offsets == {eosdb.TopicPartition("t", 0): [range(count)]}
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peaks[2])
"""


def run(path: Path, count: int, transactional_id: str = "", **env: str) -> tuple[int, str]:
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
    done = ended(
        [sys.executable, "-c", PROGRAM, path, str(count), transactional_id],
        cwd=ROOT,
        env=environment(**env),
    )
    assert done.returncode <= 0, done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize("point", [Failpoint.APPEND_UNCOMMITTED, Failpoint.UNIT_COMMITTED])
@pytest.mark.parametrize("transactional_id", ["", "a"])
@pytest.mark.parametrize("visits", [7, 10])
def test_what_a_killed_program_leaves_is_whole_chunks_from_the_beginning(
    db_path: Path, point: Failpoint, transactional_id: str, visits: int
) -> None:
    killed = f"{point.value}:{visits}"
    status, _ = run(db_path, 60_000, transactional_id, EOSDB_FAILPOINT=killed)
    assert status == -signal.SIGKILL
    with eosdb.connect(db_path) as db:
        end = db.broker.offsets(TP).log_end_offset
        assert 0 < end < 60_000
        assert (end - 16) % 500 == 0, "a chunk ends with a piece"
        if transactional_id:
            assert committed_values(db, TP) == []
            with db.producer(transactional_id=transactional_id) as producer:
                producer.init_transactions()
        else:
            assert committed_values(db, TP) == [b"%d" % i for i in range(end)]
        assert db.verify().ok


@pytest.mark.parametrize("transactional_id", ["", "a"])
def test_a_generator_of_half_a_million_runs_in_flat_memory(
    db_path: Path, transactional_id: str
) -> None:
    status, grown_kib = run(db_path, 500_000, transactional_id)
    assert status == 0
    assert int(grown_kib) < 16_384, (
        "three hundred thousand records of it would be three times as much"
    )
