"""Several processes, each with several threads, on one file: nothing lost, nothing doubled, all in turn."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from tests.readers import committed_values
from tests.store.locked import go_on, start, worker

pytestmark = pytest.mark.crash

TPS = [TopicPartition("t", i) for i in range(3)]


@pytest.fixture
def path(db_path: Path) -> Path:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t", partitions=3)
    return db_path


def together(children: list[subprocess.Popen[str]]) -> list[str]:
    """Let the children begin when all of them are ready; everything they said."""
    said: list[str] = []
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        output, errors = child.communicate()
        assert child.returncode == 0, errors
        said += output.splitlines()
    return said


def check_offsets(db: eosdb.Database) -> None:
    for tp in TPS:
        fetched = db.broker.fetch(tp, 0, max_records=100_000)
        assert [r.offset for r in fetched.records] == list(range(fetched.high_watermark))
    report = db.verify()
    assert report.ok, report.problems


def test_appends_of_two_processes_and_six_threads(path: Path) -> None:
    together([start(path, "append", name, 3, 60) for name in ("x", "y")])
    with eosdb.connect(path) as db:
        values = [value for tp in TPS for value in committed_values(db, tp)]
        expected = [
            b"%s %d %d" % (n, t, i) for n in (b"x", b"y") for t in range(3) for i in range(60)
        ]
        assert sorted(values) == sorted(expected)  # type: ignore[type-var]
        for tp in TPS:
            seen: dict[tuple[bytes, bytes], int] = {}
            for value in committed_values(db, tp):
                assert value is not None
                name, thread, i = value.split()
                assert seen.get((name, thread), -1) < int(i), "a producer's order is kept"
                seen[name, thread] = int(i)
        check_offsets(db)


def test_processes_that_fence_each_others_producers(path: Path) -> None:
    said = together([start(path, "fence", name, 4, 9) for name in ("x", "y")])
    acknowledged = [line.removeprefix("committed ") for line in said if "committed" in line]
    assert any(line.startswith("fenced") for line in said), "they did get into each other's way"
    with eosdb.connect(path) as db:
        per_partition = [Counter(committed_values(db, tp)) for tp in TPS]
        assert per_partition[0] == per_partition[1] == per_partition[2], "all partitions or none"
        assert set(per_partition[0].values()) == {1}, "nothing is there twice"
        assert {value.encode() for value in acknowledged} <= set(per_partition[0])
        assert {t.state for t in db.broker.list_transactions()} <= {"CompleteCommit", "Empty"}
        check_offsets(db)


def test_two_processes_that_never_pause_both_get_on(path: Path) -> None:
    """Read both until both have stored so much; one that starves keeps this waiting for ever."""
    children = [start(path, "hammer", name, 2) for name in ("x", "y")]
    for child in children:
        assert child.stdout is not None
        for _ in range(300):
            assert child.stdout.readline()
    for child in children:
        _, errors = child.communicate()
        assert child.returncode == 0, errors
    with eosdb.connect(path) as db:
        check_offsets(db)


def test_processes_that_come_and_go(path: Path) -> None:
    """Every close may be the last, which moves the WAL into the file and removes it; readers that open
    just then take the file neither for a damaged one nor for an empty one."""
    children = [start(path, "visit", 60) for _ in range(2)]
    opened = 0
    while any(child.poll() is None for child in children):
        with eosdb.connect(path, read_only=True) as db:
            db.broker.offsets(TPS[0])
        opened += 1
    for child in children:
        _, errors = child.communicate()
        assert child.returncode == 0, errors
    assert opened
    with eosdb.connect(path) as db:
        assert sum(db.broker.offsets(tp).log_end_offset for tp in TPS) == 2 * 60 * 20
        check_offsets(db)


def test_closing_does_not_fail_because_another_process_writes(path: Path) -> None:
    db = eosdb.connect(path, config=eosdb.BrokerConfig(lock_timeout_ms=50))
    db.producer().send("t", b"v", partition=0).result()
    with worker(path, "hold"):
        db.close()
        with pytest.raises(eosdb.DatabaseClosedError):
            db.broker.offsets(TPS[0])
        descriptors = [
            os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.exists()
        ]
        assert str(path) not in descriptors, "nothing of the file is still open"
    with eosdb.connect(path) as db:
        assert committed_values(db, TPS[0]) == [b"v"]
        assert db.verify().ok


def test_a_process_killed_with_the_lock_blocks_nobody(path: Path) -> None:
    holder = start(path, "hold")
    assert holder.stdout is not None
    holder.stdout.readline()
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with eosdb.connect(path, config=eosdb.BrokerConfig(lock_timeout_ms=0)) as db:
        db.producer().send("t", b"v").result()


def test_who_waits_gets_the_lock_when_it_is_free(path: Path) -> None:
    with worker(path, "hold"):
        waiting = start(path, "append", "x", 1, 1)
    go_on(waiting)


def test_a_suspended_coordinator_finds_its_transaction_completed(path: Path) -> None:
    with worker(path, "suspend") as sleepy, eosdb.connect(path) as db:
        assert db.broker.describe_transactions(["sleepy"])["sleepy"].state == "CompleteCommit"
        epoch = db.broker.find_coordinator("sleepy").epoch
        end = db.broker.offsets(TPS[0]).log_end_offset
        assert go_on(sleepy).startswith("ended ")
        assert db.broker.offsets(TPS[0]).log_end_offset == end, "no marker was written again"
        assert db.broker.find_coordinator("sleepy").epoch == epoch
        assert committed_values(db, TPS[0]) == [b"v"]
        assert db.verify().ok


def test_a_coordinator_that_wakes_late_leaves_the_next_transaction_alone(path: Path) -> None:
    with worker(path, "suspend") as sleepy, eosdb.connect(path) as db:
        producer = db.producer(transactional_id="sleepy")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"next", partition=0).result()
        go_on(sleepy)
        assert db.broker.describe_transactions(["sleepy"])["sleepy"].state == "Ongoing"
        assert committed_values(db, TPS[0]) == [b"v"]
        producer.commit_transaction()
        assert committed_values(db, TPS[0]) == [b"v", b"next"]
        assert db.verify().ok


def test_a_process_suspended_while_it_writes_is_waited_for_and_no_longer(path: Path) -> None:
    with worker(path, "suspend-writing"):
        with pytest.raises(eosdb.DatabaseLockedError):
            eosdb.connect(path, config=eosdb.BrokerConfig(lock_timeout_ms=50))
        with eosdb.connect(path, read_only=True) as db:
            assert db.broker.describe_transactions(["sleepy"])["sleepy"].state == "PrepareCommit"
            assert committed_values(db, TPS[0]) == []
    with eosdb.connect(path) as db:
        assert committed_values(db, TPS[0]) == [b"v"]
        assert db.broker.offsets(TPS[0]).log_end_offset == 2
        assert db.verify().ok
