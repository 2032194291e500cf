"""An export that is killed has added all or nothing, and the next one goes on behind it.

A child exports; it dies at each point between two steps, and at random instants.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import eosdb
from eosdb.model.failpoints import Failpoint
from tests.crash.children import environment
from tests.integrations.lakehouse.fleet import attack
from tests.integrations.lakehouse.tables import LIBRARIES, Table, committed
from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.crash, pytest.mark.forked_with(*LIBRARIES)]

POINTS = (Failpoint.EXPORT_WRITTEN, Failpoint.EXPORT_HALF_VISIBLE, Failpoint.EXPORT_COMMITTED)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with eosdb.connect(tmp_path / "a.db") as db:
        db.admin.create_topic("orders", partitions=2)
    return tmp_path / "a.db"


def child(table: Table, path: Path, turns: int, **extra: str) -> subprocess.Popen[str]:
    words = ["-m", "tests.integrations.lakehouse.worker", table.format, table.folder, path, turns]
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        cwd=ROOT,
        env=environment(**extra),
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.value)
def test_killed_between_two_steps(table: Table, path: Path, point: Failpoint) -> None:
    if point is Failpoint.EXPORT_HALF_VISIBLE and table.format != "parquet":
        return  # a step that only Parquet has
    process = child(table, path, 9, EOSDB_FAILPOINT=f"{point.value}:1")
    said, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert said.split() == ["ready", "10"]
    in_first, in_second = 10, 10 * (point is not Failpoint.EXPORT_WRITTEN)
    visible = 0 if point is Failpoint.EXPORT_HALF_VISIBLE else in_second
    assert len(table.rows()) == in_first + visible
    with eosdb.connect(path) as db:
        assert table.export(db).records == 10 - in_second
        assert table.places() == committed(db)
        assert len(table.places()) == 20
    left_over = 1 if point is Failpoint.EXPORT_WRITTEN and table.format != "parquet" else 0
    assert len(table.data_files()) == 2 + left_over


def test_killed_at_any_instant(table: Table, path: Path, seeds: list[int]) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        process = child(table, path, 1_000)
        assert process.stdout is not None
        for _ in range(rng.randrange(1, 5)):
            process.stdout.readline()
        try:
            process.wait(rng.random() / 10)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        places = table.places()
        assert len(places) == len(set(places))
    with eosdb.connect(path) as db:
        table.export(db)
        assert table.places() == committed(db)
        assert table.places()


def test_a_fleet_is_exported_by_passes_that_are_killed_at_any_instant(
    table: Table, seeds: list[int]
) -> None:
    assert "each record once" in attack(table, 8, 2 * len(seeds), random.Random(seeds[0]))
