"""Every system call fails once, and every one from some call on: what is acknowledged is stored, and what
an error's `outcome` says is so.

Method: disk.c makes the n-th call fail, for every n (failing_worker.py).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import eosdb
from tests.chaos import power
from tests.chaos.failing_worker import WORKS
from tests.chaos.test_power_cuts import disk
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.crash

__all__ = ["disk"]


FAILURES = [("ENOSPC", "wsta"), ("EIO", "wsto"), ("EMFILE", "o")]
WITHOUT_MEMORY = {
    "append": 1, "append_once": 1, "served_produce": 1, "begin": 3, "send": 3, "send_many": 3,
    "offsets": 3, "tasks_send": 3, "transaction": 7, "tasks_transaction": 7,
}  # fmt: skip
"""Each of how many calls fails: a transaction asks SQLite for memory 500 times."""


@pytest.mark.parametrize(
    ("work", "error", "kinds", "each"),
    [(work, *failure, 1) for failure in FAILURES for work in WORKS]
    + [(work, "ENOMEM", "q", each) for work, each in WITHOUT_MEMORY.items()],
)
def test_a_call_that_fails_at_any_place_is_told_truly(
    tmp_path: Path, disk: Path, work: str, error: str, kinds: str, each: int
) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    with eosdb.connect(folder / "shop.db") as db:
        db.admin.create_topic("t")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.chaos.failing_worker",
            folder / "shop.db",
            work,
            error,
            kinds,
            str(each),
        ],
        cwd=ROOT,
        env=power.environment(disk, folder, tmp_path / "log"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if "w" in kinds or work in ("opening", "new_file"):
        assert int(done.stdout) > 0, "no call has failed"
