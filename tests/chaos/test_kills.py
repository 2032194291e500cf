"""Processes on one file, some of which are killed: what is acknowledged is stored once, nothing else is.

Their clocks jump by hours and days, each by itself; or another program makes the checkpoints, and is
killed, too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import eosdb
from eosdb.model.clock import SystemClock
from tests.chaos import killed_worker
from tests.chaos.disk_worker import TP
from tests.readers import committed_values

pytestmark = pytest.mark.crash

COUNT = 40
KILLED_AFTER = 10
"""Lines of what a worker has acknowledged."""
AN_HOUR_MS = 3_600_000


def start(path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.chaos.killed_worker", str(path), *arguments]
    return subprocess.Popen(command)


@contextmanager
def checkpoints(path: Path, how: str) -> Iterator[None]:
    """By another program, if it has to be, which is killed once and then goes on."""
    if how != "external checkpoints":
        yield
        return
    killed = start(path)
    yield
    killed.kill()
    assert killed.wait() < 0
    again = start(path)
    Path(f"{path}.stop").touch()
    assert again.wait() == 0


def acknowledged(path: Path, name: str) -> list[str]:
    log = Path(f"{path}.{name}")
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize("how", killed_worker.HOW)
def test_what_is_acknowledged_is_stored_once(db_path: Path, how: str) -> None:
    with eosdb.connect(db_path, config=killed_worker.config(external_checkpoints=True)) as db:
        db.admin.create_topic("t")
        db.admin.create_topic("large")
    with checkpoints(db_path, how):
        staying = start(db_path, "staying", str(COUNT), how)
        killed = start(db_path, "killed", "10000", how)
        while len(acknowledged(db_path, "killed")) < KILLED_AFTER and killed.poll() is None:
            with pytest.raises(subprocess.TimeoutExpired):
                killed.wait(0.05)
        killed.kill()
        assert killed.wait() < 0
        assert start(db_path, "next", str(COUNT), how).wait() == 0
        assert staying.wait() == 0
    said = [
        line.split()
        for name in ("staying", "killed", "next")
        for line in acknowledged(db_path, name)
    ]
    assert len(said) > COUNT
    later = eosdb.ManualClock(SystemClock().time_ms() + AN_HOUR_MS)
    with eosdb.connect(db_path, clock=later, config=killed_worker.config()) as db:
        db.producer().send("large", b"what the killed one left open has timed out").result()
        found = [(value or b"").decode().rstrip() for value in committed_values(db, TP)]
        assert len(found) == len(set(found)), "nothing is there twice"
        stored = {value for how, value in said if how != "offset"}
        assert stored - set(found) == set(), "what was acknowledged is there"
        assert not [value for value in found if value.startswith("never")]
        assert db.verify().ok
        offsets = [group for how, group in said if how == "offset"]
        assert all(db.broker.offset_fetch(group) for group in offsets)
