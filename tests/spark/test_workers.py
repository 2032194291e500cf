"""Tasks that use eosdb themselves, in the workers that Spark's daemon forks, while the driver has the file
open: nothing acknowledged is lost.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from tests.chaos.fork_worker import TP, append
from tests.readers import committed_values
from tests.spark import appending_daemon
from tests.spark.appending import TASKS, append_everywhere

DAEMON = "spark.python.daemon.module"


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


@pytest.fixture
def daemon_with_the_file(spark: Any, path: Path) -> Iterator[None]:
    """Spark starts a daemon for each module and environment."""
    settings = spark.sparkContext._jsc.sc().conf()
    before = settings.get(DAEMON)
    settings.set(DAEMON, appending_daemon.__name__)
    spark.sparkContext.environment[appending_daemon.FILE] = str(path)
    yield
    settings.set(DAEMON, before)
    del spark.sparkContext.environment[appending_daemon.FILE]


@pytest.mark.usefixtures("daemon_with_the_file")
def test_a_driver_and_a_daemon_that_fork_and_close_take_nothing_from_the_workers(
    spark: Any, path: Path
) -> None:
    """Both open the file, fork and close it, again and again."""

    def open_and_fork(name: str) -> None:
        with eosdb.connect(path) as db:
            append(db, str(path), name, 1)
            subprocess.run(["true"], check=True)

    append_everywhere(str(path), spark, open_and_fork)
    check(path, "daemon")
