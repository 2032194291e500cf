"""Several processes, each with several threads, on one file: nothing lost, nothing doubled, all in turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from tests.readers import committed_values
from tests.tidy.tree import ROOT

TPS = [TopicPartition("t", i) for i in range(3)]


def start(path: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.concurrency.worker", str(path), *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def path(db_path: Path) -> Path:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t", partitions=3)
    return db_path


def test_appends_of_two_processes_and_six_threads(path: Path) -> None:
    for child in [start(path, "append", name, 3, 60) for name in ("x", "y")]:
        _, errors = child.communicate()
        assert child.returncode == 0, errors
    with eosdb.connect(path) as db:
        values = [value for tp in TPS for value in committed_values(db, tp)]
        expected = [
            b"%s %d %d" % (n, t, i) for n in (b"x", b"y") for t in range(3) for i in range(60)
        ]
        assert sorted(values) == sorted(expected)  # type: ignore[type-var]
        for tp in TPS:
            fetched = db.broker.fetch(tp, 0, max_records=10_000)
            assert [r.offset for r in fetched.records] == list(range(fetched.high_watermark))
        assert db.verify().ok


def test_processes_that_fence_each_others_producers(path: Path) -> None:
    children = [start(path, "fence", name, 2, 9) for name in ("x", "y")]
    acknowledged: set[bytes] = set()
    for child in children:
        output, errors = child.communicate()
        assert child.returncode == 0, errors
        acknowledged |= {line.removeprefix("committed ").encode() for line in output.splitlines()}
    with eosdb.connect(path) as db:
        per_partition = [Counter(committed_values(db, tp)) for tp in TPS]
        assert per_partition[0] == per_partition[1] == per_partition[2], "all partitions or none"
        assert acknowledged <= set(per_partition[0])
        report = db.verify()
        assert report.ok, report.problems


def test_waiting_for_another_process_is_bounded(path: Path) -> None:
    holder = start(path, "hold")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    config = eosdb.BrokerConfig(lock_timeout_ms=100)
    with pytest.raises(eosdb.DatabaseLockedError, match="100 ms"):
        eosdb.connect(path, config=config)
    with eosdb.connect(path, read_only=True) as reader:
        assert reader.broker.offsets(TPS[0]).log_end_offset == 0, "readers do not wait"
    holder.communicate()
    with eosdb.connect(path, config=config) as db:
        assert db.producer().send("t", b"v").result().offset == 0


def test_a_process_killed_with_the_lock_blocks_nobody(path: Path) -> None:
    holder = start(path, "hold")
    assert holder.stdout is not None
    holder.stdout.readline()
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with eosdb.connect(path, config=eosdb.BrokerConfig(lock_timeout_ms=0)) as db:
        db.producer().send("t", b"v").result()


def test_who_waits_gets_the_lock_when_it_is_free(path: Path) -> None:
    holder = start(path, "hold")
    assert holder.stdout is not None
    holder.stdout.readline()
    waiting = start(path, "append", "x", 1, 1)
    holder.communicate()
    _, errors = waiting.communicate()
    assert waiting.returncode == 0, errors


def test_a_suspended_coordinator_finds_its_transaction_completed(path: Path) -> None:
    sleepy = start(path, "suspend")
    assert sleepy.stdout is not None
    assert sleepy.stdout.readline() == "decided\n"
    os.waitid(os.P_PID, sleepy.pid, os.WSTOPPED | os.WNOWAIT)
    with eosdb.connect(path) as db:
        assert db.broker.describe_transactions(["sleepy"])["sleepy"].state == "CompleteCommit"
        epoch = db.broker.find_coordinator("sleepy").epoch
        end = db.broker.offsets(TPS[0]).log_end_offset
        sleepy.send_signal(signal.SIGCONT)
        output, errors = sleepy.communicate()
        assert sleepy.returncode == 0, errors
        assert output.startswith("ended ")
        assert db.broker.offsets(TPS[0]).log_end_offset == end, "no marker was written again"
        assert db.broker.find_coordinator("sleepy").epoch == epoch
        assert committed_values(db, TPS[0]) == [b"v"]
        assert db.verify().ok


def test_a_forked_child_does_not_keep_the_lock(path: Path) -> None:
    with eosdb.connect(path, config=eosdb.BrokerConfig(lock_timeout_ms=100)) as db:
        mutex = db._store._mutex
        assert mutex is not None
        mutex.acquire()
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(write_end)
            os.read(read_end, 1)
            os._exit(0)
        mutex.release()
        db.producer().send("t", b"v").result()
        os.close(read_end)
        os.close(write_end)
        os.waitpid(child, 0)
