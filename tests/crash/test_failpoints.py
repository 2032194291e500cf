"""A process is killed at every named instant between two durable steps; the next one finds it whole.

Method: a child (`worker.everything`) does a fixed piece of work that visits every failpoint and says what
was acknowledged. It is killed at the first, second, … visit of each point. The parent opens the file and
looks at what a reader sees: whatever was acknowledged is there, transactions and batches are there as a
whole or not at all, whatever was decided is completed, and replay gives the very same tables.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import eosdb
from eosdb.failpoints import Failpoint
from tests.crash.worker import CONFIG, START_MS, TPS
from tests.readers import committed_values
from tests.tidy.tree import ROOT

VISITS = {
    Failpoint.END_TXN_DECIDED: (0, 1, 3),
    Failpoint.RETENTION_MOVED: (0, 1, 3),
    Failpoint.REBUILD_CLEARED: (0,),
    Failpoint.MIGRATION_APPLIED: (0,),
    Failpoint.COMPACTION_CLEANED: (0,),
    Failpoint.CHECKPOINT_DONE: (0,),
}
"""Which visits of a point are its last; four of the others."""
KILLS = [(point, visit) for point in Failpoint for visit in VISITS.get(point, (0, 1, 4, 9))]


def work(path: Path, point: str | None) -> tuple[int, list[str]]:
    """Run the child; its exit status and the lines it could say."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if point is not None:
        environment["EOSDB_FAILPOINT"] = point
    command = [sys.executable, "-m", "tests.crash.worker", str(path), "everything"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(("point", "visits"), KILLS, ids=lambda v: getattr(v, "value", str(v)))
def test_what_was_acknowledged_is_there_and_nothing_is_half(
    tmp_path: Path, point: Failpoint, visits: int
) -> None:
    path = tmp_path / "crash.db"
    status, said = work(path, f"{point.value}:{visits}")
    assert status == -signal.SIGKILL, f"{point} is not visited {visits + 1} times"
    with eosdb.connect(
        path, clock=eosdb.ManualClock(START_MS), durability="off", config=CONFIG
    ) as db:
        if "topics" not in said:
            return
        check(db, said)
        db.housekeeping()
        report = db.verify()
        assert report.ok, report.problems
        db.rebuild()
        check(db, said)


def check(db: eosdb.Database, said: list[str]) -> None:
    values = committed_values(db, TPS[0])
    for turn in range(4):
        expected = [b"plain %d %d" % (turn, i) for i in range(2)]
        found = [value for value in values if value in expected]
        assert found in ([], expected), "a batch is there as a whole or not at all"
        assert found == expected or f"plain {turn}" not in said
    states = {t.transactional_id: t.state for t in db.broker.list_transactions()}
    assert states.get("a") not in ("PrepareCommit", "PrepareAbort"), "decided means completed"
    for turn in range(4):
        per_partition = [
            [v for v in committed_values(db, tp) if v and v.startswith(b"txn %d " % turn)]
            for tp in (TPS[0], TPS[2])
        ]
        whole = [b"txn %d %d" % (turn, i) for i in range(3)]
        assert per_partition in ([[], []], [whole, whole]), "in every partition, or in none"
        if f"txn {turn} committed" in said:
            assert per_partition == [whole, whole]
        if turn % 2:
            assert per_partition == [[], []]
        offset = db.broker.offset_fetch("g").get(TPS[0])
        if per_partition == [whole, whole]:
            assert offset is not None
            assert offset.offset >= turn + 1, "the offsets go with the records"


def test_the_work_that_is_killed_visits_every_point_and_ends_well(tmp_path: Path) -> None:
    status, said = work(tmp_path / "whole.db", None)
    assert (status, said[-1]) == (0, "rebuilt")


@pytest.mark.parametrize(
    "point", [Failpoint.END_TXN_DECIDED, Failpoint.MARKER_WRITTEN], ids=lambda p: p.value
)
def test_whoever_opens_next_completes_what_was_decided(tmp_path: Path, point: Failpoint) -> None:
    path = tmp_path / "crash.db"
    work(path, point.value)
    with eosdb.connect(path, read_only=True) as db:
        assert db.broker.describe_transactions(["a"])["a"].state == "PrepareCommit"
        assert committed_values(db, TPS[0]) == [b"plain 0 0", b"plain 0 1"]
        assert db.broker.find_coordinator("a").epoch == 1
    with eosdb.connect(path, clock=eosdb.ManualClock(START_MS), config=CONFIG) as db:
        assert db.broker.describe_transactions(["a"])["a"].state == "CompleteCommit"
        assert committed_values(db, TPS[2]) == [b"txn 0 0", b"txn 0 1", b"txn 0 2"]
        assert db.broker.find_coordinator("a").epoch == 2
        assert db.broker.end_txn("a", 1, 0, True).producer_epoch == 0, "the retry is answered alike"
