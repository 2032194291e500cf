"""A system call fails once, or every one from some call on: what is acknowledged is stored, and what an
error's `outcome` says is so.

Method: disk.c makes the n-th call fail, for each third n, of requests for memory for fewer
(failing_worker.py). The seed says where they begin; three seeds try every call.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import eosdb
from tests.chaos import power
from tests.chaos.failing_worker import WORKS
from tests.chaos.test_power_cuts import disk
from tests.programs import ended
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.crash

__all__ = ["disk"]


WITHOUT_MEMORY = {
    "append": 9, "append_once": 9, "served_produce": 9, "begin": 29, "send": 29, "send_many": 29,
    "offsets": 29, "tasks_send": 29, "transaction": 59, "tasks_transaction": 59,
}  # fmt: skip
"""Each of how many calls fails: a transaction asks SQLite for memory 500 times."""


@pytest.mark.parametrize("work", WORKS)
def test_a_call_that_fails_at_any_place_is_told_truly(
    tmp_path: Path, disk: Path, work: str, seeds: list[int]
) -> None:
    failures = {("ENOSPC", "wsta"): 3, ("EIO", "wsto"): 3, ("EMFILE", "o"): 3}
    if work in WITHOUT_MEMORY:
        failures["ENOMEM", "q"] = WITHOUT_MEMORY[work]
    folder = tmp_path / "watched"
    folder.mkdir()
    with eosdb.connect(folder / "shop.db") as db:
        db.admin.create_topic("t")
    words = []
    for (error, kinds), some in failures.items():
        each = max(1, some // len(seeds))
        words += [error, kinds, str(each), str(seeds[0] % each)]
    done = ended(
        [sys.executable, "-m", "tests.chaos.failing_worker", folder / "shop.db", work, *words],
        cwd=ROOT,
        env=power.environment(disk, folder, tmp_path / "log"),
    )
    assert done.returncode == 0, done.stderr
    for (_, kinds), reached in zip(failures, done.stdout.split(), strict=True):
        if "w" in kinds or work in ("opening", "new_file"):
            assert int(reached) > 0, f"no call of {kinds} has failed"
