"""A processor with tables of its own is killed: each record ends as one row and one result, or as one dead
letter without a row.

First at every instant between two durable steps, in this process; then for real, with another worker beside
it that takes over, and returns only when everything is done.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.model.failpoints import Failpoint
from tests.crash.children import environment
from tests.crash.own_tables_worker import SETTINGS, TABLE, handle, is_bad
from tests.crash.test_processing import killed_everywhere, run_until_killed
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.crash

FEW, EACH_ROUND, ROUNDS = 9, 60, 3
DEADLY = {
    Failpoint.APPEND_UNCOMMITTED: 20,
    Failpoint.UNIT_COMMITTED: 8,
    Failpoint.USER_UNIT_UNCOMMITTED: 2,
}
"""Where a worker is killed, and the latest visit at which it is."""


def fill(path: Path, numbers: range) -> None:
    with eosdb.connect(path, durability="off") as db:
        for topic in ("in", "out"):
            db.admin.create_topic(topic, 2, exist_ok=True)
        if "done" not in {name for (name,) in db.query("SELECT name FROM sqlite_schema").rows}:
            with db.begin() as tx:
                tx.connection.exec_driver_sql(TABLE)
        with db.producer(linger_ms=1_000) as producer:
            for number in numbers:
                producer.send("in", b"%d" % number, partition=number % 2)


def live(path: Path, clock: eosdb.Clock, lives_until: int) -> Failpoint | None:
    """Run a processor that is killed at the given visit of any failpoint. Returns where it died."""
    settings: dict[str, Any] = {**SETTINGS, "transaction_size": 4}
    # Started again, it takes its own place.
    settings["consumer"] = {"group_instance_id": "one"}
    db = eosdb.connect(path, clock=clock, durability="off")
    return run_until_killed(db, handle, settings, lives_until)


def check(path: Path, count: int) -> None:
    good = [number for number in range(count) if not is_bad(number)]
    with eosdb.connect(path) as db:
        rows = db.query("SELECT value, topic, number FROM done ORDER BY value").rows
        assert list(rows) == [(number, "in", number // 2) for number in good]
        found = Counter(db.query("SELECT topic, value FROM committed_records").rows)
        ended = {(t, int(v)): n for (t, v), n in found.items() if t in ("out", "dead")}
        bad = set(range(count)) - set(good)
        assert ended == {**{("out", n): 1 for n in good}, **{("dead", n): 1 for n in bad}}
        offsets = db.broker.offset_fetch("g")
        for partition in (0, 1):
            tp = TopicPartition("in", partition)
            assert offsets[tp].offset == db.broker.offsets(tp).log_end_offset
        assert db.verify().ok


def test_killed_at_every_write_point_each_record_has_one_row_or_none(tmp_path: Path) -> None:
    fill(tmp_path / "filled.db", range(FEW))
    points = killed_everywhere(tmp_path / "filled.db", live, lambda path: check(path, FEW))
    assert points >= DEADLY.keys()


def test_killed_for_real_beside_a_worker_that_takes_over(tmp_path: Path) -> None:
    path, rng, killed = tmp_path / "killed.db", random.Random(40), 0
    for number in range(ROUNDS):
        fill(path, range(number * EACH_ROUND, (number + 1) * EACH_ROUND))
        point, latest = list(DEADLY.items())[number]
        mortal = start(path, EOSDB_FAILPOINT=f"{point.value}:{rng.randrange(latest)}")
        heir = start(path)
        _, told = heir.communicate(timeout=120)
        assert heir.returncode == 0, told
        mortal.communicate(timeout=120)
        assert mortal.returncode in (0, -signal.SIGKILL)
        killed += mortal.returncode != 0
        check(path, (number + 1) * EACH_ROUND)
    assert killed


def start(path: Path, **extra: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.own_tables_worker", str(path)],
        cwd=ROOT,
        env=environment(**extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
