"""Tasks that use eosdb themselves, in the workers that Spark's daemon forks, while the driver has the file
open: nothing acknowledged is lost.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import eosdb
from tests.chaos.fork_worker import TP, append
from tests.readers import committed_values
from tests.spark.appending import TASKS, append_everywhere
from tests.tidy.tree import ROOT


def check(path: Path, *more: str) -> None:
    acknowledged = Path(f"{path}.acknowledged").read_text().splitlines()
    whose = Counter(line.partition("-")[0] for line in acknowledged)
    assert {"partition", "pandas", "row", "driver", *more} == whose.keys()
    assert [whose[form] for form in ("partition", "pandas", "row")] == [12 * TASKS] * 3
    with eosdb.connect(path) as db:
        assert sorted(v.decode() for v in committed_values(db, TP) if v) == sorted(acknowledged)
        assert db.verify().ok


@pytest.fixture
def path(db_path: Path) -> Path:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
    return db_path


def test_what_tasks_and_the_driver_append_at_once_is_there_once(spark: Any, path: Path) -> None:
    with eosdb.connect(path) as db:
        append_everywhere(str(path), spark, lambda name: append(db, str(path), name, 1))
    check(path)


def test_a_driver_and_a_daemon_that_fork_and_close_take_nothing_from_the_workers(
    path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.appending", path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    check(path, "started", "daemon")
