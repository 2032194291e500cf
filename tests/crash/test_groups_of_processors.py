"""Three copies of a processor, one of which is killed again and again: each record has one result, and the
copies are done when the whole group is."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import eosdb
from eosdb.model.failpoints import Failpoint
from tests.crash.children import environment
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.crash

COUNT = 3_000
PARTITIONS = 6
KILLS = 6
DEADLY = (Failpoint.UNIT_COMMITTED, Failpoint.END_TXN_DECIDED, Failpoint.MARKER_WRITTEN)


def start(path: Path, **extra: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.crash.group_worker", str(path)]
    return subprocess.Popen(command, cwd=ROOT, env=environment(**extra))


def feed(db: eosdb.Database, values: range) -> None:
    with db.producer(linger_ms=1_000) as producer:
        for value in values:
            producer.send("in", b"%d" % value, partition=value % PARTITIONS)


def test_each_record_has_one_result_however_often_a_copy_is_killed(
    tmp_path: Path,
) -> None:
    path, rng = tmp_path / "group.db", random.Random(7)
    with eosdb.connect(path, durability="normal") as db:
        for topic in ("in", "out"):
            db.admin.create_topic(topic, PARTITIONS)
        feed(db, range(KILLS))
        staying = [start(path) for _ in range(2)]
        killed = 0
        for number in range(KILLS):
            point = f"{rng.choice(DEADLY).value}:{rng.randrange(12)}"
            mortal = start(path, EOSDB_FAILPOINT=point)
            step = COUNT // KILLS
            feed(db, range(KILLS + number * step, KILLS + (number + 1) * step))
            killed += mortal.wait(90) == -signal.SIGKILL
        assert killed > KILLS // 2
        staying.append(start(path))
        assert [process.wait(90) for process in staying] == [0, 0, 0]
        rows = db.query("SELECT value FROM committed_records WHERE topic = 'out'").rows
        assert Counter(value for (value,) in rows) == Counter(
            b"%d" % value for value in range(COUNT + KILLS)
        )
        assert db.verify().ok
