"""Processes on one file whose clocks jump by hours and days, each by itself, while some are killed: what is
acknowledged is stored once, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import eosdb
from tests.chaos import clock_worker
from tests.chaos.disk_worker import TP
from tests.readers import committed_values

COUNT = 40
KILLED_AFTER = 10
"""Lines of what a worker has acknowledged."""


def start(path: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.chaos.clock_worker", str(path), name, str(count)]
    return subprocess.Popen(command)


def acknowledged(path: Path, name: str) -> list[str]:
    log = Path(f"{path}.{name}")
    return log.read_text().splitlines() if log.exists() else []


def test_whatever_the_clocks_show(db_path: Path) -> None:
    with eosdb.connect(db_path, config=clock_worker.config()) as db:
        db.admin.create_topic("t")
    staying = start(db_path, "staying", COUNT)
    killed = start(db_path, "killed", 10_000)
    while len(acknowledged(db_path, "killed")) < KILLED_AFTER and killed.poll() is None:
        with pytest.raises(subprocess.TimeoutExpired):
            killed.wait(0.05)
    killed.kill()
    assert killed.wait() < 0
    assert start(db_path, "next", COUNT).wait() == 0
    assert staying.wait() == 0
    names = ("staying", "killed", "next")
    said = [line.split() for name in names for line in acknowledged(db_path, name)]
    assert len(said) > COUNT
    with eosdb.connect(db_path, config=clock_worker.config()) as db:
        found = [(value or b"").decode().rstrip() for value in committed_values(db, TP)]
        assert len(found) == len(set(found)), "nothing is there twice"
        stored = {value for how, value in said if how != "offset"}
        assert stored - set(found) == set(), "what was acknowledged is there"
        assert not [value for value in found if value.startswith("never")]
        assert db.verify().ok
        offsets = [group for how, group in said if how == "offset"]
        assert all(db.broker.offset_fetch(group) for group in offsets)
